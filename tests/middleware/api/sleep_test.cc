// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/sleep.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "middleware/api/run_on.h"
#include "middleware/api/thread_pool.h"
#include "tests/middleware/api/chat_service.h"
#include "tests/middleware/api/endings.h"

namespace sluice {
namespace sleep_test {

using testing_support::Begin;
using testing_support::ChatCoServiceBase;
using testing_support::ChatWorld;
using testing_support::FakeEndpoint;
using testing_support::FakeNetwork;
using testing_support::FakeStack;
using testing_support::Gate;
using testing_support::HomeOfTheTest;
using testing_support::Line;
using testing_support::ManualClock;

constexpr int64_t kSecond = 1'000'000'000;

class SleepTest : public ::testing::Test {
 protected:
  void Sleep(absl::Duration duration, std::stop_token stop = {}) {
    const auto sleep = [](absl::Duration time, std::stop_token token) -> Task<absl::Status> {
      co_return co_await sluice::SleepFor(time, token);
    };
    Spawn(
        sleep(duration, std::move(stop)), [this](absl::Status status) { ended_ = status; }, &home_);
  }
  void Advance(int64_t by_ns) {
    home_.clock.Advance(by_ns);
    home_.Run();
  }

  HomeOfTheTest home_;
  std::optional<absl::Status> ended_;
};

TEST_F(SleepTest, GoesOnWhenTheTimeIsOverAndNotBefore) {
  Sleep(absl::Seconds(10));
  Advance(10 * kSecond - 1);
  EXPECT_FALSE(ended_.has_value());
  Advance(kSecond / 1000);
  ASSERT_TRUE(ended_.has_value());
  EXPECT_TRUE(ended_->ok()) << *ended_;
}

TEST_F(SleepTest, NoTimeIsALaterPass) {
  for (const absl::Duration time : {absl::ZeroDuration(), -absl::InfiniteDuration()}) {
    ended_.reset();
    Sleep(time);
    EXPECT_FALSE(ended_.has_value());
    Advance(kSecond / 1000);
    EXPECT_TRUE(ended_.has_value() && ended_->ok());
  }
}

TEST_F(SleepTest, StopEndsEvenAnInfiniteOne) {
  std::stop_source stop;
  Sleep(absl::InfiniteDuration(), stop.get_token());
  Advance(1'000'000 * kSecond);
  EXPECT_FALSE(ended_.has_value());
  std::thread([&] { stop.request_stop(); }).join();
  EXPECT_FALSE(ended_.has_value()) << "it goes on at home";
  home_.Run();
  ASSERT_TRUE(ended_.has_value());
  EXPECT_EQ(ended_->code(), absl::StatusCode::kCancelled) << *ended_;
}

TEST_F(SleepTest, StopBeforeItDoesNotSleep) {
  std::stop_source stop;
  stop.request_stop();
  Sleep(absl::Seconds(10), stop.get_token());
  ASSERT_TRUE(ended_.has_value());
  EXPECT_EQ(ended_->code(), absl::StatusCode::kCancelled);
}

TEST_F(SleepTest, StopThatComesTooLateChangesNothing) {
  std::stop_source stop;
  Sleep(absl::Seconds(1), stop.get_token());
  home_.clock.Advance(2 * kSecond);
  stop.request_stop();  // posted, and the time is over when the home looks
  home_.Run();
  ASSERT_TRUE(ended_.has_value());
  EXPECT_TRUE(ended_->ok());
}

TEST_F(SleepTest, OneThatSleepsMayBeDestroyed) {
  const auto sleep = [](std::stop_token token) -> Task<void> {
    (void)co_await sluice::SleepFor(absl::Seconds(1), token);
    ADD_FAILURE() << "it was to be gone";
  };
  std::stop_source stop;
  { auto owned = Begin(&home_, sleep(stop.get_token())); }
  {
    auto owned = Begin(&home_, sleep(stop.get_token()));
    stop.request_stop();  // posted
  }
  Advance(2 * kSecond);
}

TEST_F(SleepTest, WithoutAHomeItIsRefused) {
  const auto sleep = []() -> Task<absl::Status> {
    co_return co_await sluice::SleepFor(absl::Seconds(1));
  };
  Spawn(sleep(), [this](absl::Status status) { ended_ = status; });
  ASSERT_TRUE(ended_.has_value());
  EXPECT_EQ(ended_->code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(ended_->message().find("has no home"), std::string::npos) << *ended_;
}

TEST_F(SleepTest, FromAnExecutorItComesHome) {
  ThreadPool pool(1);
  const auto sleep = [](Executor* executor) -> Task<absl::Status> {
    co_await RunOn(executor);
    co_return co_await sluice::SleepFor(absl::Seconds(1));
  };
  Spawn(
      sleep(&pool), [this](absl::Status status) { ended_ = status; }, &home_);
  home_.posted.Wait();
  home_.Run();
  EXPECT_FALSE(ended_.has_value());
  Advance(2 * kSecond);
  ASSERT_TRUE(ended_.has_value());
  EXPECT_TRUE(ended_->ok());
}

// ---- In a server

// The clock of a stack is the test's.
class ClockedStack final : public Stack {
 public:
  ClockedStack(FakeNetwork* network, ManualClock* clock) : stack_(network, {}), clock_(clock) {}
  base::Clock* clock() override { return clock_; }
  base::Random* random() override { return stack_.random(); }
  base::LogSink* log() override { return nullptr; }
  absl::StatusOr<std::unique_ptr<endpoint::Endpoint>> CreateEndpoint(
      const EndpointLimits& limits, const Authentication& authentication,
      const std::vector<Tenant>& tenants, base::LogSink* log, endpoint::Handler* handler) override {
    return stack_.CreateEndpoint(limits, authentication, tenants, log, handler);
  }
  const std::string& device_choice() const override { return stack_.device_choice(); }
  const verbs::CapabilityReport& capabilities() const override { return stack_.capabilities(); }

 private:
  FakeStack stack_;
  ManualClock* const clock_;
};

// Say() answers after `number` milliseconds.
class SlowService final : public ChatCoServiceBase {
 public:
  Task<absl::Status> Say(ServerContext&, const Line& request, Line* reply) override {
    sleeping.Open();
    const absl::Status slept = co_await sluice::SleepFor(absl::Milliseconds(request.number()));
    woken.Open();
    reply->set_text(request.text());
    co_return slept;
  }

  Gate sleeping, woken;
};

TEST(SleepInServerTest, TimeIsTheServers) {
  FakeNetwork network;
  ManualClock clock;
  SlowService service;
  ServerOptions server_options;
  server_options.driving = Driving::kCaller;
  auto server = Server::CreateOn(std::make_unique<ClockedStack>(&network, &clock), server_options);
  ASSERT_TRUE(server.ok()) << server.status();
  ASSERT_TRUE((*server)->Register(&service).ok());
  ASSERT_TRUE((*server)->Listen("fake-host:7471").ok());
  ChannelOptions options;
  options.driving = Driving::kCaller;
  std::atomic<bool> connected{false};
  std::shared_ptr<Channel> channel;
  std::thread connecting([&] {
    auto made = Channel::ConnectOn(std::make_unique<FakeStack>(&network, FakeNetwork::Options{}),
                                   "fake-host:7471", options);
    EXPECT_TRUE(made.ok()) << made.status();
    if (made.ok()) channel = *made;
    connected = true;
  });
  while (!connected) (*server)->Poll();
  connecting.join();
  ASSERT_NE(channel, nullptr);

  channel->Poll();  // this thread is its loop from now on
  CallContext context = CallContext::NoDeadline();
  Line request, reply;
  request.set_number(3'600'000);
  std::optional<absl::Status> ended;
  ASSERT_TRUE(testing_support::ChatClient(channel)
                  .StartSay(context, request, &reply,
                            [&ended](const absl::Status& status) { ended = status; })
                  .ok());
  const auto passes = [&](int count) {
    for (int i = 0; i < count; ++i) {
      (*server)->Poll();
      channel->Poll();
    }
  };
  while (!service.sleeping.open()) passes(1);
  clock.Advance(3599 * kSecond);
  passes(200);
  EXPECT_FALSE(service.woken.open());
  clock.Advance(2 * kSecond);
  while (!ended.has_value()) passes(1);
  EXPECT_TRUE(ended->ok()) << *ended;
  channel.reset();
}

using SleepAtTheEndTest = ChatWorld;

TEST_F(SleepAtTheEndTest, SleepGoesOnWhileTheServerEnds) {
  SlowService service;
  Start(&service);
  CallContext context(absl::Seconds(600));
  const Line request = Text("late", 20);
  Line reply;
  ASSERT_TRUE(client().StartSay(context, request, &reply, [](const absl::Status&) {}).ok());
  service.sleeping.Wait();
  server_.reset();  // closes it at once, and waits for its handlers
  EXPECT_TRUE(service.woken.open());
  TearDown();
}

}  // namespace sleep_test
}  // namespace sluice
