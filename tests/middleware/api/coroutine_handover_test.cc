// SPDX-License-Identifier: Apache-2.0
//
// Calls that another thread may cancel, handed over to the thread that drives: coroutines, stop tokens, interceptors, and calls with a
// CallControl. No channel here has a server: calls wait for one.
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "examples/echo/echo.sluice.h"
#include "middleware/api/channel_keep.h"
#include "middleware/api/client_call.h"
#include "middleware/api/interceptor.h"
#include "middleware/api/run_on.h"
#include "middleware/api/thread_pool.h"
#include "tests/middleware/api/endings.h"
#include "tests/middleware/api/handover.h"
#include "tests/middleware/api/noticing.h"

namespace sluice {
namespace coroutine_handover_test {

using examples::echo::EchoClient;
using examples::echo::SayReply;
using examples::echo::SayRequest;
using testing_support::Begin;
using testing_support::Controlled;
using testing_support::HomeOfTheTest;
using testing_support::Noticing;
using testing_support::Owned;

class CoroutineHandOverTest : public testing_support::HandOverTest {
 protected:
  CoroutineHandOverTest() { forever_.set_wait_for_ready(true); }

  Task<void> Say(Channel* channel, CallContext* context,
                 const google::protobuf::MessageLite* request, std::optional<absl::Status>* end) {
    CallAwaiter<SayReply> call(channel, EchoClient::SayMethod(), *context, *request);
    *end = (co_await call).status();
  }
  Task<void> SayInVain(Channel* channel, CallContext* context,
                       const google::protobuf::MessageLite* request) {
    CallAwaiter<SayReply> call(channel, EchoClient::SayMethod(), *context, *request);
    (void)co_await call;
    ADD_FAILURE() << "no thread was to resume it";
  }

  CallContext forever_ = CallContext::NoDeadline();
  const SayRequest request_;
};

// ---- The start does not wait

TEST_F(CoroutineHandOverTest, CoAwaitOnAnExecutorDoesNotWaitForTheThreadThatDrives) {
  auto channel = Connect();
  ThreadPool pool(1);
  const auto say = [&]() -> Task<absl::Status> {
    co_await RunOn(&pool);
    CallAwaiter<SayReply> call(channel.get(), EchoClient::SayMethod(), forever_, request_);
    co_return (co_await call).status();
  };
  std::optional<absl::Status> end;
  WhileAnotherDrives(channel.get(), [&] {
    std::promise<void> suspended;
    Spawn(say(), [&](absl::Status status) { end = std::move(status); });
    pool.Run([&] { suspended.set_value(); });  // its only thread does that after the co_await
    suspended.get_future().wait();
  });
  EXPECT_FALSE(end.has_value());
  channel.reset();
  ASSERT_TRUE(end.has_value());
  EXPECT_TRUE(absl::IsCancelled(*end)) << *end;
}

TEST_F(CoroutineHandOverTest, NoKindOfCallWaitsForTheThreadThatDrives) {
  class Passing final : public ClientInterceptor {};
  ChannelOptions options;
  options.interceptors = {std::make_shared<Passing>()};
  for (const bool intercepted : {false, true}) {
    auto channel = intercepted ? Connect(nullptr, options) : Connect();
    std::stop_source stop;
    CallContext stoppable = forever_;
    stoppable.set_stop_token(stop.get_token());
    SayReply reply;
    std::atomic<int> ended{0};
    Controlled call;
    WhileAnotherDrives(channel.get(), [&] {
      for (CallContext* context : {&stoppable, &forever_}) {
        EXPECT_TRUE(StartCall(channel.get(), EchoClient::SayMethod(), *context, request_, &reply,
                              [&](const absl::Status&) { ++ended; })
                        .ok());
      }
      EXPECT_TRUE(call.Start(channel.get(), request_).ok());
      EXPECT_EQ(call.control.call_id, 0u);
    });
    EXPECT_EQ(ended + call.ended, 0);
    channel.reset();
    EXPECT_EQ(ended, 2);
    EXPECT_EQ(call.ended, 1);
  }
}

// The thread that drives the loop is the thread of the test, so the other thread hands over all calls but the last one.
TEST_F(CoroutineHandOverTest, CallsOfAllKindsStartInTheOrderOfTheirThread) {
  auto channel = ConnectLoop();
  HomeOfTheTest home;
  std::vector<int> order;
  std::stop_source stop, stop_last;
  std::deque<Noticing> requests;
  for (int i = 0; i < 6; ++i) {
    requests.emplace_back([&order, &stop_last, i] {
      order.push_back(i);
      if (i == 5) stop_last.request_stop();  // ends this call, so that its thread returns
    });
  }
  CallContext stoppable = forever_;
  stoppable.set_stop_token(stop.get_token());
  CallContext last = forever_;
  last.set_stop_token(stop_last.get_token());
  SayReply replies[4];
  Controlled call;
  std::atomic<bool> over{false};
  std::optional<Owned> coroutine;
  std::thread thread([&] {
    Channel* const to = channel.get();
    const Method& say = EchoClient::SayMethod();
    EXPECT_TRUE(StartCall(to, say, forever_, requests[0], &replies[0], [](const auto&) {}).ok());
    EXPECT_TRUE(call.Start(to, requests[1]).ok());
    coroutine.emplace(Begin(&home, SayInVain(to, &forever_, &requests[2])));
    EXPECT_TRUE(StartCall(to, say, stoppable, requests[3], &replies[1], [](const auto&) {}).ok());
    EXPECT_TRUE(StartCall(to, say, forever_, requests[4], &replies[2], [](const auto&) {}).ok());
    EXPECT_TRUE(absl::IsCancelled(to->Call(say, last, requests[5], &replies[3])));
    over = true;
  });
  while (!over) channel->Poll();
  thread.join();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4, 5}));
  coroutine.reset();
  channel.reset();
}

