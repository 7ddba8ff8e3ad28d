// SPDX-License-Identifier: Apache-2.0
//
// Calls that a thread hands over to the thread that drives. No channel here has a server: calls wait for one.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "examples/echo/echo.sluice.h"
#include "middleware/api/client_call.h"
#include "middleware/api/resolver.h"
#include "middleware/api/runtime.h"
#include "tests/middleware/api/handover.h"
#include "tests/middleware/api/noticing.h"

namespace sluice {
namespace lease_handover_test {

using examples::echo::EchoClient;
using examples::echo::SayReply;
using examples::echo::SayRequest;
using testing_support::Noticing;

// A call that waits until its channel ends. The object lives longer than the call.
struct Waiting {
  explicit Waiting(absl::Duration timeout = absl::InfiniteDuration()) : context(timeout) {
    context.set_wait_for_ready(true);
  }
  absl::Status Start(Channel* channel, const google::protobuf::MessageLite& what) {
    return StartCall(channel, EchoClient::SayMethod(), context, what, &reply,
                     [this](const absl::Status& status) {
                       end = status;
                       ended.fetch_add(1);
                     });
  }

  CallContext context;
  SayReply reply;
  absl::Status end;
  std::atomic<int> ended{0};
};

Task<absl::Status> Say(Channel* channel, CallContext* context,
                       const google::protobuf::MessageLite* request) {
  co_return (co_await CallAwaiter<SayReply>(channel, EchoClient::SayMethod(), *context, *request))
      .status();
}

class LeaseHandOverTest : public testing_support::HandOverTest {
 protected:
  const SayRequest request_;
};

TEST_F(LeaseHandOverTest, StartDoesNotWaitForTheThreadThatDrives) {
  auto channel = Connect();
  Waiting calls[3];
  WhileAnotherDrives(channel.get(), [&] {
    for (Waiting& call : calls) EXPECT_TRUE(call.Start(channel.get(), request_).ok());
  });
  for (const Waiting& call : calls) EXPECT_EQ(call.ended, 0);
  channel.reset();
  for (const Waiting& call : calls) {
    EXPECT_EQ(call.ended, 1);
    EXPECT_TRUE(absl::IsCancelled(call.end)) << call.end;
  }
}

TEST_F(LeaseHandOverTest, CallThatCannotBeStartedEndsInItsCallback) {
  auto channel = Connect();
  Waiting call(absl::Nanoseconds(1));  // the deadline counts from the hand-over
  WhileAnotherDrives(channel.get(), [&] { EXPECT_TRUE(call.Start(channel.get(), request_).ok()); });
  while (call.ended == 0) std::this_thread::yield();
  EXPECT_TRUE(absl::IsDeadlineExceeded(call.end)) << call.end;
  channel.reset();
  EXPECT_EQ(call.ended, 1);
}

TEST_F(LeaseHandOverTest, ExceptionOfTheCallbackOfAnUnstartedCallIsDropped) {
  auto channel = Connect();
  CallContext context(absl::Nanoseconds(1));
  SayReply reply;
  std::atomic<bool> ran{false};
  WhileAnotherDrives(channel.get(), [&] {
    EXPECT_TRUE(StartCall(channel.get(), EchoClient::SayMethod(), context, request_, &reply,
                          [&](const absl::Status&) {
                            ran = true;
                            throw 1;
                          })
                    .ok());
  });
  while (!ran) std::this_thread::yield();
  channel.reset();
}

TEST_F(LeaseHandOverTest, ThreadThatReleasesTheLeaseIsNotHeldByThoseWhoHandOver) {
  constexpr size_t kMostCalls = 200;
  auto channel = Connect();
  std::vector<std::unique_ptr<Waiting>> calls;
  std::vector<std::unique_ptr<Noticing>> requests;
  const std::thread::id starter = std::this_thread::get_id();
  std::atomic<bool> returned{false};
  int by_starter = 0;
  // Each start makes another thread hand over the next call.
  std::function<void()> hand_over_next = [&] {
    if (returned || calls.size() == kMostCalls) return;
    if (std::this_thread::get_id() == starter) ++by_starter;
    std::thread([&] {
      calls.push_back(std::make_unique<Waiting>());
      requests.push_back(std::make_unique<Noticing>(hand_over_next));
      EXPECT_TRUE(calls.back()->Start(channel.get(), *requests.back()).ok());
    }).join();
  };
  const Noticing first(hand_over_next);
  Waiting call;
  EXPECT_TRUE(call.Start(channel.get(), first).ok());
  returned = true;
  (void)channel->counters();  // with the lease: the background thread starts no call now
  if (by_starter >
      0) {  // otherwise the background thread had the lease, and started the first call
    EXPECT_GE(calls.size(), 1u);
  }
  EXPECT_LE(by_starter, 2) << "its own call, and at most one batch of the others";
  channel.reset();
  for (const auto& each : calls) EXPECT_EQ(each->ended, 1);
}

TEST_F(LeaseHandOverTest, CallbackOfAnotherThreadsCallDoesNotRunInsideAStart) {
  auto channel = Connect();
  CallContext too_late(absl::Nanoseconds(1));
  SayReply reply;
  std::atomic<bool> ended{false};
  std::thread::id ended_on;
  const Noticing first([&] {
    std::thread([&] {
      EXPECT_TRUE(StartCall(channel.get(), EchoClient::SayMethod(), too_late, request_, &reply,
                            [&](const absl::Status& status) {
                              EXPECT_FALSE(status.ok());
                              ended_on = std::this_thread::get_id();
                              ended = true;
                            })
                      .ok());
    }).join();
  });
  Waiting call;
  EXPECT_TRUE(call.Start(channel.get(), first).ok());
  while (!ended) std::this_thread::yield();
  EXPECT_NE(ended_on, std::this_thread::get_id());
  channel.reset();  // ends the first call
}

TEST_F(LeaseHandOverTest, ChannelThatLeavesItsRuntimeEndsWhatWasHandedOver) {
  const auto runtime = MakeRuntime(Driving::kCaller);
  ChannelOptions alone;
  alone.share_connections = false;
  std::shared_ptr<Channel> channels[] = {Connect(runtime), Connect(runtime),
                                         Connect(runtime, alone)};
  Waiting calls[3][2];
  Waiting late(
      absl::Nanoseconds(1));  // cannot be started, and nobody drives before its channel leaves
  std::thread([&] {
    EXPECT_TRUE(late.Start(channels[0].get(), request_).ok());
    for (int k = 0; k < 2; ++k) {
      for (int i = 0; i < 3; ++i) {
        EXPECT_TRUE(calls[i][k].Start(channels[i].get(), request_).ok());
      }
    }
  }).join();
  EXPECT_EQ(late.ended, 0);
  // The first two share an engine, which stays with the second.
  for (const int leaves : {0, 2, 1}) {
    for (const Waiting& call : calls[leaves]) EXPECT_EQ(call.ended, 0);
    channels[leaves].reset();
    for (const Waiting& call : calls[leaves]) {
      EXPECT_EQ(call.ended, 1);
      EXPECT_FALSE(call.end.ok());
    }
    EXPECT_EQ(late.ended, 1);
  }
  EXPECT_TRUE(absl::IsDeadlineExceeded(late.end)) << late.end;
}

// A resolver that stops when it is let go.
class Lingering final : public Resolver {
 public:
  absl::Status Start(Listener listener) override { return listener({"h:1"}); }
  void Stop() override {
    stops = true;
    while (!let_go) std::this_thread::yield();
  }
  std::atomic<bool> stops{false};
  std::atomic<bool> let_go{false};
};

// The background thread ends another channel meanwhile, so nobody starts what a release has left.
TEST_F(LeaseHandOverTest, WhoeverTakesTheLeaseStartsFirstWhatWasHandedOver) {
  auto runtime = Runtime::CreateOn(MakeStack(), RuntimeOptions());
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  const auto resolver = std::make_shared<Lingering>();
  ChannelOptions options;
  options.connect_in_background = true;
  options.resolver = resolver;
  auto ends = Channel::ConnectIn(*runtime, "h:1", options);
  ASSERT_TRUE(ends.ok()) << ends.status();
  CallContext soon(absl::Milliseconds(1));
  soon.set_wait_for_ready(true);
  SayReply no_reply;
  EXPECT_TRUE(StartCall(ends->get(), EchoClient::SayMethod(), soon, request_, &no_reply,
                        [&](const absl::Status&) { ends->reset(); })
                  .ok());
  while (!resolver->stops) std::this_thread::yield();

  auto channel = Connect(*runtime);
  std::vector<int> order;
  Waiting calls[4];
  std::promise<void> handed_over;
  std::promise<void> released;
  // One thread makes the third and the fourth call: it hands over the third one, which the release leaves.
  const Noticing third([&] { order.push_back(3); });
  const Noticing fourth([&] { order.push_back(4); });
  std::thread thread;
  const Noticing second([&] {
    order.push_back(2);
    thread = std::thread([&] {
      EXPECT_TRUE(calls[2].Start(channel.get(), third).ok());
      handed_over.set_value();
      released.get_future().wait();
      EXPECT_TRUE(calls[3].Start(channel.get(), fourth).ok());
    });
    handed_over.get_future().wait();
  });
  const Noticing first([&] {
    order.push_back(1);
    std::thread([&] { EXPECT_TRUE(calls[1].Start(channel.get(), second).ok()); }).join();
  });
  EXPECT_TRUE(calls[0].Start(channel.get(), first).ok());
  EXPECT_EQ(order, (std::vector<int>{1, 2})) << "a release starts one batch";
  released.set_value();
  thread.join();
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3, 4}));
  resolver->let_go = true;
  options.resolver.reset();
  while (resolver.use_count() > 1) std::this_thread::yield();
  channel.reset();
  for (const Waiting& call : calls) EXPECT_EQ(call.ended, 1);
}

