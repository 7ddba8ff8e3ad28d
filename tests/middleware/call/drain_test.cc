// SPDX-License-Identifier: Apache-2.0
//
// A server's end in phases, seen from both engines, over the fake network and on a manual clock.
#include "middleware/call/drain.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <vector>

#include "middleware/call/client_engine.h"
#include "middleware/call/server_engine.h"
#include "proto/error_detail.pb.h"  // any message will do as request and reply
#include "tests/support/fake_endpoint.h"
#include "tests/support/manual_clock.h"
#include "transport/base/error.h"

namespace sluice::call {
namespace drain_test {

using testing_support::FakeEndpoint;
using testing_support::FakeNetwork;
using Text = ErrorDetail;

constexpr Method kHold("/test.Service/Hold");
constexpr Method kFollow("/test.Service/Follow", Streams::kServer);
constexpr int64_t kMs = 1'000'000;

struct Outcome {
  Text request;
  Text reply;
  int ended = 0;
  absl::Status status = absl::UnknownError("has not ended");
};

// Handlers that keep their calls: `obedient` ones finish when they are told that nobody waits.
struct Kept final : ServerCall::Observer {
  Kept(ServerCall* the_call, bool is_obedient) : call(the_call), obedient(is_obedient) {
    call->set_observer(this);
  }
  void OnCancelled() override {
    told = true;
    if (obedient) Finish();
  }
  void Finish() {
    if (call == nullptr) return;
    ServerCall* const finished = call;
    call = nullptr;
    finished->set_observer(nullptr);
    finished->Finish(told ? absl::CancelledError("the handler was told") : absl::OkStatus());
  }
  ServerCall* call;
  const bool obedient;
  bool told = false;
};

class DrainTest : public ::testing::Test {
 protected:
  DrainTest() {
    client_options_.host = "h";
    client_options_.port = 1;
    server_ = std::make_unique<ServerEngine>(ServerEngineOptions(), &clock_, nullptr);
    server_end_ = network_.Create(server_->handler(), &clock_, {.max_message_bytes = 4096});
    server_->Attach(server_end_.get());
    for (const Method* method : {&kHold, &kFollow}) {
      MethodHandler handler;
      handler.method = method;
      handler.start = [this](ServerCall* call) {
        kept_.push_back(std::make_unique<Kept>(call, obedient_));
      };
      handler.request = std::make_unique<Text>();
      handler.reply = std::make_unique<Text>();
      EXPECT_TRUE(server_->Register(std::move(handler)).ok());
    }
    EXPECT_TRUE(server_end_->Listen("h", 1).ok());
    client_ = std::make_unique<ClientEngine>(client_options_, &clock_, &random_);
    client_end_ = network_.Create(client_->handler(), &clock_, {.max_message_bytes = 4096});
    client_->Attach(client_end_.get());
    client_->Dial();
    Settle();
    EXPECT_EQ(client_->state(), ConnectionState::kUp);
  }
  ~DrainTest() override {
    server_->Close();
    for (auto& kept : kept_) kept->Finish();
    client_->Close();
  }

  void Settle() {
    for (int quiet = 0; quiet < 40;) {
      const int done = client_->Poll() + server_->Poll();
      quiet = done > 0 ? 0 : quiet + 1;
    }
  }
  void Advance(int64_t ns) {
    clock_.Advance(ns);
    Settle();
  }
  // 75 ms to end by themselves, 25 more after they were cancelled.
  void StartDrain() {
    const int64_t now_ns = clock_.NowNs();
    server_->StartDrain(now_ns + 75 * kMs, now_ns + 100 * kMs);
  }
  DrainPhase phase() const { return server_->drain().phase(); }

  absl::Status Start(Outcome* outcome, const Method& method = kHold, bool wait_for_ready = false,
                     ClientStream* stream = nullptr) {
    CallSpec spec;
    spec.method = &method;
    spec.request = &outcome->request;
    spec.reply = &outcome->reply;
    spec.timeout_ns = 60'000 * kMs;
    spec.wait_for_ready = wait_for_ready;
    spec.stream = stream;
    spec.argument = outcome;
    spec.done = [](void* argument, const absl::Status& status) {
      auto* ended = static_cast<Outcome*>(argument);
      ++ended->ended;
      ended->status = status;
    };
    return client_->Start(spec);
  }