// ---- Cancelling a call that was not started

TEST_F(CoroutineHandOverTest, StopBeforeTheStartCancelsTheCallOnce) {
  auto channel = Connect();
  std::stop_source stop;
  CallContext stoppable = forever_;
  stoppable.set_stop_token(stop.get_token());
  SayReply reply;
  std::atomic<int> ended{0};
  absl::Status end;
  std::atomic<int> resumed{0};
  absl::Status end_of_coroutine;
  const auto say = [&]() -> Task<absl::Status> {
    CallAwaiter<SayReply> call(channel.get(), EchoClient::SayMethod(), stoppable, request_);
    co_return (co_await call).status();
  };
  WhileAnotherDrives(channel.get(), [&] {
    EXPECT_TRUE(StartCall(channel.get(), EchoClient::SayMethod(), stoppable, request_, &reply,
                          [&](const absl::Status& status) {
                            end = status;
                            ++ended;
                          })
                    .ok());
    Spawn(say(), [&](absl::Status status) {
      end_of_coroutine = std::move(status);
      ++resumed;
    });
    stop.request_stop();
    EXPECT_EQ(ended + resumed, 0);
  });
  while (ended == 0 || resumed == 0) std::this_thread::yield();
  channel.reset();
  EXPECT_EQ(ended, 1);
  EXPECT_EQ(resumed, 1);
  EXPECT_TRUE(absl::IsCancelled(end)) << end;
  EXPECT_TRUE(absl::IsCancelled(end_of_coroutine)) << end_of_coroutine;
}

