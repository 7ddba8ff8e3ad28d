// SPDX-License-Identifier: Apache-2.0
//
// Servers, and a Runtime whose channels call them, over a network in memory.
#ifndef SLUICE_TESTS_MIDDLEWARE_API_RUNTIME_WORLD_H_
#define SLUICE_TESTS_MIDDLEWARE_API_RUNTIME_WORLD_H_

#include <gtest/gtest.h>
#include <poll.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "middleware/api/client_call.h"
#include "middleware/api/runtime.h"
#include "tests/middleware/api/chat_service.h"
#include "tests/middleware/api/endings.h"

namespace sluice::testing_support {

constexpr int kHangMs = 60'000;
constexpr absl::Duration kHang = absl::Milliseconds(kHangMs);

inline Line Text(const std::string& text) {
  Line line;
  line.set_text(text);
  return line;
}

class RuntimeWorld : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* address : {"a:1", "b:1", "c:1"}) StartServer(address);
  }
  void TearDown() override {
    runtime_.reset();
    servers_.clear();
  }

  Server* StartServer(const std::string& address) {
    auto server = Server::CreateOn(
        std::make_unique<FakeStack>(&network_, FakeNetwork::Options(), &server_end_));
    EXPECT_TRUE(server.ok()) << server.status();
    // One for each: a Signal of its belongs to one polling thread.
    chats_.push_back(std::make_unique<ChatService>());
    EXPECT_TRUE((*server)->Register(chats_.back().get()).ok());
    EXPECT_TRUE((*server)->Listen(address).ok());
    servers_.push_back(*std::move(server));
    return servers_.back().get();
  }
  void Make(RuntimeOptions options = {}) {
    options.log = std::make_shared<LastWord>(gone_);
    auto made = Runtime::CreateOn(
        std::make_unique<FakeStack>(&network_, FakeNetwork::Options(), &client_end_), options);
    ASSERT_TRUE(made.ok()) << made.status();
    runtime_ = *std::move(made);
  }
  void MakeLoop() {
    RuntimeOptions options;
    options.driving = Driving::kCaller;
    Make(options);
  }
  std::shared_ptr<Channel> Connect(const std::string& address, ChannelOptions options = {}) {
    auto channel = Channel::ConnectIn(runtime_, address, options);
    EXPECT_TRUE(channel.ok()) << channel.status();
    return channel.ok() ? *std::move(channel) : nullptr;
  }
  static absl::Status Say(const std::shared_ptr<Channel>& channel, const std::string& text) {
    CallContext context(kHang);
    const auto reply = ChatClient(channel).Say(context, Text(text));
    EXPECT_TRUE(!reply.ok() || reply->text() == text);
    return reply.status();
  }
  // A call that does not end by itself.
  void StartWaiting(const std::shared_ptr<Channel>& channel, Line* reply,
                    absl::AnyInvocable<void(const absl::Status&) &&> done) {
    ASSERT_TRUE(
        ChatClient(channel).StartSay(forever_, Lasting("wait"), reply, std::move(done)).ok());
  }
  // The loop of a program with one descriptor.
  bool RunLoop(std::function<bool()> done) {
    Runtime* const runtime = runtime_.get();
    while (!done()) {
      if (runtime->Poll() > 0 || !runtime->PrepareToSleep() || done()) continue;
      pollfd fd{runtime->fd(), POLLIN, 0};
      if (poll(&fd, 1, kHangMs) != 1) return false;
    }
    return true;
  }

  FakeNetwork network_;
  std::vector<std::unique_ptr<ChatService>> chats_;
  FakeEndpoint* server_end_ = nullptr;
  FakeEndpoint* client_end_ = nullptr;
  std::vector<std::unique_ptr<Server>> servers_;
  CallContext forever_ = CallContext::NoDeadline();
  const std::shared_ptr<Gate> gone_ = std::make_shared<Gate>();  // the runtime is
  std::shared_ptr<Runtime> runtime_;
};

}  // namespace sluice::testing_support

#endif  // SLUICE_TESTS_MIDDLEWARE_API_RUNTIME_WORLD_H_
