// SPDX-License-Identifier: Apache-2.0
#include "tools/gateway/clamped_time.h"

#include <gtest/gtest.h>

#include <chrono>

namespace sluice::gateway {
namespace clamped_time_test {

TEST(ClampedTimeTest, TimesWithinTheRangeDoNotChange) {
  EXPECT_EQ(ClampedTime(absl::ZeroDuration()).count(), 0);
  EXPECT_EQ(ClampedTime(absl::Microseconds(7)).count(), 7);
  EXPECT_EQ(ClampedTime(absl::Hours(1)), std::chrono::hours(1));
}

TEST(ClampedTimeTest, OtherTimesAreClamped) {
  EXPECT_EQ(ClampedTime(-absl::Nanoseconds(1)).count(), 0);
  EXPECT_EQ(ClampedTime(-absl::InfiniteDuration()).count(), 0);
  const auto now = std::chrono::system_clock::now();
  EXPECT_GT(now + ClampedTime(absl::InfiniteDuration()), now + std::chrono::hours(24 * 365));
  EXPECT_EQ(ClampedTime(absl::Hours(24 * 365 * 200)), ClampedTime(absl::InfiniteDuration()));
}

}  // namespace clamped_time_test
}  // namespace sluice::gateway
