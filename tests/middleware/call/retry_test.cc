// SPDX-License-Identifier: Apache-2.0
//
// Calls that are tried again, and those that must not be.
#include "middleware/call/retry.h"

#include <vector>

#include "middleware/frame/frame.h"
#include "tests/middleware/call/cluster.h"

namespace sluice::call {
namespace retry_test {

class RetryTest : public Cluster {
 protected:
  Outcome& Started(const Method& method, int64_t timeout_ns = 60'000 * kMs) {
    Outcome& outcome = outcomes_.emplace_back();
    EXPECT_TRUE(Start(&outcome, method, timeout_ns).ok());
    Settle();
    return outcome;
  }
};

TEST_F(RetryTest, IdempotentCallThatFailedIsTriedElsewhere) {
  options_.balancing = Balancing::kRoundRobin;
  Connect(2);
  nodes_[0]->answer = absl::UnavailableError("not now");
  Outcome& outcome = Started(kAnyTimes);
  EXPECT_EQ(outcome.ended, 0) << "it has run: there is a pause";
  Advance(6 * kMs);
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(outcome.reply.syndrome(), 1u);
  EXPECT_EQ(nodes_[0]->attempts, std::vector<std::string>{""});
  EXPECT_EQ(nodes_[1]->attempts, std::vector<std::string>{"2"}) << "the server is told";
}

// What came beside the error of an attempt is no part of the reply that the next one gets.
TEST_F(RetryTest, MetadataOfAFailedAttemptIsForgotten) {
  Connect(1);
  Outcome& outcome = outcomes_.emplace_back();
  Beside beside;
  CallSpec spec;
  spec.method = &kHold;
  spec.request = &outcome.request;
  spec.reply = &outcome.reply;
  spec.timeout_ns = 60'000 * kMs;
  spec.reply_beside = &beside;
  spec.argument = &outcome;
  spec.done = [](void* argument, const absl::Status& status) {
    static_cast<Outcome*>(argument)->status = status;
  };
  ASSERT_TRUE(client_->Start(spec).ok());
  Settle();
  ASSERT_EQ(nodes_[0]->held.size(), 1u);
  nodes_[0]->held[0]->incoming().reply->metadata = "of the error";
  FinishHeld(0, absl::UnavailableError("not now"));
  Advance(6 * kMs);
  ASSERT_EQ(nodes_[0]->held.size(), 1u);
  FinishHeld(0);
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(beside.metadata, "");
}

TEST_F(RetryTest, OtherCallThatHasRunIsNotTriedAgain) {
  Connect(2);
  nodes_[0]->answer = absl::UnavailableError("not now");
  EXPECT_EQ(Started(kOnce).status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(nodes_[0]->attempts.size() + nodes_[1]->attempts.size(), 1u);
}

// retry_safe of a handler's error is about somebody else's call.
TEST_F(RetryTest, WordOfAHandlerThatItDidNotRunIsNotBelieved) {
  Connect(1);
  nodes_[0]->answer = base::Error(absl::StatusCode::kUnavailable, "my own server is down",
                                  {.layer = "test", .retry_safe = true});
  EXPECT_EQ(Started(kOnce).status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(nodes_[0]->attempts.size(), 1u);
}

TEST_F(RetryTest, OtherErrorsAreNotTriedAgain) {
  Connect(1);
  for (const auto code : {absl::StatusCode::kInternal, absl::StatusCode::kResourceExhausted,
                          absl::StatusCode::kAborted, absl::StatusCode::kDeadlineExceeded}) {
    nodes_[0]->attempts.clear();
    nodes_[0]->answer = absl::Status(code, "no");
    EXPECT_EQ(Started(kAnyTimes).status.code(), code);
    EXPECT_EQ(nodes_[0]->attempts.size(), 1u);
  }
}

TEST_F(RetryTest, AttemptsAreCountedAndEndWithTheLastError) {
  Connect(1);
  nodes_[0]->answer = absl::UnavailableError("never");
  Outcome& outcome = Started(kAnyTimes);
  Advance(6 * kMs);
  Advance(11 * kMs);
  EXPECT_EQ(outcome.ended, 1);
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(nodes_[0]->attempts, (std::vector<std::string>{"", "2", "3"}));
  EXPECT_EQ(client_->counters().retries, 2u);
}

TEST_F(RetryTest, PauseDoublesAndIsJittered) {
  RetryPolicy policy;
  policy.pause_min_ns = 8 * kMs;
  policy.pause_max_ns = 50 * kMs;
  bool varied = false;
  for (uint32_t attempt = 1; attempt < RetryPolicy::kMaxAttempts; ++attempt) {
    const int64_t longest = std::min<int64_t>(50 * kMs, 8 * kMs << (attempt - 1));
    const int64_t first = policy.Pause(attempt, &random_);
    for (int i = 0; i < 100; ++i) {
      const int64_t pause = policy.Pause(attempt, &random_);
      EXPECT_GE(pause, longest / 2);
      EXPECT_LE(pause, longest);
      varied |= pause != first;
    }
  }
  EXPECT_TRUE(varied);
}

TEST_F(RetryTest, DeadlineIsThatOfAllAttempts) {
  options_.retry.pause_min_ns = options_.retry.pause_max_ns = 20 * kMs;
  options_.retry.max_attempts = 16;
  Connect(1);
  nodes_[0]->answer = absl::UnavailableError("never");
  Outcome& outcome = Started(kAnyTimes, 50 * kMs);
  for (int i = 0; i < 60; ++i) Advance(1 * kMs);
  EXPECT_EQ(outcome.ended, 1);
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kUnavailable)
      << "no pause goes beyond it: the last error is worth more";
  EXPECT_GE(nodes_[0]->attempts.size(), 3u);
  EXPECT_LE(nodes_[0]->attempts.size(), 6u);
}

TEST_F(RetryTest, DeadlineInAPauseEndsTheCall) {
  options_.backoff_min_ns = options_.backoff_max_ns = 1000 * kMs;
  options_.retry.pause_min_ns = options_.retry.pause_max_ns = 20 * kMs;
  Connect(1);
  Outcome& outcome = outcomes_.emplace_back();
  ASSERT_TRUE(Start(&outcome, kHold, 50 * kMs, /*wait_for_ready=*/true).ok());
  Settle();
  KillServer(0);
  Settle();
  EXPECT_EQ(outcome.ended, 0);
  Advance(60 * kMs);
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kDeadlineExceeded) << outcome.status;
  EXPECT_FALSE(base::DetailOf(outcome.status)->retry_safe()) << "the first attempt may have run";
}

TEST_F(RetryTest, CancelInAPauseEndsTheCall) {
  Connect(1);
  nodes_[0]->answer = absl::UnavailableError("not now");
  Outcome& outcome = Started(kAnyTimes);
  EXPECT_EQ(outcome.ended, 0);
  EXPECT_TRUE(client_->Cancel(last_id_));
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kCancelled);
  Advance(100 * kMs);
  EXPECT_EQ(outcome.ended, 1);
  EXPECT_EQ(nodes_[0]->attempts.size(), 1u);
}

TEST_F(RetryTest, NumberOfTheCallNamesItInEachAttempt) {
  Connect(1);
  Outcome& outcome = Started(kHold);
  const uint64_t id = last_id_;
  FinishHeld(0, absl::UnavailableError("not now"));
  Advance(6 * kMs);
  ASSERT_EQ(nodes_[0]->held.size(), 1u) << "the second attempt";
  EXPECT_TRUE(client_->Cancel(id));
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kCancelled);
  Settle();
  EXPECT_TRUE(nodes_[0]->held[0]->cancelled()) << "the server hears of it";
}

