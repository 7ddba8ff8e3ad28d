// SPDX-License-Identifier: Apache-2.0
#include "transport/base/random.h"

#include <set>

#include "gtest/gtest.h"

namespace sluice::base {
namespace random_test {

TEST(SeededRandom, SameSeedRepeatsAndAnotherSeedDiffers) {
  SeededRandom a(1), b(1), c(2);
  for (int i = 0; i < 100; ++i) {
    const uint64_t value = a.Next64();
    EXPECT_EQ(value, b.Next64());
    EXPECT_NE(value, c.Next64());
  }
}

TEST(Below, StaysBelowAndReachesEveryValue) {
  SeededRandom random(3);
  std::set<uint64_t> seen;
  for (int i = 0; i < 1'000; ++i) seen.insert(random.Below(7));
  EXPECT_EQ(seen.size(), 7u);
  EXPECT_EQ(*seen.rbegin(), 6u);
}

TEST(SystemRandom, DoesNotRepeatAcrossBlocks) {
  SystemRandom random;
  std::set<uint64_t> seen;
  for (int i = 0; i < 1'000; ++i) seen.insert(random.Next64());
  EXPECT_EQ(seen.size(), 1'000u);
}

}  // namespace random_test
}  // namespace sluice::base
