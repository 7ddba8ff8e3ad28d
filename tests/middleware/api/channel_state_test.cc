// SPDX-License-Identifier: Apache-2.0
//
// Channels that connect in the background, and the state of their connection: asked, waited for, called back.
#include <gtest/gtest.h>

#include <atomic>
#include <coroutine>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "middleware/api/channel.h"
#include "middleware/api/state_change.h"
#include "middleware/api/task.h"
#include "tests/middleware/api/chat_service.h"
#include "tests/support/kept_log.h"
#include "transport/base/error.h"

namespace sluice {
namespace channel_state_test {

using testing_support::ChatClient;
using testing_support::ChatWorld;
using testing_support::FakeNetwork;
using testing_support::FakeStack;
using testing_support::Gate;
using testing_support::KeptLog;
using testing_support::Line;

class ChannelStateTest : public ChatWorld {
 protected:
  // The server is started by each test, and late.
  void SetUp() override {
    options_.connect_in_background = true;
    options_.backoff_max = absl::Milliseconds(20);
    options_.max_reconnect_attempts = 1'000'000;
    options_.log = log_;
    channel_ = ConnectInBackground();
    ASSERT_NE(channel_, nullptr);
  }
  std::shared_ptr<Channel> ConnectInBackground() {
    auto channel = Channel::ConnectOn(
        std::make_unique<FakeStack>(&network_, FakeNetwork::Options()), kAddress, options_);
    EXPECT_TRUE(channel.ok()) << channel.status();
    return channel.ok() ? *channel : nullptr;
  }
  void StartServer() {
    auto server = Server::CreateOn(
        std::make_unique<FakeStack>(&network_, FakeNetwork::Options(), &server_end_));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    ASSERT_TRUE(server_->Register(&chat_).ok());
    ASSERT_TRUE(server_->Listen(kAddress).ok());
  }
  absl::Status Say(bool wait_for_ready) {
    CallContext context(absl::Seconds(60));
    context.set_wait_for_ready(wait_for_ready);
    return client().Say(context, Text("hello")).status();
  }

