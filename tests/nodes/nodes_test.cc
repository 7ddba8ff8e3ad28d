// SPDX-License-Identifier: Apache-2.0
//
// Some of the seeds that `./dev simulate --calls` runs by the thousand.
#include <cstdio>

#include "gtest/gtest.h"
#include "tests/nodes/run.h"

namespace sluice::nodes {
namespace {

constexpr uint64_t kSeeds = 40;

TEST(Nodes, EachSeed_EndsEachCallOnceAndLeavesNothing) {
  uint64_t ok = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    std::printf("seed %lu\n", seed);  // known also if it crashes
    std::fflush(stdout);
    const Plan plan = MakePlan(seed);
    const Result result = RunPlan(plan);
    EXPECT_TRUE(result.succeeded()) << ToString(plan, result) << ToString(plan);
    ok += result.ok;
  }
  EXPECT_GT(ok, 100 * kSeeds);
}

TEST(Nodes, SameSeed_IsTheSameRun) {
  const Plan plan = MakePlan(3);
  const Result first = RunPlan(plan);
  const Result second = RunPlan(plan);
  EXPECT_EQ(first.digest, second.digest);
  EXPECT_EQ(first.calls, second.calls);
}

// One message of a hundred is lost, on devices of both kinds.
TEST(Nodes, LostMessages_EachCallSucceedsAllTheSame) {
  for (const bool rc : {false, true}) {
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      const Plan plan = MakePlan({.seed = seed, .rc = rc, .loss_ppm = 10'000});
      const Result result = RunPlan(plan);
      EXPECT_TRUE(result.succeeded()) << ToString(plan, result) << ToString(plan);
      EXPECT_EQ(result.ok, result.calls) << ToString(plan);
      EXPECT_GE(result.calls, 100u);
    }
  }
}

}  // namespace
}  // namespace sluice::nodes
