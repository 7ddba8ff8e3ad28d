// SPDX-License-Identifier: Apache-2.0
//
// Peers whose large messages can't be read, and fail with no error of their own, in virtual time.
#include <gtest/gtest.h>

#include <cstdint>

#include "absl/strings/match.h"
#include "tests/transport/endpoint/large_world.h"

namespace sluice::endpoint {
namespace large_stall_test {

using LargeStallTest = LargeWorld;

// The send queue is recovered again and again, and each time the reads are made again: no error is ever the peer's. What ends it comes
// first: three looks without progress, or the third recovery of a queue that waits for it.
constexpr char kStalled[] = "no part of a large message could be read from the peer for 300 ms";
constexpr char kStuck[] = "a send queue has completed nothing for";

TEST_F(LargeStallTest, APeerWhoseReadsAreNeverAnsweredIsEnded) {
  Start();
  const auto lent = Lend(7 * kMiB);
  const uint32_t fetch = Fetch(Where(*lent));
  const int64_t start_ns = simulation_->NowNs();
  const auto strike = [&] {
    for (uint32_t dci = 0; simulation_->MakeDciDeadInRts(1, dci); ++dci) {
    }
  };
  ASSERT_TRUE(Run([&] { return strike(), !reader_saw_.downs.empty(); }, 5'000'000'000))
      << "it has its memory for ever";
  EXPECT_EQ(reader_saw_.downs[0].why.code(), absl::StatusCode::kUnavailable);
  const absl::string_view why = reader_saw_.downs[0].why.message();
  EXPECT_TRUE(absl::StrContains(why, kStalled) || absl::StrContains(why, kStuck)) << why;
  EXPECT_FALSE(reader_saw_.fetched.contains(fetch));
  EXPECT_GE(simulation_->NowNs() - start_ns, 300'000'000);
  EXPECT_LE(simulation_->NowNs() - start_ns, 1'000'000'000);
}

// Its reads come again before the second look.
TEST_F(LargeStallTest, AStallThatPassesEndsNobody) {
  Start();
  const auto lent = Lend(7 * kMiB);
  const uint32_t fetch = Fetch(Where(*lent));
  const int64_t start_ns = simulation_->NowNs();
  ASSERT_TRUE(Run([&] {
    if (simulation_->NowNs() - start_ns > 150'000'000) return true;
    for (uint32_t dci = 0; simulation_->MakeDciDeadInRts(1, dci); ++dci) {
    }
    return false;
  }));
  EXPECT_TRUE(End(fetch).ok()) << End(fetch);
  ExpectSame(fetch, 7 * kMiB);
  EXPECT_TRUE(reader_saw_.downs.empty());
  GiveBack(fetch);
  EndLoan(*lent);
}

// A process that was away for long takes what has come before it judges.
TEST_F(LargeStallTest, AReaderThatWasAwayEndsNobody) {
  Start();
  const auto lent = Lend(7 * kMiB);
  const uint32_t fetch = Fetch(Where(*lent));
  RunFor(10'000);
  ASSERT_FALSE(reader_saw_.fetched.contains(fetch));
  simulation_->RunFor(2'000'000'000);
  EXPECT_TRUE(End(fetch).ok()) << End(fetch);
  EXPECT_TRUE(reader_saw_.downs.empty());
  GiveBack(fetch);
  EndLoan(*lent);
}

// Nobody knows whether the queue or the peer whose read is in front does nothing: that peer goes on where it holds up nobody.
TEST_F(LargeStallTest, ReadsThatWereInFrontOfAStuckQueueGoOnOnProbation) {
  Start();
  const auto lent = Lend(7 * kMiB);
  const uint32_t before = Fetch(Where(*lent));
  ASSERT_TRUE(End(before).ok());
  GiveBack(before);
  const uint32_t fetch = Fetch(Where(*lent));
  RunFor(50'000);
  const auto posted = [&](bool probation) {
    uint32_t count = 0;
    for (const QueueReport& queue : reader_->endpoint().Queues()) {
      if (queue.probation == probation) count += queue.posted;
    }
    return count;
  };
  ASSERT_GT(posted(false), 0u);
  for (uint32_t dci = 0; simulation_->MakeDciDeadInRts(1, dci); ++dci) {
  }
  ASSERT_TRUE(Run([&] { return reader_->endpoint().Counts().queue_recoveries == 1; }));
  EXPECT_EQ(posted(false), 0u);
  EXPECT_TRUE(End(fetch).ok()) << End(fetch);
  EXPECT_TRUE(reader_saw_.downs.empty());
  GiveBack(fetch);
  EndLoan(*lent);
}

}  // namespace large_stall_test
}  // namespace sluice::endpoint