TEST_F(RetryTest, LossOfTheConnectionIsRetriedIfItDoesNoHarm) {
  options_.balancing = Balancing::kRoundRobin;
  Connect(2);
  Outcome& harmless = Started(kHold);
  KillServer(0);
  Settle();
  EXPECT_EQ(harmless.ended, 0);
  Advance(6 * kMs);
  ASSERT_EQ(nodes_[1]->held.size(), 1u);
  FinishHeld(1);
  EXPECT_TRUE(harmless.status.ok()) << harmless.status;
  EXPECT_EQ(harmless.reply.syndrome(), 1u);
}

TEST_F(RetryTest, CallThatMayHaveRunIsNotRetrySafeWhenItsNextAttemptIsNotSent) {
  options_.backoff_min_ns = options_.backoff_max_ns = 1000 * kMs;
  Connect(1);
  Outcome& outcome = Started(kHold);
  KillServer(0);
  Settle();
  EXPECT_EQ(outcome.ended, 0) << "a pause";
  Advance(6 * kMs);
  ASSERT_EQ(outcome.ended, 1);
  EXPECT_TRUE(absl::IsUnavailable(outcome.status)) << outcome.status;
  EXPECT_EQ(outcome.status.message().find("not connected"), 0u) << outcome.status;
  EXPECT_FALSE(base::IsRetrySafe(outcome.status));
}

