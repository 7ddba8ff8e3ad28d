// SPDX-License-Identifier: Apache-2.0
//
// The pool in virtual time: silent peers, late completions, queues that do nothing, and whose turn it is.
#include <functional>

#include "gtest/gtest.h"
#include "tests/transport/queue/pool_world.h"

namespace sluice::queue {
namespace dci_pool_sim_test {

TEST(DciPoolProbation, WhoIsNewAndSilentWithholdsNobodysCompletions) {
  World world({.dci_count = 1});
  PoolHarness& harness = *world.harness;
  const uint32_t known = harness.AddKnown(1);
  const uint32_t silent = harness.Add(true, 2);
  world.simulation->Kill(2);
  const int64_t start_ns = world.simulation->NowNs();
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(harness.Send(silent));
  EXPECT_EQ(harness.target(silent).posted, DciPool::kProbationInFlight);
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(harness.Send(known));
    ASSERT_TRUE(
        world.Run([&] { return harness.peer(known).acknowledged == harness.peer(known).sent; }));
  }
  harness.SendControl(known, /*notify=*/true);
  ASSERT_TRUE(world.Run([&] { return !harness.log.empty(); }));
  EXPECT_LT(world.simulation->NowNs() - start_ns, kMs);
  ASSERT_TRUE(world.Run([&] { return harness.peer(silent).quiet != 0; }));
  EXPECT_LT(world.simulation->NowNs() - start_ns, kDeadPeerNs + kMs);  // three attempts
  EXPECT_GT(world.simulation->NowNs() - start_ns, kDeadPeerNs / 2);
  EXPECT_TRUE(harness.quiet());
}

TEST(DciPoolProbation, EndsWithAnAnswerAndBeginsWithAnError) {
  World world({.dci_count = 1});
  PoolHarness& harness = *world.harness;
  const uint32_t peer = harness.Add(true, 1);
  Target& target = harness.target(peer);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(harness.Send(peer));
  EXPECT_EQ(target.dci, 1);
  EXPECT_TRUE(harness.pool().scarce(target));
  ASSERT_TRUE(world.Run([&] { return harness.peer(peer).acknowledged == 20; }));
  EXPECT_FALSE(target.probation);
  EXPECT_EQ(target.dci, 0);
  EXPECT_EQ(harness.peer(peer).duplicates, 0u);
  world.simulation->FailNext({.node = 0, .status = IBV_WC_RNR_RETRY_EXC_ERR});
  ASSERT_TRUE(harness.Send(peer));
  ASSERT_TRUE(world.Run([&] { return target.probation; }));
  EXPECT_EQ(target.failures, 1);
  ASSERT_TRUE(world.Run([&] { return harness.peer(peer).acknowledged == 21; }));
  EXPECT_EQ(target.dci, 1);
  EXPECT_EQ(target.failures, 0);
  EXPECT_FALSE(target.probation);
}

// Its device answers, and its program does not read: too many others have sent it something.
TEST(DciPoolProbation, ControlMessagesThatFindNoReceiveBufferEndNobody) {
  World world({.dci_count = 1});
  PoolHarness& harness = *world.harness;
  const uint32_t peer = harness.AddKnown(1);
  const Target& target = harness.target(peer);
  for (size_t sent = 1; sent <= 2 * DciPool::kMaxFailures; ++sent) {
    world.simulation->FailNext({.node = 0, .status = IBV_WC_RNR_RETRY_EXC_ERR});
    harness.SendControl(peer, /*notify=*/true);
    ASSERT_TRUE(world.Run([&] { return harness.log.size() == sent && !target.broken; }));
    EXPECT_TRUE(target.crowded);
    EXPECT_TRUE(target.probation);
    EXPECT_FALSE(target.closed);
  }
  EXPECT_EQ(target.failures, 0);
}

TEST(DciPoolProbation, AControlMessageThatArrivesEndsARowOfFailuresIfNoDataIsOut) {
  World world({.dci_count = 1});
  PoolHarness& harness = *world.harness;
  const uint32_t peer = harness.AddKnown(1);
  const Target& target = harness.target(peer);
  size_t sent = 0;
  for (int round = 0; round < 2; ++round) {
    for (int failure = 1; failure < DciPool::kMaxFailures; ++failure) {
      world.simulation->FailNext({.node = 0, .status = IBV_WC_RETRY_EXC_ERR});
      harness.SendControl(peer, /*notify=*/true);
      ++sent;
      ASSERT_TRUE(world.Run([&] { return harness.log.size() == sent && !target.broken; }));
      EXPECT_EQ(target.failures, failure);
    }
    harness.SendControl(peer, /*notify=*/true);
    ++sent;
    ASSERT_TRUE(world.Run([&] { return harness.log.size() == sent; }));
    EXPECT_EQ(target.failures, 0);
  }
}

// Its target for data may be gone, and that for control not.
TEST(DciPoolFailures, AreNotTakenBackByControlRequestsWhileDataIsUnacknowledged) {
  World world({.dci_count = 1});
  PoolHarness& harness = *world.harness;
  const uint32_t peer = harness.AddKnown(1);
  harness.target(peer).unacknowledged = 1;
  for (int round = 1; round < DciPool::kMaxFailures; ++round) {
    world.simulation->FailNext({.node = 0, .status = IBV_WC_RETRY_EXC_ERR});
    harness.SendControl(peer);
    ASSERT_TRUE(world.Run([&] { return harness.peer(peer).resets == round; })) << round;
    harness.SendControl(peer);
    ASSERT_TRUE(world.Run([&] { return !harness.target(peer).probation; }));
    EXPECT_EQ(harness.target(peer).failures, round);
  }
  world.simulation->FailNext({.node = 0, .status = IBV_WC_RETRY_EXC_ERR});
  harness.SendControl(peer);
  ASSERT_TRUE(world.Run([&] { return harness.peer(peer).failed == 1; }));
}

TEST(DciPoolLeave, WhoIsAcknowledgedGoesOnWhereCompletionsAreNotWithheld) {
  World world({.dci_count = 2, .send_depth = 64});
  PoolHarness& harness = *world.harness;
  const uint32_t healthy = harness.AddKnown(1);
  const uint32_t silent = harness.AddKnown(2);
  world.simulation->Kill(2);
  ASSERT_TRUE(harness.Send(silent));
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(harness.Send(healthy));
    ASSERT_TRUE(world.Run(
        [&] { return harness.peer(healthy).acknowledged == harness.peer(healthy).sent; }, kMs))
        << i;
  }
  EXPECT_EQ(harness.pool().counters().leaves, 1u);
  EXPECT_EQ(harness.target(healthy).dci, 1);
  EXPECT_EQ(harness.pool().counters().failed, 0u);  // all before the first attempt had ended
  ASSERT_TRUE(world.Run([&] { return harness.peer(silent).quiet != 0; }));
  EXPECT_EQ(harness.peer(healthy).resets, 0);
  EXPECT_EQ(harness.peer(healthy).duplicates, 0u);
  // The next request answers for what was not signalled.
  harness.SendControl(healthy, /*notify=*/true);
  const uint32_t another = harness.AddKnown(1);
  harness.SendControl(another, /*notify=*/true);
  EXPECT_EQ(harness.target(another).dci, 0);
  ASSERT_TRUE(world.Run([&] { return harness.quiet(); }));
  EXPECT_EQ(harness.pool().counters().dci_recoveries, 0u);
}

