// SPDX-License-Identifier: Apache-2.0
//
// The pool on devices whose firmware does what the specification allows and softdc does not do by default, in virtual time.
#include <functional>
#include <string>

#include "gtest/gtest.h"
#include "tests/transport/queue/pool_world.h"
#include "transport/softdc/config/config.h"

namespace sluice::queue {
namespace firmware_test {

softdc::Dials DialsOf(const std::string& text) {
  const auto dials = softdc::ParseDials(text);
  EXPECT_TRUE(dials.ok()) << dials.status();
  return dials.value_or(softdc::Dials());
}

constexpr int64_t kLimitNs = 100'000 * kMs;

// A world that is watched as an endpoint watches its pool.
class Firmware {
 public:
  explicit Firmware(const std::string& dials, PoolOptions options = {.dci_count = 1})
      : world_(options, /*data_slots=*/512, DialsOf(dials)) {}

  bool Run(const std::function<bool()>& done) {
    return world_.Run(done, kLimitNs, world_.AttemptNs(),
                      [&] { harness().pool().Watch(simulation().NowNs()); });
  }
  bool RunUntilAcknowledged(uint32_t peer) {
    return Run([&] { return harness().peer(peer).acknowledged == harness().peer(peer).sent; });
  }
  PoolHarness& harness() { return *world_.harness; }
  const PoolCounters& counters() { return harness().pool().counters(); }
  Simulation& simulation() { return *world_.simulation; }
  int64_t AttemptNs() const { return world_.AttemptNs(); }

