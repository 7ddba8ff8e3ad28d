// SPDX-License-Identifier: Apache-2.0
//
// Some dozens of the seeds that `./dev hostile` runs by the thousand.
#include <cstdio>

#include "gtest/gtest.h"
#include "tests/hostile/grammar.h"
#include "tests/hostile/trial.h"

namespace sluice::hostile {
namespace {

constexpr uint64_t kSeeds = 30;

TEST(Hostile, EachSeed_CostsTheOthersNothing) {
  uint64_t connections = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    std::printf("seed %lu\n", seed);  // known also if it crashes
    std::fflush(stdout);
    const TrialResult result = RunTrial(seed);
    EXPECT_TRUE(result.ok()) << ToString(seed, result) << ToString(Draw(seed));
    EXPECT_GT(result.honest_calls, 100u);
    connections += result.hostile_connections;
  }
  EXPECT_GT(connections, kSeeds);  // most get past the handshake
}

// The flooder's target is broken when its turn comes: the queue takes nothing.
TEST(Hostile, FloodOfATargetThatIsBroken_Ends) {
  const TrialResult result = RunTrial(23016);
  EXPECT_TRUE(result.ok()) << ToString(23016, result);
}

TEST(Hostile, SameSeed_IsTheSameRun) {
  const TrialResult first = RunTrial(3);
  const TrialResult second = RunTrial(3);
  EXPECT_EQ(first.digest, second.digest);
  EXPECT_EQ(first.steps, second.steps);
  EXPECT_EQ(first.hostile_messages, second.hostile_messages);
}

TEST(Grammar, EachOperation_IsDrawnBySomeSeed) {
  uint64_t seen[static_cast<size_t>(Operation::kCount)] = {};
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    for (const Act& act : Draw(seed, /*withhold=*/false).acts) {
      ++seen[static_cast<size_t>(act.operation)];
    }
  }
  for (const OperationInfo& one : Operations()) {
    EXPECT_GT(seen[static_cast<size_t>(one.operation)], 0u) << one.name;
  }
}

}  // namespace
}  // namespace sluice::hostile
