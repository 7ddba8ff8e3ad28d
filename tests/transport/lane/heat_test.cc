// SPDX-License-Identifier: Apache-2.0
#include "transport/lane/heat.h"

#include "gtest/gtest.h"

namespace sluice::lane {
namespace heat_test {

TEST(Heat, CountsWithinAPeriodAndHalvesWithEach) {
  Heat heat;
  for (uint32_t i = 1; i <= 100; ++i) ASSERT_EQ(heat.Add(7), i);
  EXPECT_EQ(heat.Add(8), 51u);
  EXPECT_EQ(heat.Add(10), 13u);
  EXPECT_EQ(heat.Add(1000), 1u) << "long ago";
}

TEST(Heat, PeriodsWrapAndTheCountDoesNot) {
  Heat heat;
  for (uint32_t i = 0; i < 70'000; ++i) heat.Add(0xffff);
  EXPECT_EQ(heat.Add(0xffff), 0xffffu);
  EXPECT_EQ(heat.Add(0), 0x8000u);
  heat.Cool();
  EXPECT_EQ(heat.Add(0), 1u);
}

}  // namespace heat_test
}  // namespace sluice::lane
