// SPDX-License-Identifier: Apache-2.0
#include "tests/transport/endpoint/lane_soak.h"

#include "gtest/gtest.h"

namespace sluice::endpoint {
namespace lane_soak_test {

using softdc::InOrder;

TEST(LaneSoak, EveryMessageOnceWholeAndInOrderInAllModes) {
  for (const InOrder promise : {InOrder::kWholeMessage, InOrder::kBlocks128, InOrder::kNone}) {
    SoakResult sum;
    for (uint64_t seed = 1; seed <= 12; ++seed) {
      const SoakResult result = RunLaneSoak({.seed = seed, .promise = promise, .messages = 4'000});
      ASSERT_EQ(result.wrong, "") << "seed " << seed << ", promise " << static_cast<int>(promise);
      ASSERT_EQ(result.messages, 8'000u);
      sum.through_lanes += result.through_lanes;
      sum.lost += result.lost;
      sum.sleeps += result.sleeps;
      sum.sent_again += result.sent_again;
    }
    // It was about lanes, and things went wrong.
    EXPECT_GT(sum.through_lanes, 10'000u);
    EXPECT_GT(sum.lost, 20u);
    EXPECT_GT(sum.sleeps, 100u);
    EXPECT_GT(sum.sent_again, 100u);
  }
}

// Found by this seed: a question of an older lane, whose request had failed and ran late, made the sender begin the newer lane
// again at its first slot.
TEST(LaneSoak, QuestionThatComesLateIsOutOfDate) {
  EXPECT_EQ(RunLaneSoak({.seed = 1055, .messages = 30'000}).wrong, "");
}

TEST(LaneSoak, PromiseThatIsNotKeptIsSeenAtOnce) {
  for (const InOrder promise : {InOrder::kBlocks128, InOrder::kNone}) {
    int seen = 0;
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      const SoakResult result = RunLaneSoak(
          {.seed = seed, .promise = promise, .forced = true, .faults = false, .messages = 500});
      // One that has no prefix yet, because its first block is not there, ends the peer.
      seen += result.torn + result.downs != 0;
    }
    EXPECT_GE(seen, 8) << static_cast<int>(promise);
  }
}

}  // namespace lane_soak_test
}  // namespace sluice::endpoint