TEST(DciPoolLeave, BuffersAreLeftForTheOtherDci) {
  World world({.dci_count = 2, .send_depth = 64}, /*data_slots=*/64);
  PoolHarness& harness = *world.harness;
  for (int i = 0; i < 8; ++i) harness.AddKnown(1);
  const uint32_t silent = harness.AddKnown(2);
  world.simulation->Kill(2);
  ASSERT_TRUE(harness.Send(silent));
  for (uint32_t i = 0; i < 20; ++i) {
    for (uint32_t peer = 0; peer < 8; ++peer) ASSERT_TRUE(harness.Send(peer)) << i;
    ASSERT_TRUE(world.Run(
        [&] {
          for (uint32_t peer = 0; peer < 8; ++peer) {
            if (harness.peer(peer).acknowledged != i + 1) return false;
          }
          return true;
        },
        kMs));
  }
}

TEST(DciPoolLeave, NotWhileSomethingPostedIsUnacknowledged) {
  World world({.dci_count = 2, .send_depth = 64});
  PoolHarness& harness = *world.harness;
  const uint32_t healthy = harness.AddKnown(1);
  const uint32_t silent = harness.AddKnown(2);
  world.simulation->Kill(2);
  ASSERT_TRUE(harness.Send(silent));
  harness.deaf = true;
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(harness.Send(healthy));
  ASSERT_TRUE(world.Run([&] { return harness.peer(healthy).arrived == 16; }));
  EXPECT_FALSE(world.Run([&] { return harness.peer(healthy).arrived != 16; }, kMs));
  EXPECT_EQ(harness.target(healthy).posted, 16);  // the cap
  EXPECT_EQ(harness.target(healthy).dci, 0);
  harness.deaf = false;
  EXPECT_TRUE(world.Run([&] { return harness.peer(healthy).acknowledged == 40; }, kMs));
  EXPECT_EQ(harness.target(healthy).dci, 1);
  // An error of the stream that was left is nobody's.
  EXPECT_EQ(harness.pool().counters().failed, 0u);
}

