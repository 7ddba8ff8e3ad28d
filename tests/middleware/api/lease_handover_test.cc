// SPDX-License-Identifier: Apache-2.0
//
// Calls that a thread hands over to the thread that drives. No channel here has a server: calls wait for one.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "examples/echo/echo.sluice.h"
#include "middleware/api/client_call.h"
#include "middleware/api/runtime.h"
#include "tests/middleware/api/noticing.h"
#include "tests/support/fake_stack.h"

namespace sluice {
namespace lease_handover_test {

using examples::echo::EchoClient;
using examples::echo::SayReply;
using examples::echo::SayRequest;
using testing_support::FakeEndpoint;
using testing_support::FakeNetwork;
using testing_support::FakeStack;
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

class LeaseHandOverTest : public ::testing::Test {
 protected:
  std::unique_ptr<FakeStack> MakeStack() {
    return std::make_unique<FakeStack>(&network_, FakeNetwork::Options(), &end_);
  }
  std::shared_ptr<Channel> Connect(const std::shared_ptr<Runtime>& runtime = nullptr) {
    ChannelOptions options;
    options.connect_in_background = true;
    auto channel = runtime == nullptr ? Channel::ConnectOn(MakeStack(), "h:1", options)
                                      : Channel::ConnectIn(runtime, "h:1", options);
    EXPECT_TRUE(channel.ok()) << channel.status();
    return *std::move(channel);
  }
  // Lets another thread drive, and runs `meanwhile` while that thread is stuck in its condition.
  static void WhileAnotherDrives(Channel* channel, const std::function<void()>& meanwhile) {
    std::atomic<bool> drives{false};
    std::atomic<bool> over{false};
    std::thread driver([&] {
      channel->Drive(
          [&] {
            drives = true;
            while (!over) std::this_thread::yield();
            return true;
          },
          absl::InfiniteDuration());
    });
    while (!drives) std::this_thread::yield();
    meanwhile();
    over = true;
    driver.join();
  }

  FakeNetwork network_;
  FakeEndpoint* end_ = nullptr;
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
  std::atomic<bool> returned{false};
  // Each start makes another thread hand over the next call.
  std::function<void()> hand_over_next = [&] {
    if (returned || calls.size() == kMostCalls) return;
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
  EXPECT_GE(calls.size(), 1u);
  EXPECT_LT(calls.size(), kMostCalls) << "the start returned when there were no more calls";
  channel.reset();
  for (const auto& each : calls) EXPECT_EQ(each->ended, 1);
}

TEST_F(LeaseHandOverTest, ChannelThatLeavesItsRuntimeEndsWhatWasHandedOver) {
  RuntimeOptions options;
  options.driving = Driving::kCaller;
  auto runtime = Runtime::CreateOn(MakeStack(), options);
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  ChannelOptions not_shared;
  not_shared.connect_in_background = true;
  not_shared.share_connections = false;
  auto alone = Channel::ConnectIn(*runtime, "h:1", not_shared);
  ASSERT_TRUE(alone.ok()) << alone.status();
  std::shared_ptr<Channel> channels[] = {Connect(*runtime), Connect(*runtime), *std::move(alone)};
  Waiting calls[3][2];
  std::thread([&] {
    for (int k = 0; k < 2; ++k) {
      for (int i = 0; i < 3; ++i) {
        EXPECT_TRUE(calls[i][k].Start(channels[i].get(), request_).ok());
      }
    }
  }).join();
  // The first two share an engine, which stays with the second.
  for (const int leaves : {0, 2, 1}) {
    for (const Waiting& call : calls[leaves]) EXPECT_EQ(call.ended, 0);
    channels[leaves].reset();
    for (const Waiting& call : calls[leaves]) {
      EXPECT_EQ(call.ended, 1);
      EXPECT_FALSE(call.end.ok());
    }
  }
}

// Threads of all kinds at once: each call ends once.
TEST_F(LeaseHandOverTest, EachCallOfManyThreadsEndsOnce) {
  constexpr int kThreads = 4;
  constexpr int kCalls = 50;
  auto channel = Connect();
  std::vector<Waiting> calls(kThreads * kCalls);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int k = 0; k < kCalls; ++k) {
        EXPECT_TRUE(calls[i * kCalls + k].Start(channel.get(), request_).ok());
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
}

}  // namespace lease_handover_test
}  // namespace sluice