  testing_support::ManualClock clock_;
  base::SeededRandom random_{7};
  FakeNetwork network_;
  ClientEngineOptions client_options_;
  std::unique_ptr<ServerEngine> server_;
  std::unique_ptr<FakeEndpoint> server_end_;
  std::unique_ptr<ClientEngine> client_;
  std::unique_ptr<FakeEndpoint> client_end_;
  std::deque<Outcome> outcomes_;  // outlive the calls
  ClientStream stream_;
  std::vector<std::unique_ptr<Kept>> kept_;
  bool obedient_ = true;
};

TEST_F(DrainTest, WithNothingUnderWayItIsOverWhenItsPeersHaveAnswered) {
  StartDrain();
  EXPECT_EQ(phase(), DrainPhase::kTelling);
  Settle();
  EXPECT_EQ(phase(), DrainPhase::kDrained);
}

// A goodbye before the peer's answer would lose it, and its caller could not know whether it ran.
TEST_F(DrainTest, CallThatCrossesTheNewsOfAnIdleServerIsAnswered) {
  StartDrain();
  Outcome& crossing = outcomes_.emplace_back();
  ASSERT_TRUE(Start(&crossing).ok());
  client_->Flush();
  while (!server_->drain().over()) {
    server_->Poll();
    client_->Poll();
  }
  server_->Close();
  Settle();
  EXPECT_EQ(crossing.status.code(), absl::StatusCode::kUnavailable) << crossing.status;
  EXPECT_TRUE(base::DetailOf(crossing.status)->retry_safe()) << crossing.status;
}

TEST_F(DrainTest, AnswerWaitsForCredit) {
  client_end_->set_fail_reserves(1);
  StartDrain();
  Settle();
  EXPECT_EQ(phase(), DrainPhase::kDrained);
}

TEST_F(DrainTest, SilentPeerIsNotWaitedForWhenCallsAreCancelled) {
  StartDrain();
  const auto serve = [this] {
    for (int pass = 0; pass < 100; ++pass) server_->Poll();
  };
  serve();
  EXPECT_EQ(phase(), DrainPhase::kTelling) << "the client does not poll";
  clock_.Advance(74 * kMs);
  serve();
  EXPECT_EQ(phase(), DrainPhase::kTelling);
  clock_.Advance(1 * kMs);
  serve();
  EXPECT_EQ(phase(), DrainPhase::kDrained);
}

TEST_F(DrainTest, CallsUnderWayEndByThemselvesAndNewOnesAreRefusedByTheCaller) {
  Outcome& old = outcomes_.emplace_back();
  ASSERT_TRUE(Start(&old).ok());
  Settle();
  StartDrain();
  Settle();
  EXPECT_EQ(phase(), DrainPhase::kWaiting);
  EXPECT_EQ(client_->state(), ConnectionState::kDraining);
  Outcome& fresh = outcomes_.emplace_back();
  const absl::Status refused = Start(&fresh);
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(base::DetailOf(refused)->retry_safe());
  EXPECT_NE(refused.message().find("draining"), std::string::npos) << refused;
  EXPECT_EQ(server_->counters().refused_draining, 0u) << "it was told, and did not ask";

  ASSERT_EQ(kept_.size(), 1u);
  kept_[0]->Finish();
  Settle();
  EXPECT_TRUE(old.status.ok()) << old.status;
  EXPECT_EQ(phase(), DrainPhase::kDrained);
}

TEST_F(DrainTest, CallThatCrossesTheNewsIsRefusedAndHasNotRun) {
  Outcome& held = outcomes_.emplace_back();
  ASSERT_TRUE(Start(&held).ok());
  Settle();
  StartDrain();
  Outcome& crossing = outcomes_.emplace_back();
  ASSERT_TRUE(Start(&crossing).ok()) << "it has not heard of it";
  client_->Flush();
  Settle();
  EXPECT_EQ(crossing.ended, 1);
  EXPECT_EQ(crossing.status.code(), absl::StatusCode::kUnavailable) << crossing.status;
  EXPECT_TRUE(base::DetailOf(crossing.status)->retry_safe());
  EXPECT_EQ(kept_.size(), 1u) << "no handler saw it";
  EXPECT_EQ(server_->counters().refused_draining, 1u);
}

TEST_F(DrainTest, CallThatWaitsForReadyWaitsForTheSuccessor) {
  Outcome& held = outcomes_.emplace_back();
  ASSERT_TRUE(Start(&held).ok());
  Settle();
  StartDrain();
  Settle();
  Outcome& patient = outcomes_.emplace_back();
  ASSERT_TRUE(Start(&patient, kHold, /*wait_for_ready=*/true).ok());
  Settle();
  EXPECT_EQ(patient.ended, 0);
  EXPECT_EQ(kept_.size(), 1u);
}

TEST_F(DrainTest, ConnectionThatComesLateIsToldToo) {
  Outcome& held = outcomes_.emplace_back();
  ASSERT_TRUE(Start(&held).ok());
  Settle();
  StartDrain();
  ClientEngine late(client_options_, &clock_, &random_);
  auto end = network_.Create(late.handler(), &clock_, {.max_message_bytes = 4096});
  late.Attach(end.get());
  late.Dial();
  for (int pass = 0; pass < 100; ++pass) {
    server_->Poll();
    late.Poll();
  }
  EXPECT_EQ(late.state(), ConnectionState::kDraining);
  late.Close();
}

TEST_F(DrainTest, SlowCallIsCancelledAndItsCallerHearsUnavailable) {
  Outcome& slow = outcomes_.emplace_back();
  ASSERT_TRUE(Start(&slow).ok());
  Settle();
  StartDrain();
  Advance(74 * kMs);
  EXPECT_EQ(phase(), DrainPhase::kWaiting);
  EXPECT_FALSE(kept_[0]->told);
  Advance(1 * kMs);
  EXPECT_TRUE(kept_[0]->told);
  EXPECT_EQ(phase(), DrainPhase::kDrained);
  EXPECT_EQ(slow.status.code(), absl::StatusCode::kUnavailable) << slow.status;
  EXPECT_FALSE(base::DetailOf(slow.status)->retry_safe()) << "it has run";
}

TEST_F(DrainTest, StuckHandlerIsLeftAtTheDeadline) {
  obedient_ = false;
  Outcome& stuck = outcomes_.emplace_back();
  ASSERT_TRUE(Start(&stuck).ok());
  Settle();
  StartDrain();
  Advance(75 * kMs);
  EXPECT_EQ(phase(), DrainPhase::kCancelling);
  Advance(24 * kMs);
  EXPECT_EQ(phase(), DrainPhase::kCancelling);
  Advance(1 * kMs);
  EXPECT_EQ(phase(), DrainPhase::kOverdue);
}

// It reads nothing, so its handler waits for room that never comes.
TEST_F(DrainTest, StuckStreamIsCancelled) {
  Outcome& follower = outcomes_.emplace_back();
  ASSERT_TRUE(Start(&follower, kFollow, false, &stream_).ok());
  Settle();
  ASSERT_EQ(kept_.size(), 1u);
  absl::Status written;
  while (written.ok()) written = kept_[0]->call->Write(Text());
  EXPECT_EQ(written.code(), absl::StatusCode::kResourceExhausted);
  Settle();
  StartDrain();
  Advance(74 * kMs);
  EXPECT_EQ(phase(), DrainPhase::kWaiting);
  Advance(1 * kMs);
  EXPECT_EQ(phase(), DrainPhase::kDrained);
  EXPECT_EQ(follower.status.code(), absl::StatusCode::kUnavailable) << follower.status;
}

// It is there, and takes nothing: no credit comes back, so that neither the news nor a reply leaves.
TEST_F(DrainTest, VanishedPeerIsGivenUpAtTheDeadline) {
  Outcome& outcome = outcomes_.emplace_back();
  ASSERT_TRUE(Start(&outcome).ok());
  Settle();
  server_end_->set_fail_reserves(1 << 20);
  StartDrain();
  for (int pass = 0; pass < 100; ++pass) server_->Poll();
  EXPECT_EQ(phase(), DrainPhase::kTelling);
  kept_[0]->Finish();
  clock_.Advance(75 * kMs);
  for (int pass = 0; pass < 100; ++pass) server_->Poll();
  EXPECT_EQ(phase(), DrainPhase::kCancelling);
  clock_.Advance(25 * kMs);
  for (int pass = 0; pass < 100; ++pass) server_->Poll();
  EXPECT_EQ(phase(), DrainPhase::kOverdue);
}

TEST_F(DrainTest, PeerThatDiesIsNotWaitedFor) {
  Outcome& outcome = outcomes_.emplace_back();
  ASSERT_TRUE(Start(&outcome).ok());
  Settle();
  StartDrain();
  EXPECT_NE(phase(), DrainPhase::kDrained);
  client_end_->Kill();
  for (int pass = 0; pass < 100; ++pass) server_->Poll();
  EXPECT_EQ(phase(), DrainPhase::kDrained) << "its handler was told, and ended";
}

TEST(DrainPhaseTest, OfSeveralPollersIsTheEarliestUntilAllHaveEnded) {
  using P = DrainPhase;
  const auto of = [](std::vector<P> phases) { return PhaseOfAll(phases); };
  EXPECT_EQ(of({P::kTelling}), P::kTelling);
  EXPECT_EQ(of({P::kDrained, P::kServing}), P::kServing);
  EXPECT_EQ(of({P::kDrained, P::kWaiting, P::kTelling}), P::kTelling);
  EXPECT_EQ(of({P::kOverdue, P::kCancelling}), P::kCancelling);
  EXPECT_EQ(of({P::kDrained, P::kDrained}), P::kDrained);
  EXPECT_EQ(of({P::kDrained, P::kOverdue, P::kDrained}), P::kOverdue);
}

TEST_F(DrainTest, SleepEndsWhenAPhaseDoes) {
  obedient_ = false;
  Outcome& outcome = outcomes_.emplace_back();
  ASSERT_TRUE(Start(&outcome).ok());
  Settle();
  StartDrain();
  EXPECT_LE(server_->SleepLimitNs(), 75 * kMs);
  EXPECT_GE(server_->SleepLimitNs(), 0);
  Advance(75 * kMs);
  EXPECT_LE(server_->SleepLimitNs(), 25 * kMs);
}

}  // namespace drain_test
}  // namespace sluice::call