// What is reported keeps its place: an answer without which the peer takes no message.
TEST(DciPoolLeave, NotPastAControlRequestThatIsReported) {
  World world({.dci_count = 1, .send_depth = 64});
  PoolHarness& harness = *world.harness;
  const uint32_t fresh = harness.Add(true, 1);
  const uint32_t silent = harness.Add(true, 2);
  world.simulation->Kill(2);
  harness.SendControl(fresh);  // its completion ends the probation
  ASSERT_TRUE(harness.Send(silent));
  harness.SendControl(fresh, /*notify=*/true);
  ASSERT_TRUE(harness.Send(fresh));
  ASSERT_TRUE(world.Run([&] { return harness.peer(fresh).arrived == 1; }));
  EXPECT_FALSE(harness.target(fresh).probation);
  EXPECT_EQ(harness.log, std::vector<std::string>{"target 0 sent"});
}

TEST(DciPoolLeave, ErrorOnAStreamThatWasLeftResetsThatStreamAndNothingElse) {
  World world({.dci_count = 2, .send_depth = 64});
  PoolHarness& harness = *world.harness;
  const uint32_t peer = harness.AddKnown(1);
  const uint32_t silent = harness.AddKnown(2);
  world.simulation->Kill(2);
  ASSERT_TRUE(harness.Send(silent));
  for (int i = 0; i < 15; ++i) ASSERT_TRUE(harness.Send(peer));
  ASSERT_TRUE(world.Run([&] { return harness.peer(peer).acknowledged == 15; }));
  // The last that fits there is a control message, and fails.
  world.simulation->FailNext({.node = 0, .peer = 1, .status = IBV_WC_RNR_RETRY_EXC_ERR});
  harness.SendControl(peer);
  ASSERT_TRUE(harness.Send(peer));
  ASSERT_TRUE(world.Run([&] { return harness.peer(peer).acknowledged == 16; }));
  EXPECT_EQ(harness.target(peer).dci, 1);
  ASSERT_TRUE(world.Run([&] { return harness.pool().counters().stream_resets == 2; }));
  EXPECT_EQ(harness.peer(peer).resets, 0);
  EXPECT_EQ(harness.target(peer).failures, 0);
  EXPECT_FALSE(harness.target(peer).probation);
  // Its owner hears that the control message may be lost.
  EXPECT_EQ(harness.peer(peer).control_lost, 1);
}

// What it left on another DCI without having asked for a completion may stand there for long: it says nothing about what the
// target may post here.
TEST(DciPoolLeave, WithoutStreamsWhatItLeftBehindIsNotItsCap) {
  constexpr int kCap = 16;  // a quarter of the depth; every eighth request is signalled
  constexpr int kUnasked = 7;
  constexpr int kRoom = 22;  // of a DCI: a third of the buffers
  World world({.dci_count = 2, .send_depth = 64, .use_streams = false}, /*data_slots=*/3 * kRoom);
  PoolHarness& harness = *world.harness;
  const uint32_t healthy = harness.AddKnown(1);
  const uint32_t other = harness.AddKnown(1);
  const uint32_t silent = harness.AddKnown(2);
  for (const uint32_t peer : {healthy, other}) {
    for (int i = 0; i < kUnasked; ++i) ASSERT_TRUE(harness.Send(peer));
    ASSERT_TRUE(world.Run([&] { return harness.peer(peer).acknowledged == kUnasked; }));
    ASSERT_EQ(harness.target(peer).posted, kUnasked);
  }
  ASSERT_EQ(harness.target(healthy).dci, 0);
  ASSERT_EQ(harness.target(other).dci, 1);
  world.simulation->Kill(2);
  for (int i = 0; i < kCap; ++i) ASSERT_TRUE(harness.Send(silent));
  ASSERT_EQ(harness.target(silent).dci, 0);  // which is full now
  for (int i = 0; i < kCap; ++i) ASSERT_TRUE(harness.Send(healthy));
  ASSERT_TRUE(world.Run([&] { return harness.target(healthy).posted > kCap; }, kMs));
  EXPECT_EQ(harness.target(healthy).dci, 1);
  ASSERT_TRUE(world.Run([&] { return harness.peer(healthy).kept.empty(); }, kMs));
  EXPECT_EQ(harness.pool().counters().failed, 0u);
}

