// SPDX-License-Identifier: Apache-2.0
//
// More clients than RC queue pairs: the server asks idle clients to leave, and they come back for their next call.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "middleware/api/runtime.h"
#include "tests/middleware/api/chat_service.h"

namespace sluice {
namespace {

using testing_support::ChatClient;
using testing_support::ChatService;
using testing_support::Line;

constexpr char kDevice[] = "softdc0/rc";
constexpr absl::Duration kHang = absl::Seconds(60);
constexpr size_t kPlaces = 4;

Line Text(const std::string& text) {
  Line line;
  line.set_text(text);
  return line;
}

class RcRestTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ServerOptions options;
    options.device = kDevice;
    options.limits.max_rc_queue_pairs = kPlaces;
    auto server = Server::Create(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    ASSERT_TRUE(server_->Register(&chat_).ok());
    const auto port = server_->Listen("127.0.0.1:0");
    ASSERT_TRUE(port.ok()) << port.status();
    address_ = "127.0.0.1:" + std::to_string(*port);
    RuntimeOptions of_runtime;
    of_runtime.device = kDevice;
    auto runtime = Runtime::Create(of_runtime);
    ASSERT_TRUE(runtime.ok()) << runtime.status();
    runtime_ = *std::move(runtime);
  }
  absl::StatusOr<std::shared_ptr<Channel>> Connect(bool in_background) {
    ChannelOptions options;
    options.runtime = runtime_;
    options.share_connections = false;
    options.connect_in_background = in_background;
    return Channel::Connect(address_, options);
  }

  ChatService chat_;
  std::unique_ptr<Server> server_;
  std::string address_;
  std::shared_ptr<Runtime> runtime_;
};

TEST_F(RcRestTest, TwelveClientsThatCallInTurnShareFourQueuePairsAndNoCallFails) {
  std::vector<std::shared_ptr<Channel>> channels;
  for (int i = 0; i < 12; ++i) {
    auto channel = Connect(/*in_background=*/true);
    ASSERT_TRUE(channel.ok()) << channel.status();
    channels.push_back(*std::move(channel));
  }
  for (int round = 0; round < 4; ++round) {
    for (size_t i = 0; i < channels.size(); ++i) {
      CallContext context(kHang);
      // A client that has been connected needs no wait_for_ready: its calls wait for the place.
      context.set_wait_for_ready(round == 0);
      const std::string text = std::to_string(round) + "/" + std::to_string(i);
      const auto reply = ChatClient(channels[i]).Say(context, Text(text));
      ASSERT_TRUE(reply.ok()) << text << ": " << reply.status();
      EXPECT_EQ(reply->text(), text);
      const auto snapshot = server_->Snapshot();
      EXPECT_LE(snapshot.queues.size(), kPlaces);
      EXPECT_LE(snapshot.peers_in_all, kPlaces);
    }
  }
  const auto snapshot = server_->Snapshot();
  EXPECT_GE(snapshot.calls.rests_asked, 8u);
  EXPECT_EQ(snapshot.calls.protocol_errors, 0u);
  EXPECT_EQ(snapshot.calls.cancelled, 0u);
}

TEST_F(RcRestTest, AClientWithACallKeepsItsPlace) {
  auto busy = Connect(/*in_background=*/false);
  ASSERT_TRUE(busy.ok()) << busy.status();
  CallContext forever = CallContext::NoDeadline();
  Line reply;
  testing_support::Gate ended;
  absl::Status status;
  const Line& request = testing_support::Lasting("wait");
  ASSERT_TRUE(ChatClient(*busy)
                  .StartSay(forever, request, &reply,
                            [&](const absl::Status& why) {
                              status = why;
                              ended.Open();
                            })
                  .ok());
  chat_.waiting.Wait();
  std::vector<std::shared_ptr<Channel>> channels;
  for (int i = 0; i < 8; ++i) {
    auto channel = Connect(/*in_background=*/true);
    ASSERT_TRUE(channel.ok()) << channel.status();
    channels.push_back(*std::move(channel));
    CallContext context(kHang);
    context.set_wait_for_ready(true);
    const auto answer = ChatClient(channels.back()).Say(context, Text("x"));
    ASSERT_TRUE(answer.ok()) << answer.status();
  }
  EXPECT_FALSE(ended.open()) << status;
  EXPECT_EQ((*busy)->connection_state(), ConnectionState::kUp);
  busy->reset();
  ended.Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
}

}  // namespace
}  // namespace sluice
