// SPDX-License-Identifier: Apache-2.0
//
// What silent peers cost the others: the figures of docs/decisions/0017. Four healthy peers get a message every 200 µs each,
// for longer than an attempt to reach a silent one takes.
#include <algorithm>
#include <cstdio>
#include <deque>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/queue/pool_world.h"

namespace sluice::queue {
namespace silent_peers_test {

constexpr uint32_t kHealthy = 4;
constexpr int64_t kPeriodNs = 200'000;

struct Silent {
  uint32_t known = 0;  // answered before
  uint32_t fresh = 0;
};

struct Latency {
  int64_t median_ns, p99_ns, max_ns;
};

Latency Measure(const char* name, PoolOptions options, Silent silent, uint32_t buffers = 512) {
  options.send_depth = 64;
  World world(options, buffers);
  PoolHarness& harness = *world.harness;
  std::vector<std::deque<int64_t>> sent_ns(kHealthy);
  std::vector<uint32_t> seen(kHealthy, 0);
  std::vector<int64_t> latencies;
  for (uint32_t i = 0; i < kHealthy; ++i) harness.AddKnown(1);
  std::vector<uint32_t> silent_peers;
  for (uint32_t i = 0; i < silent.known; ++i) silent_peers.push_back(harness.AddKnown(2));
  for (uint32_t i = 0; i < silent.fresh; ++i) silent_peers.push_back(harness.Add(true, 2));
  world.simulation->Kill(2);
  for (const uint32_t peer : silent_peers) EXPECT_TRUE(harness.Send(peer));
  const int64_t end_ns = world.simulation->NowNs() + 2 * world.AttemptNs();
  EXPECT_TRUE(world.Run(
      [&] {
        bool all = true;
        for (uint32_t peer = 0; peer < kHealthy; ++peer) {
          for (; seen[peer] < harness.peer(peer).arrived; ++seen[peer]) {
            latencies.push_back(world.simulation->NowNs() - sent_ns[peer].front());
            sent_ns[peer].pop_front();
          }
          all = all && sent_ns[peer].empty();
        }
        return all && world.simulation->NowNs() >= end_ns;
      },
      10'000 * kMs, kPeriodNs,
      [&] {
        if (world.simulation->NowNs() >= end_ns) return;
        for (uint32_t peer = 0; peer < kHealthy; ++peer) {
          if (harness.Send(peer)) sent_ns[peer].push_back(world.simulation->NowNs());
        }
      }));
  std::sort(latencies.begin(), latencies.end());
  const Latency result{latencies[latencies.size() / 2], latencies[latencies.size() * 99 / 100],
                       latencies.back()};
  std::printf("%-44s %6zu messages, p50 %8.1f us, p99 %8.1f us, max %8.1f us\n", name,
              latencies.size(), 1e-3 * static_cast<double>(result.median_ns),
              1e-3 * static_cast<double>(result.p99_ns), 1e-3 * static_cast<double>(result.max_ns));
  return result;
}

TEST(SilentPeers, CostHealthyOnesNothingAsLongAsThereIsAnotherDci) {
  const Latency alone = Measure("nobody silent", {}, {});
  const auto same = [&](const Latency& with) {
    EXPECT_LE(with.p99_ns, alone.p99_ns * 3 / 2);
    EXPECT_LE(with.max_ns, 1 * kMs);
  };
  same(Measure("10 new ones silent", {}, {.fresh = 10}));
  same(Measure("1 known one silent", {}, {.known = 1}));
  same(Measure("10 known ones silent", {}, {.known = 10}));
  same(Measure("10 known ones silent, 64 buffers", {}, {.known = 10}, 64));
  same(Measure("10 new ones silent, no streams", {.use_streams = false}, {.fresh = 10}));
  // What it is good for: nowhere to go, and no probation.
  const Latency stuck = Measure("1 known one silent, one DCI", {.dci_count = 1}, {.known = 1});
  EXPECT_GT(stuck.max_ns, 10 * kMs);
  const Latency behind =
      Measure("1 known one silent, no streams", {.use_streams = false}, {.known = 1});
  EXPECT_GT(behind.max_ns, 10 * kMs);
}

}  // namespace silent_peers_test
}  // namespace sluice::queue