TEST_F(CoroutineHandOverTest, StopThatWasRequestedBeforeRefusesTheCallAtOnce) {
  auto channel = Connect();
  std::stop_source stop;
  stop.request_stop();
  CallContext stopped = forever_;
  stopped.set_stop_token(stop.get_token());
  SayReply reply;
  WhileAnotherDrives(channel.get(), [&] {
    const absl::Status refused =
        StartCall(channel.get(), EchoClient::SayMethod(), stopped, request_, &reply,
                  [](const absl::Status&) { ADD_FAILURE() << "the call was not started"; });
    EXPECT_TRUE(absl::IsCancelled(refused)) << refused;
  });
}

// The coroutines have no home. So the thread that drives may destroy them, and does it inside a callback.
TEST_F(CoroutineHandOverTest, ThreadThatDrivesDestroysACoroutineThatWasHandedOver) {
  auto channel = Connect();
  bool started = false;
  const Noticing request([&] { started = true; });
  std::optional<Owned> coroutine;
  WhileAnotherDrives(
      channel.get(),
      [&] { coroutine.emplace(Begin(nullptr, SayInVain(channel.get(), &forever_, &request))); },
      [&] { coroutine.reset(); });
  (void)channel->counters();
  channel.reset();
  EXPECT_FALSE(started);
}

TEST_F(CoroutineHandOverTest, CoroutineIsDestroyedAtHomeBeforeItsCallIsStarted) {
  auto channel = ConnectLoop();
  HomeOfTheTest home;
  bool started = false;
  const Noticing request([&] { started = true; });
  std::optional<Owned> coroutine;
  std::thread([&] {
    coroutine.emplace(Begin(&home, SayInVain(channel.get(), &forever_, &request)));
  }).join();
  coroutine.reset();
  channel->Poll();
  EXPECT_FALSE(started);
  EXPECT_EQ(home.Run(), 0);
}

TEST_F(CoroutineHandOverTest, CancelAndWaitEndsACallBeforeItsStart) {
  auto channel = ConnectLoop();
  bool started = false;
  const Noticing request([&] { started = true; });
  Controlled call;
  std::thread([&] { EXPECT_TRUE(call.Start(channel.get(), request).ok()); }).join();
  channel->CancelAndWait(&call.control);
  EXPECT_EQ(call.ended, 1);
  EXPECT_TRUE(absl::IsCancelled(call.end)) << call.end;
  channel->Poll();
  EXPECT_EQ(call.ended, 1);
  EXPECT_FALSE(started);
}

TEST_F(CoroutineHandOverTest, CancelAndWaitInACallbackEndsACallBeforeItsStart) {
  auto channel = ConnectLoop();
  bool started = false;
  const Noticing request([&] { started = true; });
  Controlled call;
  std::stop_source stop;
  CallContext stoppable = forever_;
  stoppable.set_stop_token(stop.get_token());
  SayReply reply;
  bool ended = false;
  EXPECT_TRUE(
      StartCall(channel.get(), EchoClient::SayMethod(), stoppable, request_, &reply,
                [&](const absl::Status&) {
                  std::thread([&] { EXPECT_TRUE(call.Start(channel.get(), request).ok()); }).join();
                  channel->CancelAndWait(&call.control);
                  EXPECT_EQ(call.ended, 1);
                  EXPECT_TRUE(absl::IsCancelled(call.end)) << call.end;
                  ended = true;
                })
          .ok());
  stop.request_stop();
  EXPECT_TRUE(ended);
  channel->Poll();
  EXPECT_EQ(call.ended, 1);
  EXPECT_FALSE(started);
}

