// SPDX-License-Identifier: Apache-2.0
#include "transport/peer/attempt_limiter.h"

#include <string>

#include "gtest/gtest.h"

namespace sluice::peer {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;

TEST(AttemptLimiter, SoManyFailuresThenNoneUntilTimeHasPassed) {
  AttemptLimiter limiter(4);
  const std::string address = "192.0.2.1:4000";
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(limiter.Allowed(address, 0)) << i;
    limiter.Failed(address, 0);
  }
  EXPECT_FALSE(limiter.Allowed(address, 0));
  EXPECT_FALSE(limiter.Allowed(address, kSecondNs / 4 - 1));
  EXPECT_TRUE(limiter.Allowed(address, kSecondNs / 4));
  limiter.Failed(address, kSecondNs / 4);
  EXPECT_FALSE(limiter.Allowed(address, kSecondNs / 4));
}

TEST(AttemptLimiter, BucketNeverHoldsMoreThanASecondsWorth) {
  AttemptLimiter limiter(2);
  limiter.Failed("a:1", 0);
  const int64_t later_ns = 1'000 * kSecondNs;
  limiter.Failed("a:1", later_ns);
  limiter.Failed("a:1", later_ns);
  EXPECT_FALSE(limiter.Allowed("a:1", later_ns));
}

TEST(AttemptLimiter, FailuresThatWereUnderWayDoNotLockOutForLonger) {
  AttemptLimiter limiter(2);
  for (int i = 0; i < 1'000; ++i) limiter.Failed("a:1", 0);
  EXPECT_FALSE(limiter.Allowed("a:1", 0));
  EXPECT_TRUE(limiter.Allowed("a:1", kSecondNs / 2));
}

TEST(AttemptLimiter, PortDoesNotCountAndOtherHostsDoNotSuffer) {
  AttemptLimiter limiter(1);
  limiter.Failed("192.0.2.1:4000", 0);
  EXPECT_FALSE(limiter.Allowed("192.0.2.1:4001", 0));
  EXPECT_TRUE(limiter.Allowed("192.0.2.2:4000", 0));
  limiter.Failed("[2001:db8::1]:4000", 0);
  EXPECT_FALSE(limiter.Allowed("[2001:db8::1]:5", 0));
  EXPECT_TRUE(limiter.Allowed("[2001:db8::2]:4000", 0));
}

TEST(AttemptLimiter, ManyAddressesTakeBoundedMemoryAndShareWhatIsLeft) {
  AttemptLimiter limiter(1);
  const auto address = [](size_t i) { return "host" + std::to_string(i) + ":1"; };
  for (size_t i = 0; i < 10 * AttemptLimiter::kMaxAddresses; ++i) limiter.Failed(address(i), 0);
  EXPECT_EQ(limiter.size(), AttemptLimiter::kMaxAddresses);
  EXPECT_FALSE(limiter.Allowed(address(3), 0));
  EXPECT_FALSE(limiter.Allowed("newcomer:1", 0));
  // A second later all are full again, and make room.
  EXPECT_TRUE(limiter.Allowed("newcomer:1", kSecondNs));
  limiter.Failed("newcomer:1", kSecondNs);
  EXPECT_EQ(limiter.size(), 1u);
}

}  // namespace
}  // namespace sluice::peer
