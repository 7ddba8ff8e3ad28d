// SPDX-License-Identifier: Apache-2.0
//
// Many peers, few hot: the hot ones have lanes, the others are sent to a shared receive queue, memory stays as configured.
#include "tests/transport/endpoint/lane_crowd.h"

#include "gtest/gtest.h"

namespace sluice::endpoint {
namespace lane_crowd_test {

void ExpectBounded(const CrowdResult& result) {
  EXPECT_EQ(result.wrong, "");
  EXPECT_LE(result.lane_bytes_most, result.lane_bytes_limit);
  EXPECT_GT(result.lane_bytes_most, 0u);
}

TEST(LaneCrowd, TheHotHaveLanesAndThoseWhoAreHotLaterGetThem) {
  const CrowdPlan plan{.hot_messages = 3'000};
  const CrowdResult result = RunLaneCrowd(plan);
  ExpectBounded(result);
  EXPECT_EQ(result.messages, 2 * plan.hot * plan.hot_messages +
                                 2 * (plan.peers - plan.hot) * uint64_t{plan.cold_messages});
  EXPECT_GT(result.hot_share[0], 0.9);
  EXPECT_GT(result.hot_share[1], 0.9);
  EXPECT_LT(result.cold_share, 0.01);
  EXPECT_GE(result.lanes_closed, plan.hot);
}

TEST(LaneCrowd, MemoryForAQuarterOfTheHotIsNotExceeded) {
  const CrowdResult result = RunLaneCrowd({.seed = 2, .peers = 100, .hot = 16, .lanes = 4});
  ExpectBounded(result);
  EXPECT_GT(result.hot_share[0], 0.1);
  EXPECT_LT(result.hot_share[0], 0.6);
}

}  // namespace lane_crowd_test
}  // namespace sluice::endpoint
