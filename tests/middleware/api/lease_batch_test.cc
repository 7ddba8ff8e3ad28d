// SPDX-License-Identifier: Apache-2.0
//
// What threads submit to the thread that drives while it starts and cancels what others have submitted.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "middleware/api/client_call.h"
#include "middleware/api/runtime.h"
#include "tests/middleware/api/chat_service.h"

namespace sluice {
namespace lease_batch_test {

using testing_support::ChatClient;
using testing_support::ChatService;
using testing_support::FakeEndpoint;
using testing_support::FakeNetwork;
using testing_support::FakeStack;
using testing_support::Gate;
using testing_support::Lasting;
using testing_support::Line;

constexpr int kManyPasses = 10'000;

// A channel in a runtime that this thread polls.
class LeaseBatchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = Server::CreateOn(
        std::make_unique<FakeStack>(&network_, FakeNetwork::Options(), &server_end_));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    ASSERT_TRUE(server_->Register(&chat_).ok());
    ASSERT_TRUE(server_->Listen("a:1").ok());
    RuntimeOptions options;
    options.driving = Driving::kCaller;
    auto made = Runtime::CreateOn(
        std::make_unique<FakeStack>(&network_, FakeNetwork::Options(), &client_end_), options);
    ASSERT_TRUE(made.ok()) << made.status();
    runtime_ = *std::move(made);
    auto channel = Channel::ConnectIn(runtime_, "a:1", {});
    ASSERT_TRUE(channel.ok()) << channel.status();
    channel_ = *std::move(channel);
  }

  void StartWaiting(CallContext& context, Line* reply,
                    absl::AnyInvocable<void(const absl::Status&) &&> done) {
    ASSERT_TRUE(
        ChatClient(channel_).StartSay(context, Lasting("wait"), reply, std::move(done)).ok());
  }
  // Polls until there is nothing to do, and arms the descriptor. False: there is always something to do.
  bool GoToSleep() {
    for (int i = 0; i < kManyPasses; ++i) {
      if (runtime_->Poll() == 0 && runtime_->PrepareToSleep()) return true;
    }
    return false;
  }

  FakeNetwork network_;
  ChatService chat_;
  FakeEndpoint* server_end_ = nullptr;
  FakeEndpoint* client_end_ = nullptr;
  std::unique_ptr<Server> server_;
  std::shared_ptr<Runtime> runtime_;
  std::shared_ptr<Channel> channel_;
};

TEST_F(LeaseBatchTest, CancellationInACallbackOfACancellationLeavesTheLoopIdle) {
  std::stop_source stop_first, stop_second;
  CallContext first = CallContext::NoDeadline(), second = CallContext::NoDeadline();
  first.set_stop_token(stop_first.get_token());
  second.set_stop_token(stop_second.get_token());
  Line replies[2];
  int ended = 0;
  StartWaiting(first, &replies[0], [&](const absl::Status& status) {
    EXPECT_TRUE(absl::IsCancelled(status)) << status;
    ++ended;
    std::thread([&] { stop_second.request_stop(); }).join();
  });
  StartWaiting(second, &replies[1], [&](const absl::Status& status) {
    EXPECT_TRUE(absl::IsCancelled(status)) << status;
    ++ended;
  });
  ASSERT_TRUE(GoToSleep());
  std::thread([&] { stop_first.request_stop(); }).join();
  for (int i = 0; i < kManyPasses && ended < 2; ++i) runtime_->Poll();
  EXPECT_EQ(ended, 2);
  EXPECT_TRUE(GoToSleep()) << "the loop would never sleep again";
}

// Overwrites the part of the stack that a returned function has used.
[[gnu::noinline]] void OverwriteStack() {
  volatile char bytes[32 * 1024];
  for (volatile char& byte : bytes) byte = -1;
}

TEST_F(LeaseBatchTest, WaiterThatALaterStartOfItsBatchEndsStaysUntilTheBatchIsOver) {
  Gate reader_gone;
  CallContext forever = CallContext::NoDeadline();
  Line reply;
  auto talk = ChatClient(channel_).Talk(forever);
  // In the end of the channel: the reader has what it waits for, and time to go.
  StartWaiting(forever, &reply, [&](const absl::Status&) {
    talk.Cancel();
    (void)reader_gone.WaitFor(absl::Milliseconds(100));
  });
  ASSERT_TRUE(GoToSleep());

  // Each submission to a holder that sleeps wakes it.
  std::atomic<int> submitted{0};
  client_end_->set_after_wake([&] { ++submitted; });
  std::thread reader([&] {
    Line line;
    EXPECT_FALSE(talk.Read(&line));
    OverwriteStack();
    reader_gone.Open();
  });
  while (submitted < 1) std::this_thread::yield();
  std::thread owner([&] { channel_.reset(); });
  while (submitted < 2) std::this_thread::yield();
  client_end_->set_after_wake(nullptr);
  std::atomic<bool> owner_done{false};
  std::thread joiner([&] {
    owner.join();
    owner_done = true;
  });
  while (!owner_done || !reader_gone.open()) runtime_->Poll();
  joiner.join();
  reader.join();
  EXPECT_TRUE(absl::IsCancelled(talk.Finish()));
  EXPECT_TRUE(GoToSleep());
}

}  // namespace lease_batch_test
}  // namespace sluice
