// SPDX-License-Identifier: Apache-2.0
//
// The pool on the software NIC, with receive queues of the same process as peers, and DCT numbers
// that nobody has as dead ones. What needs virtual time is in dci_pool_sim_test.cc.
#include "transport/queue/dci_pool.h"

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/queue/pool_harness.h"
#include "transport/base/error.h"
#include "transport/base/random.h"

namespace sluice::queue {
namespace dci_pool_test {

HarnessOptions With(PoolOptions pool) {
  pool.dead_peer_ns = 30'000'000;
  return {.pool = pool};
}

bool CanReset(PoolHarness& harness) {
  return harness.device().capabilities().Has(verbs::Feature::kStreamReset);
}

TEST(DciPool, UnsignalledRequestsGiveTheirSlotsBackWithALaterOne) {
  PoolHarness harness(With({.dci_count = 1}));
  const uint32_t peer = harness.AddKnown();
  for (int round = 0; round < 100; ++round) {
    for (int i = 0; i < 37; ++i) {
      while (!harness.Send(peer)) harness.Pass();
    }
    harness.Pass();
  }
  harness.SendControl(peer, /*notify=*/true);
  while (harness.log.empty()) harness.Pass();
  EXPECT_EQ(harness.log, std::vector<std::string>{"target 0 sent"});
  while (harness.peer(peer).acknowledged < 3'700) harness.Pass();
  EXPECT_EQ(harness.peer(peer).duplicates, 0u);
  EXPECT_TRUE(harness.quiet());
  EXPECT_LT(harness.pool().counters().doorbells, 3'701u / 8);
  harness.pool().Close(&harness.target(peer));
  EXPECT_EQ(harness.target(peer).posted, 0u);
}

TEST(DciPool, SlotIsFreeWhenItIsCompleteAndReleasedInWhateverOrder) {
  PoolHarness harness(With({.dci_count = 1}));
  const uint32_t peer = harness.AddKnown();
  SlotTable& slots = harness.slots();
  // Complete first.
  harness.deaf = true;
  ASSERT_TRUE(harness.Send(peer));
  const uint32_t first = harness.peer(peer).kept.front();
  const uint64_t wr_id = slots.WrId(first);
  harness.SendControl(peer, /*notify=*/true);
  while (harness.log.empty()) harness.Pass();
  EXPECT_EQ(slots[first].use, SlotUse::kHeld);
  EXPECT_NE(slots.WrId(first), wr_id);  // a completion of what it was posted for is nobody's now
  while (harness.peer(peer).arrived == 0) harness.Pass();
  harness.Hear();
  EXPECT_EQ(slots[first].use, SlotUse::kFree);
  // Released first.
  ASSERT_TRUE(harness.Send(peer));
  const uint32_t second = harness.peer(peer).kept.front();
  while (harness.peer(peer).arrived == 1) harness.Pass();
  harness.Hear();
  EXPECT_EQ(slots[second].use, SlotUse::kPosted);  // unsignalled
  harness.SendControl(peer, /*notify=*/true);
  while (harness.log.size() < 2) harness.Pass();
  EXPECT_EQ(slots[second].use, SlotUse::kFree);
  EXPECT_TRUE(harness.quiet());
}

TEST(DciPool, DeadPeerStopsItsStreamOnlyAndIsClosedAfterThreeAttempts) {
  PoolHarness harness(With({.dci_count = 1}));
  if (!CanReset(harness)) GTEST_SKIP();
  const uint32_t healthy = harness.AddKnown();
  const uint32_t dead = harness.Add(/*alive=*/false);
  harness.pool().Acknowledged(&harness.target(dead));  // it lived once
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(harness.Send(healthy));
    if (i % 20 == 0) {
      ASSERT_TRUE(harness.Send(dead));
    }
    if (i % 7 == 0) harness.Pass();
  }
  while (harness.peer(healthy).acknowledged < 200 || harness.peer(dead).quiet == 0 ||
         harness.pool().counters().stream_resets < 3) {
    harness.Pass();
  }
  EXPECT_EQ(harness.peer(healthy).duplicates, 0u);
  EXPECT_EQ(harness.peer(healthy).resets, 0);
  EXPECT_EQ(harness.peer(dead).resets, DciPool::kMaxFailures - 1);
  EXPECT_EQ(harness.peer(dead).failed, 1);
  EXPECT_EQ(harness.peer(dead).quiet, 1);
  EXPECT_EQ(harness.pool().counters().failed, uint64_t{DciPool::kMaxFailures});
  EXPECT_EQ(harness.pool().counters().dci_recoveries, 0u);
  // Of what was posted, the others: nine on its stream, and one each time on probation.
  EXPECT_EQ(harness.pool().counters().flushed, 11u);
  EXPECT_NE(harness.peer(dead).why.message().find("IBV_WC_RETRY_EXC_ERR"), absl::string_view::npos);
  EXPECT_EQ(base::DetailOf(harness.peer(dead).why)->peer(), "target 1");
  harness.SendControl(healthy, /*notify=*/true);
  while (!harness.quiet()) harness.Pass();
}

TEST(DciPool, WithoutStreamsTheDciIsRecoveredAndHealthyPeersLoseNothing) {
  PoolHarness harness(With({.dci_count = 1, .use_streams = false}));
  const uint32_t healthy = harness.AddKnown();
  const uint32_t dead = harness.Add(/*alive=*/false);
  harness.pool().Acknowledged(&harness.target(dead));
  harness.deaf = true;  // else what has arrived is released, and not sent again
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(harness.Send(healthy));
    if (i == 10 || i == 40) {
      ASSERT_TRUE(harness.Send(dead));
    }
  }
  harness.SendControl(healthy, /*notify=*/true);
  while (harness.log.empty()) harness.Pass();
  EXPECT_EQ(harness.log, std::vector<std::string>{"target 0 not sent"});
  harness.deaf = false;
  while (harness.peer(healthy).acknowledged < 50 || harness.peer(dead).quiet == 0) harness.Pass();
  EXPECT_EQ(harness.peer(healthy).resets, 1);  // flushed, and not to blame
  EXPECT_FALSE(harness.target(healthy).probation);
  EXPECT_EQ(harness.peer(healthy).failed, 0);
  EXPECT_EQ(harness.peer(dead).failed, 1);
  EXPECT_EQ(harness.pool().counters().failed, uint64_t{DciPool::kMaxFailures});
  while (harness.pool().counters().dci_recoveries < 3) harness.Pass();
  harness.SendControl(healthy, /*notify=*/true);
  while (!harness.quiet()) harness.Pass();
}

TEST(DciPool, BrokenTargetTakesNothingUntilItsStreamIsReset) {
  PoolHarness harness(With({.dci_count = 1}));
  const uint32_t dead = harness.Add(/*alive=*/false);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(harness.Send(dead));
  harness.SendControl(dead, /*notify=*/true);
  Target& target = harness.target(dead);
  while (!target.broken) harness.Pass();
  EXPECT_FALSE(target.has_pending());
  EXPECT_EQ(harness.log, std::vector<std::string>{"target 0 not sent"});
  harness.SendControl(dead, /*notify=*/true);
  EXPECT_EQ(harness.log.size(), 2u);
  ASSERT_TRUE(harness.Send(dead));
  EXPECT_EQ(harness.slots()[harness.peer(dead).kept.back()].use, SlotUse::kHeld);
  while (harness.peer(dead).resets == 0) harness.Pass();
  EXPECT_FALSE(target.broken);
  EXPECT_EQ(harness.peer(dead).kept.size(), 6u);
  // A closed target does not wait for requests whose end nobody asked for.
  while (harness.peer(dead).quiet == 0 || !harness.quiet()) harness.Pass();
}

TEST(DciPool, MorePeersThanStreamsTakeTurns) {
  PoolHarness harness(With({.dci_count = 1, .max_log_streams = 1}));
  for (int i = 0; i < 10; ++i) harness.AddKnown();
  for (int i = 0; i < 40; ++i) {
    for (uint32_t peer = 0; peer < 10; ++peer) ASSERT_TRUE(harness.Send(peer));
  }
  for (uint32_t peer = 0; peer < 10; ++peer) {
    while (harness.peer(peer).acknowledged < 40) harness.Pass();
    EXPECT_EQ(harness.peer(peer).duplicates, 0u);
  }
  while (!harness.quiet()) harness.Pass();
}

// Random peers, some dead from the start, over every combination of streams: healthy ones get
// everything in order once, dead ones fail once, and no slot is lost.
TEST(DciPool, HealthyPeersGetEverythingWhateverDies) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    base::SeededRandom random(seed);
    PoolHarness harness(With({.dci_count = 1 + static_cast<uint32_t>(seed % 3),
                              .send_depth = 64,
                              .max_log_streams = static_cast<uint8_t>(1 + random.Below(4)),
                              .use_streams = random.Below(4) != 0}));
    std::vector<uint32_t> alive, dead;
    for (uint32_t i = 0; i < 12; ++i) {
      const bool lives = random.Below(3) != 0 || i == 0;
      (lives ? alive : dead).push_back(harness.Add(lives));
    }
    for (int i = 0; i < 2'000; ++i) {
      const auto peer = static_cast<uint32_t>(random.Below(12));
      if (harness.target(peer).closed) continue;
      while (!harness.target(peer).closed && !harness.Send(peer)) harness.Pass();
      if (random.Below(10) == 0) harness.Pass();
    }
    const auto done = [&] {
      for (const uint32_t peer : alive) {
        if (harness.peer(peer).acknowledged != harness.peer(peer).sent) return false;
      }
      for (const uint32_t peer : dead) {
        if (harness.peer(peer).sent != 0 && harness.peer(peer).quiet == 0) return false;
      }
      return true;
    };
    while (!done()) {
      harness.Pass();
      ASSERT_FALSE(testing::Test::HasFailure());
    }
    // The tail is unsignalled.
    for (const uint32_t peer : alive) harness.SendControl(peer, /*notify=*/true);
    while (!harness.quiet()) harness.Pass();
    for (const uint32_t peer : dead) {
      EXPECT_EQ(harness.peer(peer).failed, harness.peer(peer).sent != 0);
    }
    for (const uint32_t peer : alive) EXPECT_EQ(harness.peer(peer).failed, 0);
  }
}