TEST(DciPoolReset, OneFlushAndOneResetAndNoTimer) {
  World world({.dci_count = 1});
  PoolHarness& harness = *world.harness;
  const uint32_t peer = harness.AddKnown(1);
  const uint32_t neighbour = harness.AddKnown(2);
  world.simulation->FailNext({.node = 0, .peer = 1, .skip = 3, .status = IBV_WC_RNR_RETRY_EXC_ERR});
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(harness.Send(peer));
    ASSERT_TRUE(harness.Send(neighbour));
  }
  ASSERT_TRUE(world.Run([&] { return harness.target(peer).broken; }));
  const int64_t error_ns = world.simulation->NowNs();
  ASSERT_TRUE(world.Run([&] { return harness.peer(peer).resets == 1; }));
  EXPECT_LT(world.simulation->NowNs() - error_ns, 50'000);  // a command takes up to 41 µs here
  ASSERT_TRUE(world.Run([&] {
    return harness.peer(peer).acknowledged == 10 && harness.peer(neighbour).acknowledged == 10;
  }));
  EXPECT_EQ(harness.pool().counters().failed, 1u);
  EXPECT_EQ(harness.pool().counters().stream_resets, 1u);
  EXPECT_EQ(harness.pool().counters().dci_recoveries, 0u);
  EXPECT_EQ(harness.peer(neighbour).resets, 0);
  EXPECT_EQ(harness.peer(neighbour).duplicates, 0u);
}

void DeadInRts(bool streams) {
  World world({.dci_count = 1, .use_streams = streams});
  PoolHarness& harness = *world.harness;
  const uint32_t peer = harness.AddKnown(1);
  ASSERT_TRUE(harness.Send(peer));
  ASSERT_TRUE(world.Run([&] { return harness.peer(peer).acknowledged == 1; }));
  world.simulation->MakeDciDeadInRts(world.dcis[0]);
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(harness.Send(peer));
  const int64_t start_ns = world.simulation->NowNs();
  ASSERT_TRUE(world.Run([&] { return harness.peer(peer).acknowledged == 41; }, 10'000 * kMs,
                        world.AttemptNs(),
                        [&] { harness.pool().Watch(world.simulation->NowNs()); }));
  EXPECT_EQ(harness.pool().counters().stuck_dcis, 1u);
  EXPECT_EQ(harness.pool().counters().dci_recoveries, 1u);
  EXPECT_EQ(harness.peer(peer).resets, 1);
  EXPECT_EQ(harness.target(peer).failures, 0);  // not to blame
  EXPECT_GE(world.simulation->NowNs() - start_ns, DciPool::kWatchAttempts * world.AttemptNs());
  EXPECT_LE(world.simulation->NowNs() - start_ns,
            (DciPool::kWatchAttempts + 2) * world.AttemptNs() + kMs);
  harness.SendControl(peer, /*notify=*/true);
  ASSERT_TRUE(world.Run([&] { return harness.quiet(); }));
}

TEST(DciPoolWatch, DciThatIsDeadInRtsIsTakenThroughReset) { DeadInRts(true); }
TEST(DciPoolWatch, LikewiseWithoutStreams) { DeadInRts(false); }