// The calls cannot be started, and their callbacks wait for a Poll(). The first callback cancels the second call.
TEST_F(CoroutineHandOverTest, CancelAndWaitEndsACallThatCouldNotBeStarted) {
  auto channel = ConnectLoop();
  Controlled first(absl::Nanoseconds(1)), second(absl::Nanoseconds(1)), third(absl::Nanoseconds(1));
  std::thread([&] {
    for (Controlled* call : {&first, &second, &third}) {
      EXPECT_TRUE(call->Start(channel.get(), request_).ok());
    }
  }).join();
  (void)channel->counters();  // tries to start them
  EXPECT_EQ(first.ended + second.ended + third.ended, 0);
  channel->CancelAndWait(&third.control);
  EXPECT_EQ(third.ended, 1);
  EXPECT_TRUE(absl::IsDeadlineExceeded(third.end)) << third.end;
  first.at_end = [&] {
    channel->CancelAndWait(&first.control);  // this very call: does not wait
    channel->CancelAndWait(&second.control);
    EXPECT_EQ(second.ended, 1);
  };
  channel->Poll();
  for (const Controlled* call : {&first, &second, &third}) {
    EXPECT_EQ(call->ended, 1);
    EXPECT_TRUE(absl::IsDeadlineExceeded(call->end)) << call->end;
  }
}

TEST_F(CoroutineHandOverTest, CoroutineWhoseCallCouldNotBeStartedIsDestroyedOrGoesOn) {
  auto channel = ConnectLoop();
  HomeOfTheTest home;
  CallContext too_late(absl::Nanoseconds(1));
  std::optional<absl::Status> end;
  std::optional<Owned> goes_on, destroyed_before, destroyed_after;
  std::thread([&] {
    goes_on.emplace(Begin(&home, Say(channel.get(), &too_late, &request_, &end)));
    destroyed_before.emplace(Begin(&home, SayInVain(channel.get(), &too_late, &request_)));
    destroyed_after.emplace(Begin(&home, SayInVain(channel.get(), &too_late, &request_)));
  }).join();
  (void)channel->counters();
  destroyed_before.reset();
  channel->Poll();
  destroyed_after.reset();  // its resumption was posted
  EXPECT_FALSE(end.has_value());
  EXPECT_EQ(home.Run(), 1);
  ASSERT_TRUE(end.has_value());
  EXPECT_TRUE(absl::IsDeadlineExceeded(*end)) << *end;
}

// The other thread hands its call over while the loop starts another call, and cancels it. Whether the cancellation comes before or after
// the start is left to chance.
TEST_F(CoroutineHandOverTest, AnotherThreadCancelsItsCallWhileTheLoopStartsCalls) {
  auto channel = ConnectLoop();
  for (int round = 0; round < 100; ++round) {
    Controlled call;
    std::atomic<bool> handed_over{false};
    std::atomic<bool> over{false};
    std::thread thread;
    const Noticing first([&] {
      thread = std::thread([&] {
        EXPECT_TRUE(call.Start(channel.get(), request_).ok());
        handed_over = true;
        channel->CancelAndWait(&call.control);
        EXPECT_EQ(call.ended, 1);
        over = true;
      });
      while (!handed_over) std::this_thread::yield();
      for (int yields = round; yields > 0; --yields) std::this_thread::yield();
    });
    Controlled before;
    std::thread([&] { EXPECT_TRUE(before.Start(channel.get(), first).ok()); }).join();
    while (!over) channel->Poll();
    thread.join();
    channel->CancelAndWait(&before.control);
    ASSERT_EQ(call.ended, 1);
    ASSERT_TRUE(absl::IsCancelled(call.end)) << call.end;
  }
}