TEST(DciPool, ClosingFreesOrHoldsWhatWaits) {
  PoolHarness harness(With({.dci_count = 1, .max_log_streams = 1}));
  for (int i = 0; i < 3; ++i) harness.AddKnown();
  for (uint32_t peer = 0; peer < 3; ++peer) {
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(harness.Send(peer));
  }
  Target& waits = harness.target(2);
  EXPECT_TRUE(waits.has_pending());  // two streams, both taken
  EXPECT_EQ(waits.posted, 0u);
  harness.pool().Close(&waits);
  EXPECT_FALSE(waits.has_pending());
  for (const uint32_t slot : harness.peer(2).kept) {
    EXPECT_EQ(harness.slots()[slot].use, SlotUse::kHeld);
  }
  harness.Forget(2);
  EXPECT_EQ(harness.slots().free_data(), 512u - 10);
  EXPECT_EQ(harness.peer(2).quiet, 0);  // it may go at once
  // A closed target takes nothing.
  harness.SendControl(2, /*notify=*/true);
  EXPECT_EQ(harness.log, std::vector<std::string>{"target 2 not sent"});
  // What is posted needs its target no more, and its slots are free when it is complete.
  harness.pool().Close(&harness.target(0));
  harness.pool().Close(&harness.target(1));
  for (const uint32_t peer : {0u, 1u}) {
    ASSERT_EQ(harness.target(peer).posted, 0u);
    EXPECT_EQ(harness.peer(peer).quiet, 0);  // it may go at once
  }
  const uint32_t next = harness.AddKnown();
  ASSERT_TRUE(harness.Send(next));
  while (harness.peer(next).acknowledged == 0 || !harness.quiet()) harness.Pass();
}

