// SPDX-License-Identifier: Apache-2.0
#include "transport/peer/attempt_limiter.h"

#include <string>

#include "gtest/gtest.h"

namespace sluice::peer {
namespace attempt_limiter_test {

constexpr int64_t kSecondNs = 1'000'000'000;

TEST(AttemptLimiter, SoManyTokensThenNoneUntilTimeHasPassed) {
  AttemptLimiter limiter(4);
  const std::string source = "192.0.2.1";
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(limiter.Has(source, 0)) << i;
    ASSERT_TRUE(limiter.Take(source, 0)) << i;
  }
  EXPECT_FALSE(limiter.Has(source, 0));
  EXPECT_FALSE(limiter.Take(source, 0));
  EXPECT_FALSE(limiter.Has(source, kSecondNs / 4 - 1));
  EXPECT_TRUE(limiter.Has(source, kSecondNs / 4));
  EXPECT_TRUE(limiter.Take(source, kSecondNs / 4));
  EXPECT_FALSE(limiter.Has(source, kSecondNs / 4));
  EXPECT_TRUE(limiter.Has("192.0.2.2", kSecondNs / 4)) << "another source";
}

TEST(AttemptLimiter, BucketNeverHoldsMoreThanASecondsWorth) {
  AttemptLimiter limiter(2);
  limiter.Take("a", 0);
  const int64_t later_ns = 1'000 * kSecondNs;
  limiter.Take("a", later_ns);
  limiter.Take("a", later_ns);
  EXPECT_FALSE(limiter.Has("a", later_ns));
}

TEST(AttemptLimiter, AskingWithoutTokensDoesNotDelayTheNextOne) {
  AttemptLimiter limiter(2);
  for (int i = 0; i < 1'000; ++i) limiter.Take("a", 0);
  EXPECT_FALSE(limiter.Has("a", 0));
  EXPECT_TRUE(limiter.Has("a", kSecondNs / 2));
}

TEST(AttemptLimiter, TokenGivenBackIsThereAtOnceAndNoneIsMade) {
  AttemptLimiter limiter(2);
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(limiter.Take("a", 0)) << i;
    limiter.GiveBack("a", 0);
  }
  for (int i = 0; i < 10; ++i) limiter.GiveBack("a", 0);
  EXPECT_TRUE(limiter.Take("a", 0));
  EXPECT_TRUE(limiter.Take("a", 0));
  EXPECT_FALSE(limiter.Take("a", 0));
  limiter.GiveBack("nobody", 0);
  EXPECT_EQ(limiter.size(), 1u);
}

TEST(AttemptLimiter, ManySourcesTakeBoundedMemoryAndShareWhatIsLeft) {
  AttemptLimiter limiter(1);
  const auto source = [](size_t i) { return "host" + std::to_string(i); };
  for (size_t i = 0; i < 10 * AttemptLimiter::kMaxSources; ++i) limiter.Take(source(i), 0);
  EXPECT_EQ(limiter.size(), AttemptLimiter::kMaxSources);
  EXPECT_FALSE(limiter.Has(source(3), 0));
  EXPECT_FALSE(limiter.Has("newcomer", 0));
  // A second later all are full again, and make room.
  EXPECT_TRUE(limiter.Has("newcomer", kSecondNs));
  limiter.Take("newcomer", kSecondNs);
  EXPECT_EQ(limiter.size(), 1u);
}

}  // namespace attempt_limiter_test
}  // namespace sluice::peer
