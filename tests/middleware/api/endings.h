// SPDX-License-Identifier: Apache-2.0
//
// What tests of endings use: coroutines that their owner destroys, a home that runs what is posted when the test says so, and
// a log that says when a channel has let it go.
#ifndef SLUICE_TESTS_MIDDLEWARE_API_ENDINGS_H_
#define SLUICE_TESTS_MIDDLEWARE_API_ENDINGS_H_

#include <coroutine>
#include <cstdint>
#include <exception>
#include <memory>
#include <thread>
#include <utility>

#include "middleware/api/log.h"
#include "middleware/api/task.h"
#include "tests/middleware/api/chat_service.h"
#include "tests/support/manual_clock.h"
#include "transport/base/mailbox.h"
#include "transport/base/timer_wheel.h"

namespace sluice::testing_support {

// A coroutine with a home, which its owner destroys.
struct Owned {
  struct promise_type {
    template <typename... Rest>
    explicit promise_type(Home* the_home, Rest&&...) : home(the_home) {}
    Owned get_return_object() {
      return Owned(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
    Home* home;
  };
  explicit Owned(std::coroutine_handle<promise_type> the_handle) : handle(the_handle) {}
  Owned(Owned&& other) noexcept : handle(std::exchange(other.handle, nullptr)) {}
  ~Owned() {
    if (handle) handle.destroy();
  }

  std::coroutine_handle<promise_type> handle;
};

inline Owned Begin(Home*, Task<void> task) { co_await std::move(task); }

// The thread of the test is at home here, and runs what is posted when it likes.
class HomeOfTheTest final : public Home {
 public:
  void Post(base::MailNode* node) override {
    mailbox_.Post(node);
    posted.Open();
  }
  void Withdraw(base::MailNode* node) override { mailbox_.Remove(node); }
  bool IsHere() const override { return std::this_thread::get_id() == thread_; }
  void StartTimer(base::Timer* timer, int64_t after_ns) override {
    wheel_.Schedule(timer, clock.NowNs() + after_ns);
  }
  void StopTimer(base::Timer* timer) override { wheel_.Cancel(timer); }
  // What is posted, and the timers that are due; until there is nothing left.
  int Run() {
    int all = 0;
    for (int count = 1; count > 0; all += count) {
      count = wheel_.Advance(clock.NowNs()) + mailbox_.Run();
    }
    return all;
  }

  Gate posted;
  ManualClock clock;

 private:
  const std::thread::id thread_ = std::this_thread::get_id();
  base::Mailbox mailbox_;
  base::TimerWheel wheel_{clock.NowNs()};
};

// A log that opens `gone` when its channel releases it, one of the last steps in the end of a channel.
class LastWord final : public LogSink {
 public:
  explicit LastWord(std::shared_ptr<Gate> gone) : gone_(std::move(gone)) {}
  ~LastWord() override { gone_->Open(); }
  void Write(const LogRecord&) override {}

 private:
  const std::shared_ptr<Gate> gone_;
};

// A server, and channels whose end a test can await.
class EndingsWorld : public ChatWorld {
 protected:
  std::shared_ptr<Channel> ConnectWith(ChannelOptions options) {
    auto channel =
        Channel::ConnectOn(std::make_unique<FakeStack>(&network_, FakeNetwork::Options()), kAddress,
                           std::move(options));
    EXPECT_TRUE(channel.ok()) << channel.status();
    return *channel;
  }
  // Nothing of it moves but in this thread's calls.
  std::shared_ptr<Channel> ConnectLoop() {
    ChannelOptions options;
    options.driving = Driving::kCaller;
    options.log = std::make_shared<LastWord>(gone_);
    return ConnectWith(options);
  }
  // Coroutines that are destroyed while they wait: for a reply, and for a message.
  Task<void> SayInVain(const std::shared_ptr<Channel>& channel) {
    auto waiting = ChatClient(channel).CoSay(forever_, wait_);
    (void)co_await waiting;
    ADD_FAILURE() << "nobody was to go on";
  }
  Task<void> ReadInVain(const std::shared_ptr<Channel>& channel) {
    auto talk = ChatClient(channel).Talk(forever_);
    Line into;
    (void)co_await talk.CoRead(&into);
    ADD_FAILURE() << "nobody was to go on";
  }

  CallContext forever_ = CallContext::NoDeadline();
  const Line hello_ = Text("hello");
  const Line wait_ = Text("wait");
  Line answer_;
  const std::shared_ptr<Gate> gone_ =
      std::make_shared<Gate>();  // opened by ConnectLoop()'s channel
};

}  // namespace sluice::testing_support

#endif  // SLUICE_TESTS_MIDDLEWARE_API_ENDINGS_H_
