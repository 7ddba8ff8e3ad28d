// SPDX-License-Identifier: Apache-2.0
#include "transport/base/nearest.h"

#include <gtest/gtest.h>

namespace sluice::base {
namespace nearest_test {

TEST(NearestTest, EditDistanceOfKnownPairs) {
  EXPECT_EQ(EditDistance("", ""), 0u);
  EXPECT_EQ(EditDistance("abc", ""), 3u);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3u);
  EXPECT_EQ(EditDistance("window", "windw"), 1u);
}

TEST(NearestTest, FewestEditsWinAndThreeAreTheMost) {
  EXPECT_EQ(Nearest("slow_cal", {"slow", "slow_call", "spin"}), "slow_call");
  EXPECT_EQ(Nearest("spni", {"spin", "span"}), "spin");
  EXPECT_EQ(Nearest("abcd", {"wxyz"}), "");
  EXPECT_EQ(Nearest("abc", {"xyz"}), "xyz");
  EXPECT_EQ(Nearest("x", {}), "");
}

}  // namespace nearest_test
}  // namespace sluice::base