TEST(DciPool, ClosedTargetWaitsForWhatIsReportedOnly) {
  for (const bool streams : {true, false}) {
    PoolHarness harness(With({.dci_count = 1, .use_streams = streams}));
    const uint32_t peer = harness.AddKnown();
    ASSERT_TRUE(harness.Send(peer));
    harness.SendControl(peer, /*notify=*/true);
    ASSERT_TRUE(harness.Send(peer));
    harness.pool().Close(&harness.target(peer));
    ASSERT_EQ(harness.target(peer).posted, 1u);
    while (harness.peer(peer).quiet == 0) harness.Pass();
    EXPECT_EQ(harness.target(peer).posted, 0u);
    EXPECT_EQ(harness.log, std::vector<std::string>{"target 0 sent"});
  }
}

// ibv_poll_cq() answers -1 or -2: no empty queue, but one whose completions are lost.
TEST(DciPool, CompletionsThatCanNotBePolledAreTheEndOfTheQueues) {
  PoolHarness harness(With({.dci_count = 2}));
  const uint32_t peer = harness.AddKnown();
  harness.SendControl(peer, /*notify=*/true);
  harness.pool().Flush();
  ibv_context* context = harness.device().context();
  const auto poll_cq = context->ops.poll_cq;
  context->ops.poll_cq = [](ibv_cq*, int, ibv_wc*) { return -2; };
  harness.pool().Poll();
  context->ops.poll_cq = poll_cq;
  harness.Pass();
  ASSERT_FALSE(harness.queue_dead.empty());
  EXPECT_EQ(harness.queue_dead[0].code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(harness.queue_dead[0].message().find("can't be polled"), absl::string_view::npos)
      << harness.queue_dead[0];
  EXPECT_EQ(harness.log, std::vector<std::string>{"target 0 not sent"});
  EXPECT_FALSE(harness.pool().busy());
}

TEST(DeriveTimeout, StaysWithinTheBoundAndAboveHalfOfIt) {
  for (int64_t bound_ns : {int64_t{1'000'000}, int64_t{50'000'000}, int64_t{1'000'000'000},
                           int64_t{7'777'777'777}, int64_t{600'000'000'000}}) {
    for (const uint8_t retries : {7, 2, 0}) {
      const uint8_t timeout = DeriveTimeout(bound_ns, retries);
      const int64_t total_ns = (int64_t{4096} << timeout) * (retries + 1);
      EXPECT_LE(total_ns, bound_ns);
      EXPECT_GT(2 * total_ns, bound_ns);
      EXPECT_LE(timeout, 31);
    }
  }
}

}  // namespace dci_pool_test
}  // namespace sluice::queue