 private:
  World world_;
};

// IBA: a time-out is one to four times the nominal one.
TEST(FirmwareRetries, OfFourTimesTheTimeAreNoDeadDci) {
  Firmware firmware("retries { timeout_factor: 4 }");
  PoolHarness& harness = firmware.harness();
  const uint32_t healthy = harness.AddKnown(1);
  const uint32_t silent = harness.AddKnown(2);
  firmware.simulation().Kill(2);
  ASSERT_TRUE(harness.Send(silent));
  harness.SendControl(silent, /*notify=*/true);
  ASSERT_TRUE(harness.Send(healthy));
  ASSERT_TRUE(firmware.Run([&] { return harness.peer(silent).quiet != 0; }));
  EXPECT_EQ(firmware.counters().stuck_dcis, 0u);
  EXPECT_EQ(firmware.counters().dci_recoveries, 0u);
  EXPECT_EQ(harness.peer(healthy).resets, 0);
  EXPECT_EQ(harness.peer(silent).failed, 1);
  // Found, and to be reported.
  EXPECT_TRUE(harness.pool().slow_retries());
  EXPECT_GE(firmware.counters().longest_attempt_ns, 3 * firmware.AttemptNs());
  EXPECT_LE(firmware.counters().longest_attempt_ns, 4 * firmware.AttemptNs());
}

TEST(FirmwareRetries, OfTheTimeThatWasAskedForAreNotSlow) {
  Firmware firmware("");
  PoolHarness& harness = firmware.harness();
  const uint32_t silent = harness.AddKnown(2);
  firmware.simulation().Kill(2);
  ASSERT_TRUE(harness.Send(silent));
  harness.SendControl(silent, /*notify=*/true);
  ASSERT_TRUE(firmware.Run([&] { return harness.peer(silent).quiet != 0; }));
  EXPECT_FALSE(harness.pool().slow_retries());
  EXPECT_LE(firmware.counters().longest_attempt_ns, firmware.AttemptNs());
}

// The device tries for longer than the watchdog waits: it can't be told from a dead DCI. The silent peer is found out all the
// same, and its neighbours are disturbed once.
void RetriesOutlastTheWatchdog(const std::string& dials, bool streams) {
  SCOPED_TRACE(dials);
  Firmware firmware(dials, {.dci_count = 1, .use_streams = streams});
  PoolHarness& harness = firmware.harness();
  const uint32_t healthy = harness.AddKnown(1);
  const uint32_t silent = harness.AddKnown(2);
  firmware.simulation().Kill(2);
  // The neighbour's is in front: unsignalled, and perhaps what the queue waits for.
  ASSERT_TRUE(harness.Send(healthy));
  ASSERT_TRUE(harness.Send(silent));
  harness.SendControl(silent, /*notify=*/true);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(harness.Send(healthy));
  ASSERT_TRUE(firmware.RunUntilAcknowledged(healthy));
  ASSERT_TRUE(firmware.Run([&] { return harness.peer(silent).failed != 0; }));
  EXPECT_EQ(harness.target(silent).posted, 0u);
  EXPECT_NE(harness.peer(silent).why.message().find("has completed nothing for"),
            absl::string_view::npos)
      << harness.peer(silent).why;
  EXPECT_EQ(firmware.counters().stuck_dcis, uint64_t{DciPool::kMaxFailures});
  EXPECT_LE(harness.peer(healthy).resets, 1);
  EXPECT_EQ(harness.peer(healthy).failed, 0);
  ASSERT_TRUE(harness.Send(healthy));
  ASSERT_TRUE(firmware.RunUntilAcknowledged(healthy));
  EXPECT_EQ(harness.target(healthy).failures, 0);
  EXPECT_FALSE(harness.target(healthy).probation);
}

TEST(FirmwareRetries, PeerThatHoldsUpADciForEverIsFoundAndClosed) {
  RetriesOutlastTheWatchdog("retries { timeout_factor: 16 }", /*streams=*/true);
  RetriesOutlastTheWatchdog("retries { min_timeout: 18 }", /*streams=*/true);
  RetriesOutlastTheWatchdog("retries { total_retry_ns: 30000000000 }", /*streams=*/true);
}
TEST(FirmwareRetries, LikewiseWithoutStreams) {
  RetriesOutlastTheWatchdog("retries { timeout_factor: 16 }", /*streams=*/false);
}
TEST(FirmwareRetries, LikewiseWhereOneErrorStopsTheDci) {
  RetriesOutlastTheWatchdog("streams { max_log_errored: 0 } retries { timeout_factor: 16 }",
                            /*streams=*/true);
}

// What much real firmware reports: there are streams, and the first error stops all of them.
TEST(FirmwareErrored0, DeadPeerIsClosedAndItsNeighboursLoseNothing) {
  Firmware firmware("streams { max_log_errored: 0 }");
  PoolHarness& harness = firmware.harness();
  const uint32_t healthy = harness.AddKnown(1);
  const uint32_t silent = harness.AddKnown(2);
  EXPECT_TRUE(harness.pool().streams());
  firmware.simulation().Kill(2);
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(harness.Send(healthy));
    if (i % 25 == 0) {
      ASSERT_TRUE(harness.Send(silent));
    }
    if (i % 7 == 0) harness.Pass();
  }
  ASSERT_TRUE(firmware.Run([&] { return harness.peer(silent).quiet != 0; }));
  ASSERT_TRUE(firmware.RunUntilAcknowledged(healthy));
  EXPECT_EQ(harness.peer(healthy).failed, 0);
  EXPECT_EQ(firmware.counters().failed, uint64_t{DciPool::kMaxFailures});
  ASSERT_TRUE(firmware.Run(
      [&] { return firmware.counters().dci_recoveries == uint64_t{DciPool::kMaxFailures}; }));
  EXPECT_EQ(firmware.counters().stream_resets, 0u);
  EXPECT_EQ(firmware.counters().stuck_dcis, 0u);
  harness.SendControl(healthy, /*notify=*/true);
  ASSERT_TRUE(firmware.Run([&] { return harness.quiet(); }));
}

// The state says ERR only some time after the completion that spends the budget.
TEST(FirmwareErrored0, LateErrorStateIsNoDifference) {
  Firmware firmware("streams { max_log_errored: 0 error_state_delay_ns: 5000000 }");
  PoolHarness& harness = firmware.harness();
  const uint32_t healthy = harness.AddKnown(1);
  const uint32_t other = harness.AddKnown(2);
  for (int round = 0; round < 5; ++round) {
    firmware.simulation().FailNext({.node = 0, .peer = 2, .status = IBV_WC_RNR_RETRY_EXC_ERR});
    ASSERT_TRUE(harness.Send(other));
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(harness.Send(healthy));
    ASSERT_TRUE(firmware.RunUntilAcknowledged(other));
    ASSERT_TRUE(firmware.RunUntilAcknowledged(healthy));
  }
  EXPECT_EQ(firmware.counters().dci_recoveries, 5u);
}

// A peer whose connection ended: its requests fail after their retries, and the DCI stops. Whoever can take another DCI loses nothing.
void ClosedPeerDisturbsNobody(const std::string& dials, bool streams) {
  SCOPED_TRACE(dials);
  Firmware firmware(dials, {.dci_count = 2, .use_streams = streams});
  PoolHarness& harness = firmware.harness();
  const uint32_t gone = harness.AddKnown(2);
  const uint32_t healthy = harness.AddKnown(1);
  firmware.simulation().Kill(2);
  ASSERT_TRUE(harness.Send(gone));
  ASSERT_EQ(harness.target(gone).dci, 0);
  harness.pool().Close(&harness.target(gone));
  harness.Forget(gone);
  while (firmware.counters().failed == 0) {
    ASSERT_TRUE(harness.Send(healthy));
    ASSERT_EQ(harness.target(healthy).dci, 1);
    const int64_t until_ns = firmware.simulation().NowNs() + kMs;
    firmware.simulation().After(kMs, [] {});
    ASSERT_TRUE(firmware.Run([&] { return firmware.simulation().NowNs() >= until_ns; }));
  }
  ASSERT_TRUE(firmware.Run([&] { return firmware.counters().dci_recoveries == 1; }));
  EXPECT_EQ(harness.peer(healthy).resets, 0);
  ASSERT_TRUE(firmware.RunUntilAcknowledged(healthy));
  ASSERT_TRUE(harness.Send(healthy));
  EXPECT_EQ(harness.target(healthy).dci, 0);
  ASSERT_TRUE(firmware.RunUntilAcknowledged(healthy));
}

TEST(FirmwareErrored0, RequestsOfAClosedPeerDisturbNobodyWhereThereIsAnotherDci) {
  ClosedPeerDisturbsNobody("streams { max_log_errored: 0 }", /*streams=*/true);
  ClosedPeerDisturbsNobody("streams { max_log_errored: 0 error_state_delay_ns: 5000000 }",
                           /*streams=*/true);
  ClosedPeerDisturbsNobody("", /*streams=*/false);
}

// They have run, and nobody has asked: when they had time enough to fail, the DCI is as good as any.
TEST(FirmwareErrored0, RequestsOfAClosedPeerThatDoNotFailAreForgiven) {
  Firmware firmware("streams { max_log_errored: 0 }", {.dci_count = 2});
  PoolHarness& harness = firmware.harness();
  const uint32_t closed = harness.AddKnown(2);
  const uint32_t healthy = harness.AddKnown(1);
  ASSERT_TRUE(harness.Send(closed));
  ASSERT_TRUE(firmware.RunUntilAcknowledged(closed));
  harness.pool().Close(&harness.target(closed));
  ASSERT_EQ(harness.target(closed).posted, 0);
  ASSERT_TRUE(harness.Send(healthy));
  EXPECT_EQ(harness.target(healthy).dci, 1);
  harness.SendControl(healthy, /*notify=*/true);
  ASSERT_TRUE(firmware.RunUntilAcknowledged(healthy));
  ASSERT_TRUE(firmware.Run([&] { return harness.target(healthy).posted == 0; }));
  const int64_t now_ns = firmware.simulation().NowNs();
  harness.pool().Watch(now_ns);
  harness.pool().Watch(now_ns + DciPool::kWatchAttempts * firmware.AttemptNs());
  ASSERT_TRUE(harness.Send(healthy));
  EXPECT_EQ(harness.target(healthy).dci, 0);
  // What it sends there answers for the others.
  ASSERT_TRUE(firmware.Run([&] { return harness.quiet(); }));
}

// Requests that nobody asked a completion for are flushed without one: they look as if they had succeeded.
void FlushedWithoutAWord(const std::string& dials, bool streams) {
  SCOPED_TRACE(dials);
  Firmware firmware("unknowns { unsignalled_flush: NO_COMPLETION } " + dials,
                    {.dci_count = 1, .use_streams = streams});
  PoolHarness& harness = firmware.harness();
  const uint32_t healthy = harness.AddKnown(1);
  const uint32_t other = harness.AddKnown(2);
  firmware.simulation().CutLink(0, 1);  // what is sent there is lost, until the DCI has stopped
  firmware.simulation().FailNext({.node = 0, .peer = 2, .status = IBV_WC_RNR_RETRY_EXC_ERR});
  ASSERT_TRUE(harness.Send(other));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(harness.Send(healthy));  // unsignalled
  ASSERT_TRUE(firmware.Run([&] { return firmware.counters().failed == 1; }));
  firmware.simulation().HealLink(0, 1);
  ASSERT_TRUE(firmware.RunUntilAcknowledged(other));
  ASSERT_TRUE(firmware.RunUntilAcknowledged(healthy));
  EXPECT_EQ(harness.peer(healthy).arrived, 3u);
  EXPECT_EQ(harness.peer(healthy).failed, 0);
}

TEST(FirmwareFlush, SilentOnesAreNotTakenForSuccesses) {
  FlushedWithoutAWord("", /*streams=*/false);
  FlushedWithoutAWord("streams { max_log_errored: 0 }", /*streams=*/true);
}

// The tail of an errored stream is flushed so, and nothing else is sent on that DCI.
TEST(FirmwareFlush, SilentTailOfAStreamIsFoundByTheWatchdog) {
  Firmware firmware("unknowns { unsignalled_flush: NO_COMPLETION }");
  PoolHarness& harness = firmware.harness();
  const uint32_t peer = harness.AddKnown(1);
  firmware.simulation().FailNext({.node = 0, .peer = 1, .status = IBV_WC_RNR_RETRY_EXC_ERR});
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(harness.Send(peer));  // unsignalled
  ASSERT_TRUE(firmware.RunUntilAcknowledged(peer));
  EXPECT_EQ(harness.peer(peer).arrived, 3u);
}

}  // namespace firmware_test
}  // namespace sluice::queue