  ChannelOptions options_;
  std::shared_ptr<KeptLog> log_ = std::make_shared<KeptLog>();
};

TEST_F(ChannelStateTest, ConnectReturnsBeforeThereIsAServer) {
  EXPECT_NE(channel_->connection_state(), ConnectionState::kUp);
  const absl::Status status = Say(/*wait_for_ready=*/false);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  const auto detail = base::DetailOf(status);
  ASSERT_TRUE(detail.has_value());
  EXPECT_TRUE(detail->retry_safe());
}

// The background thread took the thread that started calls for one that drives, and never polled.
TEST_F(ChannelStateTest, StartedCallsThatFailAtOnceDoNotPreventAReconnect) {
  options_.backoff_min = options_.backoff_max = absl::Milliseconds(100);
  channel_ = ConnectInBackground();
  StartServer();
  ASSERT_TRUE(Say(/*wait_for_ready=*/true).ok());
  server_.reset();
  ASSERT_NE(channel_->WaitForStateChange(ConnectionState::kUp, absl::InfiniteDuration()),
            ConnectionState::kUp);
  StartServer();
  const ChatClient chat = client();
  absl::Status ended = absl::UnavailableError("");
  while (!ended.ok()) {
    CallContext context(absl::Seconds(60));
    const Line line = Text("hello");
    Line reply;
    std::atomic<bool> over{false};
    const absl::Status started =
        chat.StartSay(context, line, &reply, [&](const absl::Status& status) {
          ended = status;
          over.store(true);
        });
    while (started.ok() && !over.load()) std::this_thread::yield();
  }
}

TEST_F(ChannelStateTest, CallThatWaitsForReadyGetsTheServerThatComesLater) {
  absl::Status ended;
  std::thread caller([&] { ended = Say(/*wait_for_ready=*/true); });
  // It has failed to connect at least once by then.
  while (!log_->Has("connect failed"))
    channel_->WaitForStateChange(ConnectionState::kConnecting, absl::Milliseconds(1));
  StartServer();
  caller.join();
  EXPECT_TRUE(ended.ok()) << ended;
  EXPECT_EQ(channel_->connection_state(), ConnectionState::kUp);
}

TEST_F(ChannelStateTest, DeadlineOfACallThatWaitsNamesTheReason) {
  while (!log_->Has("connect failed"))
    channel_->WaitForStateChange(ConnectionState::kConnecting, absl::Milliseconds(1));
  CallContext context(absl::Milliseconds(50));
  context.set_wait_for_ready(true);
  const absl::Status status = client().Say(context, Text("hello")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_NE(status.message().find("the channel was not connected"), absl::string_view::npos)
      << status;
  EXPECT_NE(status.message().find("connect to fake-host:7471 refused"), absl::string_view::npos)
      << status;
}

TEST_F(ChannelStateTest, NobodyElseHearsOfTheFirstFailureSoTheLogWarns) {
  while (!log_->Has("connect failed"))
    channel_->WaitForStateChange(ConnectionState::kConnecting, absl::Milliseconds(1));
  EXPECT_NE(log_->Lines().find("warning: connect failed"), std::string::npos) << log_->Lines();
}

TEST_F(ChannelStateTest, AddressThatIsNoneStillFailsAtOnce) {
  const auto channel = Channel::ConnectOn(
      std::make_unique<FakeStack>(&network_, FakeNetwork::Options()), "no address", options_);
  EXPECT_EQ(channel.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ChannelStateTest, WaitUntilConnectedSaysWhyNotAndThenThatItIs) {
  const absl::Status late = channel_->WaitUntilConnected(absl::Milliseconds(30));
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded) << late;
  StartServer();
  const absl::Status up = channel_->WaitUntilConnected(absl::Seconds(60));
  EXPECT_TRUE(up.ok()) << up;
  EXPECT_TRUE(channel_->WaitUntilConnected(absl::ZeroDuration()).ok());
  EXPECT_TRUE(Say(/*wait_for_ready=*/false).ok());
}

TEST_F(ChannelStateTest, WaitUntilConnectedWakesAChannelThatGaveUp) {
  options_.max_reconnect_attempts = 0;
  channel_ = ConnectInBackground();
  ConnectionState state = channel_->connection_state();
  while (state != ConnectionState::kIdle) {
    state = channel_->WaitForStateChange(state, absl::Seconds(60));
  }
  StartServer();
  EXPECT_TRUE(channel_->WaitUntilConnected(absl::Seconds(60)).ok());
}

TEST_F(ChannelStateTest, ChangesAreSeenByAllWhoWait) {
  StartServer();
  ASSERT_TRUE(channel_->WaitUntilConnected(absl::Seconds(60)).ok());
  EXPECT_EQ(channel_->WaitForStateChange(ConnectionState::kUp, absl::Milliseconds(1)),
            ConnectionState::kUp)
      << "the time is over";
  EXPECT_EQ(channel_->WaitForStateChange(ConnectionState::kIdle, absl::InfiniteDuration()),
            ConnectionState::kUp)
      << "it is another one already";
  ConnectionState seen[3] = {ConnectionState::kUp, ConnectionState::kUp, ConnectionState::kUp};
  std::thread waiters[3];
  for (int i = 0; i < 3; ++i) {
    waiters[i] = std::thread([this, &seen, i] {
      seen[i] = channel_->WaitForStateChange(ConnectionState::kUp, absl::Seconds(60));
    });
  }
  server_end_->Kill();
  for (std::thread& waiter : waiters) waiter.join();
  for (const ConnectionState state : seen) EXPECT_NE(state, ConnectionState::kUp);
}

TEST_F(ChannelStateTest, CallbackHearsOfChangesAndMayThrow) {
  Gate up;
  channel_->StartStateChange(ConnectionState::kUp, absl::Seconds(60),
                             [](ConnectionState) { throw std::runtime_error("at once"); });
  EXPECT_TRUE(log_->Has("exception"));
  // Until it is up, each callback starts the next.
  std::function<void(ConnectionState)> next = [&](ConnectionState now) {
    if (now == ConnectionState::kUp) return up.Open();
    channel_->StartStateChange(now, absl::Seconds(60), next);
  };
  channel_->StartStateChange(channel_->connection_state(), absl::Seconds(60), next);
  StartServer();
  up.Wait();
}

TEST_F(ChannelStateTest, CallbackHearsOfTheTimeThatIsOver) {
  StartServer();
  ASSERT_TRUE(channel_->WaitUntilConnected(absl::Seconds(60)).ok());
  Gate over;
  channel_->StartStateChange(ConnectionState::kUp, absl::Milliseconds(1), [&](ConnectionState now) {
    EXPECT_EQ(now, ConnectionState::kUp);
    // A callback can't wait, and is told so.
    EXPECT_EQ(channel_->WaitForStateChange(ConnectionState::kUp, absl::Seconds(60)),
              ConnectionState::kUp);
    over.Open();
  });
  over.Wait();
}

TEST_F(ChannelStateTest, TheChannelsEndIsAChange) {
  StartServer();
  ASSERT_TRUE(channel_->WaitUntilConnected(absl::Seconds(60)).ok());
  std::optional<ConnectionState> heard;
  channel_->StartStateChange(ConnectionState::kUp, absl::InfiniteDuration(),
                             [&heard](ConnectionState now) { heard = now; });
  channel_.reset();
  ASSERT_TRUE(heard.has_value());
  EXPECT_EQ(*heard, ConnectionState::kClosed);
}

TEST_F(ChannelStateTest, CallbackMayDropTheLastReference) {
  Gate ended;
  Channel* const channel = channel_.get();
  channel->StartStateChange(ConnectionState::kUp, absl::Seconds(60), [&](ConnectionState) {
    channel_.reset();
    ended.Open();
  });
  ended.Wait();
}

Task<absl::Status> AwaitUp(Channel* channel) {
  ConnectionState state = channel->connection_state();
  while (state != ConnectionState::kUp && state != ConnectionState::kClosed) {
    state = co_await StateChange(channel, state, absl::Seconds(60));
  }
  co_return state == ConnectionState::kUp ? absl::OkStatus() : absl::CancelledError("closed");
}

TEST_F(ChannelStateTest, CoroutineWaitsForChanges) {
  std::optional<absl::Status> ended;
  Gate over;
  Spawn(AwaitUp(channel_.get()), [&](absl::Status status) {
    ended = std::move(status);
    over.Open();
  });
  StartServer();
  over.Wait();
  EXPECT_TRUE(ended->ok()) << *ended;
}

// Owns the coroutine that it starts, so that it can be destroyed while it waits.
struct Started {
  struct promise_type {
    Started get_return_object() {
      return {std::coroutine_handle<promise_type>::from_promise(*this)};
    }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
  std::coroutine_handle<promise_type> handle;
};
Started AwaitOnce(Channel* channel, bool* went_on) {
  const ConnectionState seen = ConnectionState::kUp;
  co_await StateChange(channel, seen, absl::InfiniteDuration());
  *went_on = true;
}

TEST_F(ChannelStateTest, CoroutineThatIsDestroyedWhileItWaitsDoesNotGoOn) {
  options_.driving = Driving::kCaller;  // so that this thread is the one that drives
  channel_ = ConnectInBackground();
  StartServer();
  ASSERT_TRUE(channel_->WaitUntilConnected(absl::Seconds(60)).ok());
  bool went_on = false;
  const Started started = AwaitOnce(channel_.get(), &went_on);
  EXPECT_FALSE(went_on);
  started.handle.destroy();
  server_end_->Kill();
  EXPECT_NE(channel_->WaitForStateChange(ConnectionState::kUp, absl::Seconds(60)),
            ConnectionState::kUp);
  channel_.reset();
  EXPECT_FALSE(went_on);
}

}  // namespace channel_state_test
}  // namespace sluice