// Requests for whose completion nobody asked: nothing is due that could be missed.
void DeadAndOwesNothing(const std::function<void(PoolHarness&, uint32_t)>& send) {
  World world({.dci_count = 1});
  PoolHarness& harness = *world.harness;
  const uint32_t peer = harness.AddKnown(1);
  world.simulation->MakeDciDeadInRts(world.dcis[0]);
  send(harness, peer);
  harness.Pass();
  EXPECT_TRUE(harness.pool().completions_due());
  ASSERT_TRUE(world.Run([&] { return harness.pool().counters().dci_recoveries == 1; }, 10'000 * kMs,
                        world.AttemptNs(),
                        [&] { harness.pool().Watch(world.simulation->NowNs()); }));
  EXPECT_EQ(harness.pool().counters().stuck_dcis, 1u);
  ASSERT_TRUE(world.Run(
      [&] { return harness.quiet() && harness.peer(peer).acknowledged == harness.peer(peer).sent; },
      10'000 * kMs, world.AttemptNs(), [&] { harness.pool().Watch(world.simulation->NowNs()); }));
  ASSERT_TRUE(harness.Send(peer));
  ASSERT_TRUE(
      world.Run([&] { return harness.peer(peer).acknowledged == harness.peer(peer).sent; }));
  EXPECT_EQ(harness.target(peer).failures, 0);  // it has answered
  EXPECT_FALSE(harness.target(peer).probation);
}

TEST(DciPoolWatch, DeadDciWithTheMessageThatUsedTheLastCreditIsFound) {
  DeadAndOwesNothing([](PoolHarness& harness, uint32_t peer) { EXPECT_TRUE(harness.Send(peer)); });
}
TEST(DciPoolWatch, DeadDciWithAControlRequestAloneIsFound) {
  DeadAndOwesNothing([](PoolHarness& harness, uint32_t peer) { harness.SendControl(peer); });
}

// Asked for something more, the target would send it by the DCI where it goes now, and nobody uses the other one.
TEST(DciPoolWatch, TailOnADciThatItsTargetHasLeftIsAskedForThere) {
  World world({.dci_count = 2, .send_depth = 64});
  PoolHarness& harness = *world.harness;
  const uint32_t healthy = harness.AddKnown(1);
  const uint32_t silent = harness.AddKnown(2);
  const uint32_t silent_too = harness.AddKnown(2);
  const auto send_until_on = [&](int dci) {
    while (harness.target(healthy).dci != dci) {
      ASSERT_TRUE(harness.Send(healthy));
      ASSERT_TRUE(world.Run(
          [&] { return harness.peer(healthy).acknowledged == harness.peer(healthy).sent; }));
    }
  };
  // It leaves the first DCI, and then the second one for the first.
  world.simulation->Kill(2);
  ASSERT_TRUE(harness.Send(silent));
  send_until_on(1);
  ASSERT_TRUE(harness.Send(silent_too));
  ASSERT_EQ(harness.target(silent_too).dci, 1);
  send_until_on(0);
  ASSERT_TRUE(world.Run(
      [&] { return harness.peer(silent).quiet != 0 && harness.peer(silent_too).quiet != 0; }));
  EXPECT_FALSE(harness.quiet());
  ASSERT_TRUE(world.Run([&] { return harness.quiet(); }, 10'000 * kMs, world.AttemptNs(),
                        [&] { harness.pool().Watch(world.simulation->NowNs()); }));
  EXPECT_EQ(harness.pool().counters().dci_recoveries, 0u);
  EXPECT_EQ(harness.peer(healthy).resets, 0);
}

TEST(DciPoolWatch, SilentPeerIsNoDeadDci) {
  World world({.dci_count = 1});
  PoolHarness& harness = *world.harness;
  const uint32_t silent = harness.AddKnown(2);
  world.simulation->Kill(2);
  ASSERT_TRUE(harness.Send(silent));
  harness.SendControl(silent, /*notify=*/true);
  ASSERT_TRUE(world.Run([&] { return harness.peer(silent).quiet != 0; }, 10'000 * kMs,
                        world.AttemptNs() / 8,
                        [&] { harness.pool().Watch(world.simulation->NowNs()); }));
  EXPECT_EQ(harness.pool().counters().stuck_dcis, 0u);
  EXPECT_FALSE(harness.pool().completions_due());
}

TEST(DciPoolWatch, LongRestIsNoDeath) {
  World world({.dci_count = 1});
  PoolHarness& harness = *world.harness;
  const uint32_t peer = harness.AddKnown(1);
  for (int i = 0; i < 3; ++i) {
    harness.SendControl(peer, /*notify=*/true);
    harness.pool().Flush();
    EXPECT_TRUE(harness.pool().Watch(world.simulation->NowNs()));
    ASSERT_TRUE(world.Run([&] { return harness.log.size() == i + 1u; }));
    EXPECT_FALSE(harness.pool().Watch(world.simulation->NowNs()));
    world.simulation->RunFor(10 * world.AttemptNs());
  }
  EXPECT_EQ(harness.pool().counters().stuck_dcis, 0u);
}

// The thread that polls did not run for longer than the limit: the completions lie in the queue.
TEST(DciPoolWatch, LatePollerIsNoDeath) {
  World world({.dci_count = 1});
  PoolHarness& harness = *world.harness;
  const uint32_t peer = harness.AddKnown(1);
  harness.SendControl(peer, /*notify=*/true);
  harness.pool().Flush();
  EXPECT_TRUE(harness.pool().Watch(world.simulation->NowNs()));
  world.simulation->RunFor(2 * DciPool::kWatchAttempts * world.AttemptNs());
  harness.pool().Watch(world.simulation->NowNs());
  EXPECT_EQ(harness.pool().counters().stuck_dcis, 0u);
  EXPECT_EQ(harness.log.size(), 1u);
  EXPECT_FALSE(harness.pool().completions_due());
}

// Nor is the time for which it did not run the time that the device tried a request: the limit would be twice that from then on.
TEST(DciPoolWatch, LatePollerIsNoSlowDevice) {
  World world({.dci_count = 1});
  PoolHarness& harness = *world.harness;
  const uint32_t peer = harness.AddKnown(1);
  world.simulation->FailNext({.node = 0, .status = IBV_WC_RETRY_EXC_ERR});
  harness.SendControl(peer, /*notify=*/true);
  harness.pool().Flush();
  EXPECT_TRUE(harness.pool().Watch(world.simulation->NowNs()));
  world.simulation->RunFor(100 * DciPool::kWatchAttempts * world.AttemptNs());
  harness.pool().Watch(world.simulation->NowNs());
  EXPECT_EQ(harness.log.size(), 1u) << "the failure was not found";
  EXPECT_LE(harness.pool().counters().longest_attempt_ns, world.AttemptNs());
}

// The device refuses to bring it back: whoever was there goes on with another.
TEST(DciPoolBury, TargetsOfADciThatCannotBeRecoveredMoveToAnother) {
  World world({.dci_count = 2, .use_streams = false});
  PoolHarness& harness = *world.harness;
  const uint32_t peer = harness.AddKnown(1);
  refuse_reset = true;
  world.simulation->FailNext({.node = 0, .skip = 3, .status = IBV_WC_GENERAL_ERR});
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(harness.Send(peer));
  ASSERT_TRUE(world.Run([&] { return harness.peer(peer).acknowledged == 10; }));
  EXPECT_EQ(harness.peer(peer).resets, 1);
  EXPECT_NE(harness.target(peer).dci, 0);
  EXPECT_TRUE(harness.queue_dead.empty());
  // The next two as well: then there is none left.
  for (int i = 0; i < 2; ++i) {
    world.simulation->FailNext({.node = 0, .status = IBV_WC_GENERAL_ERR});
    ASSERT_TRUE(harness.Send(peer));
    ASSERT_TRUE(world.Run(
        [&] { return harness.peer(peer).resets == 2 + i || !harness.queue_dead.empty(); }));
    if (i == 0) {
      ASSERT_TRUE(world.Run([&] { return harness.peer(peer).acknowledged == 11; }));
    }
  }
  EXPECT_EQ(harness.queue_dead.size(), 1u);
}

TEST(DciPoolTurns, WhoSendsWithoutEndGivesItsStreamUpToOthers) {
  World world({.dci_count = 1, .max_log_streams = 0});
  PoolHarness& harness = *world.harness;
  const uint32_t greedy = harness.AddKnown(1);
  const uint32_t other = harness.AddKnown(2);
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(harness.Send(greedy));
  ASSERT_TRUE(harness.Send(other));
  EXPECT_EQ(harness.target(other).posted, 0);
  ASSERT_TRUE(world.Run(
      [&] {
        while (harness.peer(greedy).kept.size() < 200) {
          if (!harness.Send(greedy)) break;
        }
        return harness.peer(other).acknowledged == 1;
      },
      kMs));
  EXPECT_LT(harness.peer(greedy).acknowledged, 300u);
}

}  // namespace dci_pool_sim_test
}  // namespace sluice::queue
