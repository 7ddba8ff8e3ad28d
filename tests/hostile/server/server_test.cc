// SPDX-License-Identifier: Apache-2.0
//
// Some of the seeds that `./dev hostile --of server` runs by the thousand.
#include <cstdio>

#include "gtest/gtest.h"
#include "tests/hostile/server/trial.h"

namespace sluice::hostile::server {
namespace {

constexpr uint64_t kSeeds = 20;

TEST(HostileServer, EachSeed_CostsOtherServersCallsNothing) {
  uint64_t connections = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    std::printf("seed %lu\n", seed);  // known also if it crashes
    std::fflush(stdout);
    const ServerResult result = RunServerTrial(seed);
    EXPECT_TRUE(result.ok()) << ToString(seed, result) << ToString(DrawServer(seed));
    EXPECT_GT(result.honest_calls, 50u);
    EXPECT_GT(result.other_calls, 50u);
    connections += result.hostile_connections;
  }
  EXPECT_GT(connections, kSeeds);  // most get past the handshake
}

TEST(HostileServer, SameSeed_IsTheSameRun) {
  const ServerResult first = RunServerTrial(3);
  const ServerResult second = RunServerTrial(3);
  EXPECT_EQ(first.digest, second.digest);
  EXPECT_EQ(first.hostile_messages, second.hostile_messages);
}

}  // namespace
}  // namespace sluice::hostile::server
