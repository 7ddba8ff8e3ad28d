// SPDX-License-Identifier: Apache-2.0
//
// Some dozens of the seeds that `./dev hostile --of bulk` runs by the thousand.
#include <cstdio>

#include "gtest/gtest.h"
#include "tests/hostile/bulk/script.h"
#include "tests/hostile/bulk/trial.h"

namespace sluice::hostile::bulk_port {
namespace {

constexpr uint64_t kSeeds = 40;

TEST(HostileBulk, EachSeed_CostsTheOthersNothing) {
  uint64_t joined = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    std::printf("seed %lu\n", seed);  // known also if it crashes
    std::fflush(stdout);
    const BulkResult result = RunBulkTrial(seed);
    EXPECT_TRUE(result.ok()) << ToString(seed, result) << ToString(Draw(seed));
    EXPECT_GT(result.honest_transfers, 100u);
    joined += result.joined;
  }
  EXPECT_GT(joined, kSeeds);
}

TEST(HostileBulk, SameSeed_IsTheSameRun) {
  const BulkResult first = RunBulkTrial(5);
  const BulkResult second = RunBulkTrial(5);
  EXPECT_EQ(first.digest, second.digest);
  EXPECT_EQ(first.words, second.words);
}

TEST(BulkScript, EachOperation_IsDrawnBySomeSeed) {
  uint64_t seen[static_cast<size_t>(Operation::kCount)] = {};
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    for (const Act& act : Draw(seed).acts) ++seen[static_cast<size_t>(act.operation)];
  }
  for (const OperationInfo& one : Operations()) {
    EXPECT_GT(seen[static_cast<size_t>(one.operation)], 0u) << one.name;
  }
}

}  // namespace
}  // namespace sluice::hostile::bulk_port
