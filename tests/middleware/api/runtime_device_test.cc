// SPDX-License-Identifier: Apache-2.0
//
// Channels that share a Runtime, over softdc; and arguments of its functions.
#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "middleware/api/client_call.h"
#include "middleware/api/runtime.h"
#include "tests/middleware/api/chat_service.h"

namespace sluice {
namespace runtime_device_test {

using testing_support::ChatClient;
using testing_support::ChatService;
using testing_support::Lasting;
using testing_support::Line;

constexpr absl::Duration kHang = absl::Seconds(60);

Line Text(const std::string& text) {
  Line line;
  line.set_text(text);
  return line;
}

size_t Threads() {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                                           std::filesystem::directory_iterator()));
}

TEST(RuntimeOverADeviceTest, ChannelsComeAndGoOverOneSetOfQueues) {
  ChatService chats[2];
  std::vector<std::unique_ptr<Server>> servers;
  std::vector<std::string> addresses;
  for (int i = 0; i < 2; ++i) {
    auto server = Server::Create({});
    ASSERT_TRUE(server.ok()) << server.status();
    ASSERT_TRUE((*server)->Register(&chats[i]).ok());
    const auto port = (*server)->Listen("127.0.0.1:0");
    ASSERT_TRUE(port.ok()) << port.status();
    addresses.push_back("127.0.0.1:" + std::to_string(*port));
    servers.push_back(*std::move(server));
  }
  auto runtime = Runtime::Create();
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  ChannelOptions options;
  options.runtime = *runtime;
  size_t threads = Threads();
  for (int round = 0; round < 3; ++round) {
    std::vector<std::shared_ptr<Channel>> channels;
    for (int i = 0; i < 12; ++i) {
      auto channel = Channel::Connect(addresses[i % 2], options);
      ASSERT_TRUE(channel.ok()) << channel.status();
      channels.push_back(*std::move(channel));
    }
    if (round == 0) {  // the runtime and the servers have started a helper thread each
      EXPECT_LE(Threads(), threads + 1 + servers.size());
      threads = Threads();
    }
    EXPECT_EQ(Threads(), threads);
    int ended = 0;
    std::vector<Line> replies(channels.size());
    const std::string text = round == 1 ? std::string(200'000, 'x') : "x";
    CallContext forever = CallContext::NoDeadline();
    for (size_t i = 0; i < channels.size(); ++i) {
      for (int call = 0; call < 3; ++call) {
        CallContext context(kHang);
        const auto reply = ChatClient(channels[i]).Say(context, Text(text));
        ASSERT_TRUE(reply.ok()) << reply.status();
        EXPECT_EQ(reply->text(), text);
      }
      ASSERT_TRUE(ChatClient(channels[i])
                      .StartSay(forever, Lasting("wait"), &replies[i],
                                [&ended](const absl::Status&) { ++ended; })
                      .ok());
    }
    channels.clear();
    EXPECT_EQ(ended, 12);
  }
}

TEST(RuntimeArguments, NoRuntimeIsAnError) {
  const auto channel = Channel::ConnectIn(nullptr, "127.0.0.1:7471", ChannelOptions());
  EXPECT_EQ(channel.status().code(), absl::StatusCode::kInvalidArgument) << channel.status();
}

}  // namespace runtime_device_test
}  // namespace sluice