// A race on purpose.
TEST_F(CoroutineHandOverTest, ThreadsCancelTheirCallsWhileOthersDrive) {
  constexpr int kThreads = 4;
  auto channel = Connect();
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int k = 0; k < 200; ++k) {
        Controlled call(k % 5 == i ? absl::Nanoseconds(1) : absl::InfiniteDuration());
        if (!call.Start(channel.get(), request_).ok()) continue;
        if (k % 3 == 0) (void)channel->counters();
        if (k % 7 == 0) channel->Drive([] { return true; }, absl::InfiniteDuration());
        channel->CancelAndWait(&call.control);
        ASSERT_EQ(call.ended, 1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// ---- Interceptors

TEST_F(CoroutineHandOverTest, InterceptorSeesTheEndOfACallThatCouldNotBeStarted) {
  struct Seeing final : ClientInterceptor {
    absl::Status OnCall(ClientCall&) override {
      called_on = std::this_thread::get_id();
      return absl::OkStatus();
    }
    void OnEnd(const ClientCall&, const absl::Status& status, absl::Duration) override {
      end = status;
      ended.fetch_add(1);
    }
    std::thread::id called_on;
    absl::Status end;
    std::atomic<int> ended{0};
  };
  const auto seeing = std::make_shared<Seeing>();
  ChannelOptions options;
  options.interceptors = {seeing};
  auto channel = Connect(nullptr, std::move(options));
  CallContext too_late(absl::Nanoseconds(1));
  SayReply reply;
  std::atomic<int> ended{0};
  WhileAnotherDrives(channel.get(), [&] {
    EXPECT_TRUE(StartCall(channel.get(), EchoClient::SayMethod(), too_late, request_, &reply,
                          [&](const absl::Status& status) {
                            EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
                            EXPECT_EQ(seeing->ended, 1) << "interceptors come first";
                            ++ended;
                          })
                    .ok());
    EXPECT_EQ(seeing->called_on, std::this_thread::get_id());
    EXPECT_EQ(seeing->ended, 0);
  });
  while (ended == 0) std::this_thread::yield();
  channel.reset();
  EXPECT_EQ(ended, 1);
  EXPECT_EQ(seeing->ended, 1);
  EXPECT_TRUE(absl::IsDeadlineExceeded(seeing->end)) << seeing->end;
}

TEST_F(CoroutineHandOverTest, ExceptionOfTheCallbackOfAnUnstartedCallIsDropped) {
  auto channel = ConnectLoop();
  Controlled call(absl::Nanoseconds(1));
  call.at_end = [] { throw 1; };
  std::thread([&] { EXPECT_TRUE(call.Start(channel.get(), request_).ok()); }).join();
  channel->Poll();
  EXPECT_EQ(call.ended, 1);
}

// ---- The end of a channel

TEST_F(CoroutineHandOverTest, ChannelThatLeavesItsRuntimeEndsCallsThatMayBeCancelled) {
  const auto runtime = MakeRuntime(Driving::kCaller);
  std::shared_ptr<Channel> channels[] = {Connect(runtime), Connect(runtime)};  // with one engine
  HomeOfTheTest home;
  Controlled calls[2];
  CallContext too_late(absl::Nanoseconds(1));
  std::optional<absl::Status> ends[2];
  std::optional<Owned> goes_on[2], destroyed[2];
  std::thread([&] {
    for (int i = 0; i < 2; ++i) {
      Channel* const channel = channels[i].get();
      CallContext* const context = i == 0 ? &too_late : &forever_;
      EXPECT_TRUE(calls[i].Start(channel, request_).ok());
      goes_on[i].emplace(Begin(&home, Say(channel, context, &request_, &ends[i])));
      destroyed[i].emplace(Begin(&home, SayInVain(channel, &too_late, &request_)));
    }
  }).join();
  (void)channels[1]->counters();  // tries to start them: those that are too late wait for a Poll()
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(calls[i].ended, 0);
    channels[i].reset();
    EXPECT_EQ(calls[i].ended, 1);
    EXPECT_TRUE(absl::IsCancelled(calls[i].end)) << calls[i].end;
    destroyed[i].reset();
  }
  EXPECT_EQ(home.Run(), 2);
  EXPECT_TRUE(absl::IsDeadlineExceeded(ends[0].value())) << *ends[0];
  EXPECT_TRUE(absl::IsCancelled(ends[1].value())) << *ends[1];
}

// Inside the callback of a call that the end of a channel ends, other calls of the channel are cancelled: there, and on another thread.
// If another channel uses the engine, Lease::Leave() ends the calls. Otherwise the passes do that in which the engine closes.
TEST_F(CoroutineHandOverTest, CancelAndWaitAtTheEndOfAChannelReturnsAfterTheCallback) {
  for (const bool alone : {false, true}) {
    const auto runtime = MakeRuntime(Driving::kCaller);
    auto channel = Connect(runtime);
    const auto other = alone ? nullptr : Connect(runtime);
    const internal::ChannelKeep kept(channel.get());
    const absl::Duration late = absl::Nanoseconds(1);
    Controlled calls[5] = {Controlled(late), Controlled(late), Controlled(late), Controlled(late),
                           Controlled()};
    Controlled& first = calls[0];
    Controlled& second = calls[1];
    Controlled& third = calls[2];
    Controlled& fourth = calls[3];
    Controlled& started = calls[4];
    std::thread([&] {
      for (Controlled& call : calls) EXPECT_TRUE(call.Start(channel.get(), request_).ok());
    }).join();
    (void)channel->counters();  // tries to start them
    std::thread thread, before;
    std::atomic<bool> cancels{false};
    std::atomic<bool> cancels_before{false};
    started.at_end = [&] {  // ends before the calls that could not be started
      before = std::thread([&] {
        cancels_before = true;
        kept->CancelAndWait(&fourth.control);
        EXPECT_EQ(fourth.ended, 1) << "it returned before the callback ran";
      });
      while (!cancels_before) std::this_thread::yield();
      for (int yields = 10'000; yields > 0; --yields) std::this_thread::yield();
    };
    first.at_end = [&] {
      EXPECT_EQ(third.ended, 0);
      kept->CancelAndWait(&second.control);
      EXPECT_EQ(second.ended, 1);
      thread = std::thread([&] {
        cancels = true;
        kept->CancelAndWait(&third.control);
        EXPECT_EQ(third.ended, 1) << "it returned before the callback ran";
      });
      while (!cancels) std::this_thread::yield();
      for (int yields = 10'000; yields > 0; --yields) std::this_thread::yield();
      EXPECT_EQ(third.ended, 0);
    };
    channel.reset();
    ASSERT_TRUE(thread.joinable() && before.joinable());
    thread.join();
    before.join();
    for (const Controlled& call : calls) EXPECT_EQ(call.ended, 1);
  }
}

// A race on purpose: the channel ends while other threads cancel calls that they have handed over.
TEST_F(CoroutineHandOverTest, ThreadsCancelTheirCallsWhileTheirChannelEnds) {
  constexpr int kThreads = 3;
  const auto runtime = MakeRuntime(Driving::kThreads);
  for (int round = 0; round < 60; ++round) {
    auto channel = round % 2 == 0 ? Connect(runtime) : Connect();
    std::vector<std::unique_ptr<internal::ChannelKeep>> keeps;
    std::vector<std::thread> threads;
    std::atomic<int> started{0};
    std::atomic<int> ends{0};
    for (int i = 0; i < kThreads; ++i) {
      keeps.push_back(std::make_unique<internal::ChannelKeep>(channel.get()));
      threads.emplace_back([&, i, to = keeps[i]->get()] {
        Controlled calls[2] = {Controlled(), Controlled(absl::Nanoseconds(i))};
        bool is_started[2];
        for (int k = 0; k < 2; ++k) is_started[k] = calls[k].Start(to, request_).ok();
        ++started;
        for (int yields = round % 20; yields > 0; --yields) std::this_thread::yield();
        for (int k = 0; k < 2; ++k) {
          if (!is_started[k]) continue;
          to->CancelAndWait(&calls[k].control);
          EXPECT_EQ(calls[k].ended, 1);
          ++ends;
        }
      });
    }
    while (started < kThreads) std::this_thread::yield();
    channel.reset();
    for (std::thread& thread : threads) thread.join();
    EXPECT_GE(ends, kThreads);
  }
}

}  // namespace coroutine_handover_test
}  // namespace sluice