TEST_F(RetryTest, CallThatMayHaveRunIsNotRetrySafeWhenItsNextAttemptWaits) {
  options_.balancing = Balancing::kRoundRobin;
  fake_options_.credits = 2;
  Connect(2);
  nodes_[1]->end->set_withhold_credits(true);
  Outcome& retried = Started(kHold);
  for (int i = 0; i < 3; ++i) Started(kHold);  // two of them take the credit of the other server
  ASSERT_EQ(nodes_[0]->held.size(), 2u);
  ASSERT_EQ(nodes_[1]->held.size(), 2u);
  KillServer(0);
  Settle();
  Advance(6 * kMs);
  ASSERT_EQ(retried.ended, 0) << "the second attempt waits for credit";
  KillServer(1);
  Settle();
  ASSERT_EQ(retried.ended, 1);
  EXPECT_TRUE(absl::IsUnavailable(retried.status)) << retried.status;
  EXPECT_FALSE(base::IsRetrySafe(retried.status));
}

TEST_F(RetryTest, CallThatMayHaveRunIsNotRetrySafeWhenALaterAttemptIsRefused) {
  Connect(1);
  Outcome& outcome = Started(kHold);
  FinishHeld(0, absl::UnavailableError("it has run"));
  for (int attempt = 2; attempt <= 3; ++attempt) {
    Advance(20 * kMs);
    ASSERT_EQ(nodes_[0]->held.size(), 1u);
    ServerCall* const call = nodes_[0]->held[0];
    nodes_[0]->held.clear();
    call->Refuse(base::Error(absl::StatusCode::kUnavailable, "refused",
                             {.layer = "call", .retry_safe = true}));
    Settle();
  }
  ASSERT_EQ(outcome.ended, 1);
  EXPECT_TRUE(absl::IsUnavailable(outcome.status)) << outcome.status;
  EXPECT_FALSE(base::IsRetrySafe(outcome.status));
}

TEST_F(RetryTest, CallWhoseAttemptsWereAllRefusedIsRetrySafe) {
  Connect(1);
  Outcome& outcome = Started(kHold);
  for (int attempt = 1; attempt <= 3; ++attempt) {
    ASSERT_EQ(nodes_[0]->held.size(), 1u);
    ServerCall* const call = nodes_[0]->held[0];
    nodes_[0]->held.clear();
    call->Refuse(base::Error(absl::StatusCode::kUnavailable, "refused",
                             {.layer = "call", .retry_safe = true}));
    Settle();
    Advance(20 * kMs);
  }
  ASSERT_EQ(outcome.ended, 1);
  EXPECT_TRUE(absl::IsUnavailable(outcome.status)) << outcome.status;
  EXPECT_TRUE(base::IsRetrySafe(outcome.status));
}

