// SPDX-License-Identifier: Apache-2.0
//
// Server::Wait(), and the signals it waits for.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "middleware/api/end_signals.h"
#include "middleware/api/server.h"
#include "tests/middleware/api/chat_service.h"

namespace sluice {
namespace server_wait_test {

using testing_support::ChatWorld;
using testing_support::Line;

// Signals that come while it is there wait until a thread lets them through, as in programs with EndSignals.
class Blocked {
 public:
  Blocked() {
    pthread_sigmask(SIG_SETMASK, nullptr, &before_);
    sigset_t all = before_;
    for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2}) sigaddset(&all, number);
    pthread_sigmask(SIG_SETMASK, &all, nullptr);
  }
  ~Blocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

void (*HandlerOf(int number))(int) {
  struct sigaction action = {};
  sigaction(number, nullptr, &action);
  return action.sa_handler;
}

class ServerWaitTest : public ChatWorld {
 protected:
  const Blocked blocked_;  // before the server's threads begin
};

TEST_F(ServerWaitTest, SignalDrains) {
  for (const int number : {SIGINT, SIGTERM}) {
    Start(&chat_);
    kill(getpid(), number);
    const absl::Status ended = server_->Wait();
    EXPECT_TRUE(ended.ok()) << ended;
    EXPECT_EQ(server_->drain_phase(), call::DrainPhase::kDrained);
    EXPECT_EQ(HandlerOf(number), SIG_DFL);
  }
}

TEST_F(ServerWaitTest, CallsUnderWayAreDrainedWithinTheGivenTime) {
  CallContext context(absl::Seconds(600));
  const Line request = Text("wait");
  Line reply;
  std::optional<absl::Status> ended;
  ASSERT_TRUE(client()
                  .StartSay(context, request, &reply,
                            [&ended](const absl::Status& status) { ended = status; })
                  .ok());
  chat_.waiting.Wait();
  kill(getpid(), SIGUSR1);
  // The call is cancelled after three quarters of the time; on a busy machine its end may take much of the rest.
  const absl::Status waited =
      server_->Wait({.signals = {SIGUSR1}, .drain_timeout = absl::Seconds(4)});
  EXPECT_TRUE(waited.ok()) << waited;
  DriveUntil([&] { return ended.has_value(); });
  EXPECT_EQ(ended->code(), absl::StatusCode::kUnavailable) << *ended;
}

TEST_F(ServerWaitTest, EndsWithTheServer) {
  std::thread one([&] { EXPECT_TRUE(server_->Wait().ok()); });
  std::thread two([&] { EXPECT_TRUE(server_->Wait({.signals = {}}).ok()); });
  EXPECT_TRUE(server_->Shutdown(absl::Seconds(60)).ok());
  one.join();
  two.join();
  EXPECT_TRUE(server_->Wait().ok()) << "it has ended already";
}

TEST_F(ServerWaitTest, EndsWithADrainThatAHandlerBegins) {
  class Ender final : public testing_support::ChatServiceBase {
   public:
    absl::Status Say(ServerContext&, const Line&, Line*) override {
      refused = server->Wait();
      server->BeginDrain(absl::Seconds(60));
      return absl::OkStatus();
    }
    Server* server = nullptr;
    absl::Status refused;
  } ender;
  Start(&ender);
  ender.server = server_.get();
  CallContext context(absl::Seconds(60));
  EXPECT_TRUE(client().Say(context, Text("end")).ok());
  EXPECT_TRUE(server_->Wait().ok());
  EXPECT_EQ(ender.refused.code(), absl::StatusCode::kFailedPrecondition) << ender.refused;
  EXPECT_TRUE(server_->Drain(absl::Seconds(60)).ok()) << "waits for the one that has begun";
  TearDown();
}

TEST_F(ServerWaitTest, SeveralThreadsMayEndItAtOnce) {
  std::vector<std::thread> threads;
  threads.emplace_back([&] { EXPECT_TRUE(server_->Wait().ok()); });
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] { EXPECT_TRUE(server_->Drain(absl::Seconds(60)).ok()); });
    threads.emplace_back([&] { EXPECT_TRUE(server_->Shutdown(absl::Seconds(60)).ok()); });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(ServerWaitTest, WhatCanNotBeIsRefused) {
  for (const int number : {SIGKILL, SIGSTOP, 0, -1, 65}) {
    const absl::Status status = server_->Wait({.signals = {SIGUSR1, number}});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << number;
    EXPECT_NE(status.message().find(std::to_string(number)), std::string::npos) << status;
  }
  EXPECT_EQ(HandlerOf(SIGUSR1), SIG_DFL);

  auto silent = Server::CreateOn(std::make_unique<testing_support::FakeStack>(
      &network_, testing_support::FakeNetwork::Options{}));
  ASSERT_TRUE(silent.ok());
  EXPECT_EQ((*silent)->Wait().code(), absl::StatusCode::kFailedPrecondition);

  server_options_.driving = Driving::kCaller;
  auto driven = Server::CreateOn(std::make_unique<testing_support::FakeStack>(
                                     &network_, testing_support::FakeNetwork::Options{}),
                                 server_options_);
  ASSERT_TRUE(driven.ok());
  ASSERT_TRUE((*driven)->Listen("fake-host:1").ok());
  EXPECT_EQ((*driven)->Wait().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace server_wait_test
}  // namespace sluice