// Calls of several kinds at once. A synchronous call is not handed over: its thread waits. Its request ends it.
TEST_F(LeaseHandOverTest, CallsOfManyThreadsStartInTheOrderOfTheirThreadAndEndOnce) {
  constexpr int kThreads = 4;
  constexpr int kCalls = 60;
  auto channel = Connect();
  std::vector<Waiting> calls(kThreads * kCalls);
  std::vector<std::unique_ptr<Noticing>> requests;
  std::vector<int> order[kThreads];  // filled by the thread that drives
  std::mutex mutex;
  std::vector<std::stop_source> stops(kThreads * kCalls);
  for (int i = 0; i < kThreads * kCalls; ++i) {
    requests.push_back(std::make_unique<Noticing>([&, i] {
      {
        const std::lock_guard lock(mutex);
        order[i / kCalls].push_back(i % kCalls);
      }
      stops[i].request_stop();
    }));
  }
  std::stop_source stop;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int k = 0; k < kCalls; ++k) {
        Waiting& call = calls[i * kCalls + k];
        const Noticing& request = *requests[i * kCalls + k];
        if (k % 4 == 3) {
          call.context.set_stop_token(stops[i * kCalls + k].get_token());
          call.end = channel->Call(EchoClient::SayMethod(), call.context, request, &call.reply);
          ++call.ended;
          continue;
        }
        if (k % 4 == 2) {
          Spawn(Say(channel.get(), &call.context, &request), [&](const absl::Status& end) {
            call.end = end;
            ++call.ended;
          });
          continue;
        }
        if (k % 4 == 1) call.context.set_stop_token(stop.get_token());
        EXPECT_TRUE(call.Start(channel.get(), request).ok());
        if (k % 8 == i) (void)channel->counters();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  channel.reset();
  for (const Waiting& call : calls) {
    EXPECT_EQ(call.ended, 1);
    EXPECT_TRUE(absl::IsCancelled(call.end)) << call.end;
  }
  for (const std::vector<int>& each : order) {
    EXPECT_EQ(each.size(), size_t{kCalls});
    EXPECT_TRUE(std::is_sorted(each.begin(), each.end()));
  }
}

}  // namespace lease_handover_test
}  // namespace sluice
