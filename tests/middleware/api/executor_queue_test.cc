// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/executor_queue.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "middleware/api/client_call.h"
#include "middleware/api/in_process.h"
#include "middleware/api/own_copy.h"
#include "tests/middleware/api/chat.sluice.h"
#include "tests/support/executors.h"
#include "transport/base/error.h"

namespace sluice {
namespace executor_queue_test {

using testing_support::ManualExecutor;
using tests::chat::ChatClient;
using tests::chat::ChatServiceBase;
using tests::chat::Line;

class Chat final : public ChatServiceBase {
 public:
  absl::Status Say(ServerContext&, const Line&, Line*) override {
    ++calls;
    return absl::OkStatus();
  }
  int calls = 0;
};

class Ended {
 public:
  void Set(const absl::Status& status) {
    std::lock_guard lock(mutex_);
    status_ = OwnCopy(status);
    ended_ = true;
    changed_.notify_all();
  }
  absl::Status Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ended_; });
    return status_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
  absl::Status status_;
};

class ExecutorQueueTest : public ::testing::Test {
 protected:
  void Start(RegisterOptions options, const ServerOptions& server = {}) {
    options.executor = &executor_;
    auto world = InProcess::Start({&chat_}, server, options);
    ASSERT_TRUE(world.ok()) << world.status();
    world_ = *std::move(world);
    auto channel = world_->NewChannel();
    ASSERT_TRUE(channel.ok()) << channel.status();
    channel_ = *channel;
  }
  void Say(Ended* ended, absl::Duration timeout = absl::Seconds(60)) {
    contexts_.push_back(std::make_unique<CallContext>(timeout));
    replies_.push_back(std::make_unique<Line>());
    ASSERT_TRUE(ChatClient(channel_)
                    .StartSay(*contexts_.back(), request_, replies_.back().get(),
                              [ended](const absl::Status& status) { ended->Set(status); })
                    .ok());
  }

  Chat chat_;
  ManualExecutor executor_;
  Line request_;
  std::unique_ptr<InProcess> world_;
  std::deque<std::unique_ptr<CallContext>> contexts_;
  std::deque<std::unique_ptr<Line>> replies_;
  std::shared_ptr<Channel> channel_;
};

TEST_F(ExecutorQueueTest, MoreThanMayWaitAreRefusedAtOnce) {
  Start({.max_waiting_calls = 2});
  Ended ended[5];
  for (Ended& one : ended) Say(&one);
  // Nothing runs so far: those that are refused wait for nobody.
  for (int i = 2; i < 5; ++i) {
    const absl::Status refused = ended[i].Wait();
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
    EXPECT_TRUE(base::DetailOf(refused)->retry_safe());
  }
  EXPECT_EQ(executor_.waiting(), 2u);
  executor_.RunOne();
  EXPECT_TRUE(ended[0].Wait().ok());
  Ended next;
  Say(&next);  // there is room again
  executor_.RunOne();
  executor_.RunOne();
  EXPECT_TRUE(ended[1].Wait().ok());
  EXPECT_TRUE(next.Wait().ok());
  EXPECT_EQ(chat_.calls, 3);
}

TEST_F(ExecutorQueueTest, ServersBoundsHoldWhereTheServiceHasNone) {
  ServerOptions server;
  server.executor.max_waiting_calls = 1;
  server.executor.max_wait = absl::Nanoseconds(1);
  Start({}, server);
  Ended first, second;
  Say(&first);
  Say(&second);
  EXPECT_EQ(second.Wait().code(), absl::StatusCode::kResourceExhausted);
  executor_.RunOne();
  EXPECT_EQ(first.Wait().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(chat_.calls, 0);
}

TEST_F(ExecutorQueueTest, ServicesOwnBoundsComeFirst) {
  ServerOptions server;
  server.executor.max_waiting_calls = 1;
  server.executor.max_wait = absl::Nanoseconds(1);
  Start({.max_waiting_calls = 2, .max_wait = absl::Hours(1)}, server);
  Ended third, fourth;
  Say(&third);
  Say(&fourth);
  executor_.RunOne();
  executor_.RunOne();
  EXPECT_TRUE(third.Wait().ok());
  EXPECT_TRUE(fourth.Wait().ok());
}

TEST_F(ExecutorQueueTest, OneThatHasWaitedTooLongDoesNotRun) {
  Start({.max_wait = absl::Nanoseconds(1)});
  Ended ended;
  Say(&ended);
  executor_.RunOne();
  const absl::Status refused = ended.Wait();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  EXPECT_NE(refused.message().find("waited"), std::string::npos) << refused;
  EXPECT_EQ(chat_.calls, 0);
}

TEST_F(ExecutorQueueTest, BoundsAreThoseOfTheQueue) {
  constexpr call::Method kMethod("/a.B/C");
  const std::string peer = "h:1";
  call::Incoming incoming{&kMethod, &peer, &peer, /*deadline_ns=*/1000, /*received_ns=*/100, {}};
  ExecutorQueue queue(nullptr, 1, /*max_wait_ns=*/500);
  EXPECT_TRUE(queue.Enter(incoming).ok());
  EXPECT_EQ(queue.Enter(incoming).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(queue.Begin(incoming, 600).ok());
  EXPECT_TRUE(queue.Enter(incoming).ok()) << "the place is free";
  EXPECT_EQ(queue.Begin(incoming, 601).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(queue.Enter(incoming).ok());
  EXPECT_EQ(queue.Begin(incoming, 1000).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(queue.Enter(incoming).ok());
}

}  // namespace executor_queue_test
}  // namespace sluice
