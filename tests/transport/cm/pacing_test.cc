// SPDX-License-Identifier: Apache-2.0
#include "transport/cm/pacing.h"

#include <set>
#include <string>

#include "gtest/gtest.h"

namespace sluice::cm {
namespace pacing_test {

constexpr int64_t kMs = 1'000'000;

TEST(PacingDelayNs, DoublesUpToItsBoundLessARandomPart) {
  base::SeededRandom random(3);
  Pacing pacing({.first_delay_ns = 10 * kMs, .max_delay_ns = 35 * kMs}, random, 16);
  std::set<int64_t> seen;
  for (int i = 0; i < 200; ++i) {
    const int64_t first_ns = pacing.DelayNs(1);
    EXPECT_GT(first_ns, 5 * kMs);
    EXPECT_LE(first_ns, 10 * kMs);
    const int64_t second_ns = pacing.DelayNs(2);
    EXPECT_GT(second_ns, 10 * kMs);
    EXPECT_LE(second_ns, 20 * kMs);
    const int64_t late_ns = pacing.DelayNs(60);
    EXPECT_GT(late_ns, 35 * kMs / 2);
    EXPECT_LE(late_ns, 35 * kMs);
    seen.insert(first_ns);
  }
  EXPECT_GT(seen.size(), 150u);  // clients that failed together do not come back together
}

TEST(PacingDelayNs, NoPauseIsPossible) {
  base::SeededRandom random(3);
  Pacing pacing({.first_delay_ns = 0, .max_delay_ns = 0}, random, 16);
  EXPECT_EQ(pacing.DelayNs(5), 0);
}

TEST(PacingTakeTurnNs, BurstGoesAtOnceAndTheRestAtTheRate) {
  base::SeededRandom random(3);
  Pacing pacing({.attempts_per_second = 10, .burst = 3}, random, 16);
  const int64_t now_ns = 5'000 * kMs;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(pacing.TakeTurnNs("a:1", now_ns), now_ns);
  EXPECT_EQ(pacing.throttled(), 0u);
  EXPECT_EQ(pacing.TakeTurnNs("a:1", now_ns), now_ns + 100 * kMs);
  EXPECT_EQ(pacing.TakeTurnNs("a:1", now_ns), now_ns + 200 * kMs);
  EXPECT_EQ(pacing.throttled(), 2u);
  EXPECT_EQ(pacing.TakeTurnNs("b:1", now_ns), now_ns);  // another peer's turns are its own
  // A quiet second later the burst is whole again.
  const int64_t later_ns = now_ns + 1'000 * kMs;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(pacing.TakeTurnNs("a:1", later_ns), later_ns);
  EXPECT_EQ(pacing.TakeTurnNs("a:1", later_ns), later_ns + 100 * kMs);
}

TEST(PacingTakeTurnNs, NoMoreThanBurstAndRateInAnySecond) {
  base::SeededRandom random(9);
  Pacing pacing({.attempts_per_second = 20, .burst = 5}, random, 16);
  std::multiset<int64_t> turns;
  int64_t now_ns = 0;
  for (int i = 0; i < 500; ++i) {
    now_ns += static_cast<int64_t>(random.Below(60)) * kMs;
    turns.insert(pacing.TakeTurnNs("a:1", now_ns));
  }
  for (const int64_t start_ns : turns) {
    const auto in_second =
        std::distance(turns.lower_bound(start_ns), turns.lower_bound(start_ns + 1'000 * kMs));
    EXPECT_LE(in_second, 25);
  }
}

TEST(PacingTakeTurnNs, QuietPeersAreForgotten) {
  base::SeededRandom random(3);
  Pacing pacing({}, random, /*max_peers=*/8);
  for (int i = 0; i < 100; ++i) pacing.TakeTurnNs(std::to_string(i), i * 1'000 * kMs);
  EXPECT_LE(pacing.peers(), 9u);
}

TEST(PacingTakeTurnNs, RateOfZeroIsNone) {
  base::SeededRandom random(3);
  Pacing pacing({.attempts_per_second = 0}, random, 8);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(pacing.TakeTurnNs("a:1", 7), 7);
  EXPECT_EQ(pacing.peers(), 0u);
}

}  // namespace pacing_test
}  // namespace sluice::cm