TEST_F(RetryTest, BudgetHasAMaximumAndUncountsExactly) {
  RetryPolicy policy;
  policy.budget = 1;
  policy.budget_per_thousand_ok = 500;
  RetryBudget budget(policy);
  for (int i = 0; i < 10; ++i) budget.Succeeded();
  EXPECT_TRUE(budget.Take());
  EXPECT_FALSE(budget.Take()) << "no more than the maximum";
  budget.Succeeded();
  budget.Succeeded();
  budget.Uncount();
  EXPECT_FALSE(budget.Take());
  budget.Succeeded();
  EXPECT_TRUE(budget.Take());
}

TEST_F(RetryTest, BudgetKeepsAnOutageFromDoublingItsLoad) {
  options_.retry.budget = 10;
  options_.retry.budget_per_thousand_ok = 100;
  Connect(1);
  nodes_[0]->answer = absl::UnavailableError("down");
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(Start(&outcomes_.emplace_back(), kAnyTimes).ok());
    Advance(30 * kMs);
  }
  EXPECT_EQ(nodes_[0]->attempts.size(), 210u) << "ten more than there were calls";
  EXPECT_EQ(client_->counters().retries, 10u);
  EXPECT_GE(client_->counters().retries_denied, 190u);
  // A hundred successes give ten back.
  nodes_[0]->answer = absl::OkStatus();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(Call(), 0);
  nodes_[0]->answer = absl::UnavailableError("down");
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(Start(&outcomes_.emplace_back(), kAnyTimes).ok());
    Advance(30 * kMs);
  }
  EXPECT_EQ(client_->counters().retries, 20u);
}

TEST_F(RetryTest, CallerOfOneAttemptGetsOne) {
  options_.retry.max_attempts = 1;
  Connect(2);
  nodes_[0]->answer = absl::UnavailableError("not now");
  EXPECT_EQ(Started(kAnyTimes).status.code(), absl::StatusCode::kUnavailable);
}

TEST_F(RetryTest, MetadataOfTheCallerGoesWithEachAttempt) {
  MetadataEntries own;
  own.add_entries()->set_key("who");
  own.mutable_entries(0)->set_value("me");
  const std::string wire = own.SerializeAsString();
  Connect(1);
  nodes_[0]->answer = absl::UnavailableError("not now");
  Outcome& outcome = outcomes_.emplace_back();
  ASSERT_TRUE(Start(&outcome, kHold, 60'000 * kMs, false, wire).ok());
  Settle();
  for (int attempt = 2; attempt <= 3; ++attempt) {
    FinishHeld(0, absl::UnavailableError("not now"));
    Advance(20 * kMs);
    ASSERT_EQ(nodes_[0]->held.size(), 1u);
    MetadataEntries got;
    const std::string_view metadata = nodes_[0]->held[0]->incoming().metadata;
    ASSERT_TRUE(got.ParseFromArray(metadata.data(), static_cast<int>(metadata.size())));
    ASSERT_EQ(got.entries_size(), 2) << "and the attempt, once";
    EXPECT_EQ(got.entries(0).value(), "me");
    EXPECT_EQ(got.entries(1).value(), std::to_string(attempt));
  }
  FinishHeld(0);
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
}

TEST_F(RetryTest, RequestThatFillsItsMessageIsTriedAgainWithoutTheNumber) {
  Connect(1);
  nodes_[0]->answer = absl::UnavailableError("not now");
  Outcome& outcome = outcomes_.emplace_back();
  outcome.request.set_cause(std::string(4096 - frame::kHeaderBytes - 3, 'x'));
  ASSERT_EQ(outcome.request.ByteSizeLong(), 4096 - frame::kHeaderBytes);
  ASSERT_TRUE(Start(&outcome, kAnyTimes).ok());
  Settle();
  nodes_[0]->answer = absl::OkStatus();
  Advance(6 * kMs);
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(nodes_[0]->attempts, (std::vector<std::string>{"", ""}));
}

}  // namespace retry_test
}  // namespace sluice::call
