// SPDX-License-Identifier: Apache-2.0
//
// How bytes come to stand in memory under each promise of order.

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "tests/transport/softdc/sim/sim_node.h"
#include "transport/softdc/sim/simulation.h"

namespace sluice::softdc::sim {
namespace landing_test {

constexpr size_t kArea = 128 << 10;
constexpr uint32_t kBytes = 1500;

struct Seen {
  bool torn = false;        // a later byte was there before an earlier one
  bool torn_block = false;  // the same within an aligned block of 128
  bool after_cqe = false;   // something was missing when the message had completed
};

// Writes messages of 1,500 bytes and looks at the target after every single event.
Seen WatchWrites(InOrder promise, uint64_t seed) {
  Options options;
  options.seed = seed;
  options.dials.features.in_order = promise;
  auto simulation = Simulation::Create(options).value();
  SimNode from(*simulation, 0), to(*simulation, 1);
  Seen seen;
  for (int round = 1; round <= 20; ++round) {
    const auto mark = static_cast<std::byte>(round);
    std::memset(&from.slab[kArea], round, kBytes);
    EXPECT_EQ(from.Write(to, kArea, kArea, kBytes, 1), 0);
    ibv_wc wc{};
    while (ibv_poll_cq(from.send_cq, 1, &wc) == 0) {
      if (!simulation->Step()) break;
      const std::byte* at = &to.slab[kArea];
      for (uint32_t i = 1; i < kBytes; ++i) {
        const bool rises = at[i] == mark && at[i - 1] != mark;
        seen.torn |= rises;
        seen.torn_block |= rises && reinterpret_cast<uintptr_t>(at + i) % 128 != 0;
      }
    }
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    for (uint32_t i = 0; i < kBytes; ++i) seen.after_cqe |= to.slab[kArea + i] != mark;
  }
  return seen;
}

TEST(LandingTest, WholeMessagePromiseIsNeverTorn) {
  const Seen seen = WatchWrites(InOrder::kWholeMessage, 1);
  EXPECT_FALSE(seen.torn);
  EXPECT_FALSE(seen.after_cqe);
}

TEST(LandingTest, PromiseOfBlocksKeepsBlocksAndShufflesThem) {
  const Seen seen = WatchWrites(InOrder::kBlocks128, 1);
  EXPECT_TRUE(seen.torn);
  EXPECT_FALSE(seen.torn_block);
  EXPECT_FALSE(seen.after_cqe);
}

TEST(LandingTest, WithoutAPromiseEvenBlocksAreTornButTheCompletionCoversAll) {
  const Seen seen = WatchWrites(InOrder::kNone, 1);
  EXPECT_TRUE(seen.torn);
  EXPECT_TRUE(seen.torn_block);
  EXPECT_FALSE(seen.after_cqe);
}

TEST(LandingTest, CompletionOfALaterSendCoversAnEarlierWriteOfItsStream) {
  Options options;
  options.dials.features.in_order = InOrder::kNone;
  options.block_gap_ns = 20'000;
  auto simulation = Simulation::Create(options).value();
  SimNode from(*simulation, 0), to(*simulation, 1);
  for (int round = 1; round <= 20; ++round) {
    std::memset(&from.slab[kArea], round, kBytes);
    ASSERT_EQ(from.Write(to, kArea, kArea, kBytes, 1), 0);
    ASSERT_EQ(from.Send(to, "done", 2), 0);
    ASSERT_EQ(to.Text(to.AwaitReceive()), "done");
    to.PostReceives(1);
    for (uint32_t i = 0; i < kBytes; ++i) {
      ASSERT_EQ(to.slab[kArea + i], static_cast<std::byte>(round)) << i;
    }
    EXPECT_EQ(from.AwaitSend().status, IBV_WC_SUCCESS);
    EXPECT_EQ(from.AwaitSend().status, IBV_WC_SUCCESS);
  }
}

TEST(LandingTest, BlocksForAReceiverThatHasClosedLandNowhere) {
  Options options;
  options.dials.features.in_order = InOrder::kNone;
  options.block_gap_ns = 100'000;
  auto simulation = Simulation::Create(options).value();
  SimNode from(*simulation, 0);
  auto to = std::make_unique<SimNode>(*simulation, 1);
  ASSERT_EQ(from.Write(*to, kArea, kArea, kBytes, 1), 0);
  ASSERT_EQ(from.SendBytes(*to, kArea, 200, 2), 0);
  simulation->RunFor(50'000);  // some have landed, most have not
  to.reset();                  // its slab is freed; a block that landed now would be found by ASan
  EXPECT_EQ(from.AwaitSend().status, IBV_WC_RETRY_EXC_ERR);
}

}  // namespace landing_test
}  // namespace sluice::softdc::sim
