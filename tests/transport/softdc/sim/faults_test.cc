// SPDX-License-Identifier: Apache-2.0
//
// Each fault that a simulation can have, seen through the verbs.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/transport/softdc/sim/sim_nodes_test.h"
#include "transport/softdc/sim/simulation.h"

namespace sluice::softdc::sim {
namespace faults_test {

class FaultsTest : public SimNodesTest {
 protected:
  ibv_event_type NextAsyncEvent(SimNode& of) {
    ibv_async_event event{};
    if (of.api.get_async_event(of.context, &event) != 0) return static_cast<ibv_event_type>(-1);
    of.api.ack_async_event(&event);
    return event.event_type;
  }
  bool Works(uint16_t stream = 0) {
    if (node(0).Send(node(1), "works", 1, stream) != 0) return false;
    return node(0).AwaitSend().status == IBV_WC_SUCCESS &&
           node(1).Text(node(1).AwaitReceive()) == "works";
  }
};

TEST_F(FaultsTest, KilledPeerIsSilentAndItsReturnHasNoOldNumbers) {
  Options options;
  options.dials.features.reissue_dead_numbers = false;
  Build(options);
  ASSERT_TRUE(Works());
  const uint32_t old_number = node(1).dct->qp_num;
  simulation_->Kill(1);
  ASSERT_EQ(node(0).Send(node(1), "to the dead", 1), 0);
  EXPECT_EQ(node(0).AwaitSend().status, IBV_WC_RETRY_EXC_ERR);
  // What the dead process does has no effect, and no device opens.
  EXPECT_EQ(node(1).Send(node(0), "from the dead", 1), 0);
  EXPECT_EQ(node(0).AwaitReceive(1'000'000'000).status, -1);
  errno = 0;
  EXPECT_EQ(node(1).api.open_device(simulation_->Device(1)), nullptr);
  EXPECT_EQ(errno, ENODEV);
  simulation_->Revive(1);
  auto dead = std::move(nodes_[1]);
  nodes_[1] = std::make_unique<SimNode>(*simulation_, 1);
  EXPECT_NE(node(1).dct->qp_num, old_number);
  node(0).Recover();
  ASSERT_EQ(node(0).Send(*dead, "to the old number", 2), 0);
  EXPECT_EQ(node(0).AwaitSend().status, IBV_WC_RETRY_EXC_ERR);
  node(0).Recover();
  EXPECT_TRUE(Works());
}

TEST_F(FaultsTest, NumbersOfTheDeadAreIssuedAgainByDefault) {
  Build({});
  const uint32_t old_number = node(1).dct->qp_num;
  simulation_->Kill(1);
  simulation_->Revive(1);
  auto dead = std::move(nodes_[1]);
  nodes_[1] = std::make_unique<SimNode>(*simulation_, 1);
  EXPECT_EQ(node(1).dct->qp_num, old_number);
  EXPECT_TRUE(Works());
  dead.reset();  // closing what is dead does not disturb the living
  EXPECT_TRUE(Works());
}

TEST_F(FaultsTest, PausedNodeMovesNothingUntilItIsResumed) {
  Build({}, {.timeout = 14});  // 67 ms
  simulation_->Pause(1);
  ASSERT_EQ(node(0).Send(node(1), "later", 1), 0);
  EXPECT_EQ(node(1).AwaitReceive(10'000'000).status, -1);
  simulation_->Resume(1);
  EXPECT_EQ(node(1).Text(node(1).AwaitReceive(0)), "later");
  EXPECT_EQ(node(0).AwaitSend().status, IBV_WC_SUCCESS);
  simulation_->Pause(0);
  ASSERT_EQ(node(0).Send(node(1), "held at home", 2), 0);
  EXPECT_EQ(node(1).AwaitReceive(10'000'000).status, -1);
  simulation_->Resume(0);
  EXPECT_EQ(node(1).Text(node(1).AwaitReceive(0)), "held at home");
}

// The first was held by the target's port, and then behind the second, which the sender's port held.
TEST_F(FaultsTest, PausesOfBothEndsThatOverlapKeepTheOrder) {
  Build({}, {.timeout = 14});  // 67 ms
  simulation_->Pause(1);
  ASSERT_EQ(node(0).Send(node(1), "first", 1), 0);
  EXPECT_EQ(node(1).AwaitReceive(1'000'000).status, -1);
  simulation_->Pause(0);
  ASSERT_EQ(node(0).Send(node(1), "second", 2), 0);
  EXPECT_EQ(node(1).AwaitReceive(1'000'000).status, -1);
  simulation_->Resume(1);
  EXPECT_EQ(node(1).Text(node(1).AwaitReceive(0)), "first");
  EXPECT_EQ(node(1).AwaitReceive(1'000'000).status, -1);
  simulation_->Resume(0);
  EXPECT_EQ(node(1).Text(node(1).AwaitReceive(0)), "second");
}

TEST_F(FaultsTest, CutLinkLosesBothWaysAndOthersStandApart) {
  Build({.nodes = 3});
  simulation_->CutLink(0, 1);
  ASSERT_EQ(node(0).Send(node(1), "cut", 1, /*stream=*/1), 0);
  ASSERT_EQ(node(1).Send(node(0), "cut", 1, /*stream=*/1), 0);
  ASSERT_EQ(node(2).Send(node(1), "whole", 1), 0);
  EXPECT_EQ(node(1).Text(node(1).AwaitReceive()), "whole");
  EXPECT_EQ(node(0).AwaitSend().status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(node(1).AwaitSend().status, IBV_WC_RETRY_EXC_ERR);
  simulation_->HealLink(1, 0);
  EXPECT_TRUE(Works(/*stream=*/2));
}

TEST_F(FaultsTest, LinkHealedWithinTheRetriesCostsOnlyTime) {
  Build({});
  simulation_->CutLink(0, 1);
  simulation_->After(kTimeoutNs * 3 / 2, [&] { simulation_->HealLink(0, 1); });
  EXPECT_TRUE(Works());
}

TEST_F(FaultsTest, PortDownAndUpAreEventsAndLoseMessages) {
  Build({});
  simulation_->PortDown(1);
  EXPECT_EQ(NextAsyncEvent(node(1)), IBV_EVENT_PORT_ERR);
  ASSERT_EQ(node(0).Send(node(1), "lost", 1, /*stream=*/1), 0);
  EXPECT_EQ(node(0).AwaitSend().status, IBV_WC_RETRY_EXC_ERR);
  simulation_->PortUp(1);
  EXPECT_EQ(NextAsyncEvent(node(1)), IBV_EVENT_PORT_ACTIVE);
  EXPECT_TRUE(Works(/*stream=*/2));
}

TEST_F(FaultsTest, QueriedPortSaysWhetherItIsUp) {
  Build({});
  const auto state = [&] {
    ibv_port_attr port{};
    EXPECT_EQ(node(1).api.query_port(node(1).context, 1, &port), 0);
    return port.state;
  };
  EXPECT_EQ(state(), IBV_PORT_ACTIVE);
  simulation_->PortDown(1);
  EXPECT_EQ(state(), IBV_PORT_DOWN);
  simulation_->PortUp(1);
  EXPECT_EQ(state(), IBV_PORT_ACTIVE);
}

TEST_F(FaultsTest, UnpluggedDeviceIsInNoListAndComesBackAsAnother) {
  Build({});
  const auto listed = [&] {
    const Simulation::As as(*simulation_, 1);
    int count = -1;
    node(1).api.free_device_list(node(1).api.get_device_list(&count));
    return count;
  };
  EXPECT_EQ(listed(), 1);
  simulation_->Unplug(1);
  EXPECT_EQ(NextAsyncEvent(node(1)), IBV_EVENT_DEVICE_FATAL);
  EXPECT_EQ(listed(), 0);
  errno = 0;
  EXPECT_EQ(node(1).api.open_device(simulation_->Device(1)), nullptr);
  EXPECT_EQ(errno, ENODEV);
  ASSERT_EQ(node(0).Send(node(1), "to nobody", 1), 0);
  EXPECT_EQ(node(0).AwaitSend().status, IBV_WC_RETRY_EXC_ERR);

  simulation_->Plug(1);
  EXPECT_EQ(listed(), 1);
  auto gone = std::move(nodes_[1]);
  nodes_[1] = std::make_unique<SimNode>(*simulation_, 1);
  node(0).Recover();
  EXPECT_TRUE(Works());
  gone.reset();  // all of it can be freed
}

TEST_F(FaultsTest, GidChangeIsAnEventAndTheNewGidLeadsThere) {
  Build({});
  ibv_gid moved = Simulation::Gid(1);
  moved.raw[15] = 0xee;
  simulation_->SetGid(1, 0, moved);
  EXPECT_EQ(NextAsyncEvent(node(1)), IBV_EVENT_GID_CHANGE);
  ibv_gid seen{};
  ASSERT_EQ(node(1).api.query_gid(node(1).context, 1, 0, &seen), 0);
  EXPECT_EQ(std::memcmp(&seen, &moved, sizeof(seen)), 0);
  // A handle made for the old GID from now on leads nowhere.
  ASSERT_EQ(node(0).Send(node(1), "to the old GID", 1), 0);
  EXPECT_EQ(node(0).AwaitSend().status, IBV_WC_RETRY_EXC_ERR);
}

TEST_F(FaultsTest, FatalDeviceIsAnEventAndANewContextWorks) {
  Build({});
  simulation_->DeviceFatal(1);
  EXPECT_EQ(NextAsyncEvent(node(1)), IBV_EVENT_DEVICE_FATAL);
  ASSERT_EQ(node(0).Send(node(1), "to nobody", 1), 0);
  EXPECT_EQ(node(0).AwaitSend().status, IBV_WC_RETRY_EXC_ERR);
  auto dead = std::move(nodes_[1]);
  nodes_[1] = std::make_unique<SimNode>(*simulation_, 1);
  node(0).Recover();
  EXPECT_TRUE(Works());
}

TEST_F(FaultsTest, DciDeadInRtsSaysRtsAndDoesNothingUntilReset) {
  Build({});
  simulation_->MakeDciDeadInRts(node(0).dci);
  ASSERT_EQ(node(0).Send(node(1), "stuck", 1), 0);
  EXPECT_EQ(node(0).AwaitSend(10'000'000'000).status, -1);
  EXPECT_EQ(node(0).State(), IBV_QPS_RTS);
  node(0).Recover();
  EXPECT_TRUE(Works());
}

TEST_F(FaultsTest, RequestRulePicksByPeerStreamAndOpcode) {
  Options options;
  options.nodes = 3;
  options.faults.requests = {{.node = 0,
                              .peer = 2,
                              .stream = 5,
                              .opcode = IBV_WR_SEND,
                              .skip = 1,
                              .count = 1,
                              .status = IBV_WC_REM_OP_ERR}};
  Build(options, {.log_errored_streams = 3});
  ASSERT_EQ(node(0).Send(node(1), "other peer", 1, /*stream=*/5), 0);
  ASSERT_EQ(node(0).Send(node(2), "other stream", 2, /*stream=*/4), 0);
  ASSERT_EQ(node(0).Write(node(2), kArea, kArea, 8, 3, /*stream=*/5), 0);
  ASSERT_EQ(node(0).Send(node(2), "skipped", 4, /*stream=*/5), 0);
  ASSERT_EQ(node(0).Send(node(2), "hit", 5, /*stream=*/5), 0);
  for (uint64_t wr_id = 1; wr_id <= 4; ++wr_id) {
    const ibv_wc wc = node(0).AwaitSend();
    EXPECT_EQ(wc.wr_id, wr_id);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  }
  const ibv_wc hit = node(0).AwaitSend();
  EXPECT_EQ(hit.wr_id, 5u);
  EXPECT_EQ(hit.status, IBV_WC_REM_OP_ERR);
  EXPECT_EQ(node(2).Text(node(2).AwaitReceive()), "other stream");
  EXPECT_EQ(node(2).Text(node(2).AwaitReceive()), "skipped");
  EXPECT_EQ(node(2).AwaitReceive(1'000'000'000).status, -1);
}

// The one that spoils slots: a WRITE fails, its place is consumed and granted to another write,
// and then its bytes come.
TEST_F(FaultsTest, SendThatIsCarriedOutAndReportedAsFailed_HasArrivedOnce) {
  Build({});
  RequestRule rule;
  rule.status = IBV_WC_REM_OP_ERR;
  rule.carried_out = true;
  simulation_->FailNext(rule);
  EXPECT_FALSE(simulation_->HasRule(0, 1));  // it names neither
  ASSERT_EQ(node(0).Send(node(1), "there", 1), 0);
  EXPECT_EQ(node(0).AwaitSend().status, IBV_WC_REM_OP_ERR);
  EXPECT_EQ(node(1).Text(node(1).AwaitReceive()), "there");
  EXPECT_EQ(node(1).AwaitReceive(10'000'000).status, -1);
}

TEST_F(FaultsTest, SendThatFailsBehindOthersFailsAloneAndHasArrivedOnce) {
  Build({});
  simulation_->FailNext({.node = 0, .skip = 2, .carried_out = true});
  for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(node(0).Send(node(1), std::to_string(i), i), 0);
  for (uint64_t i = 0; i < 3; ++i) {
    const ibv_wc wc = node(0).AwaitSend();
    EXPECT_EQ(wc.wr_id, i);
    EXPECT_EQ(wc.status, i < 2 ? IBV_WC_SUCCESS : IBV_WC_RETRY_EXC_ERR) << i;
  }
  for (uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(node(1).Text(node(1).AwaitReceive()), std::to_string(i));
  }
  EXPECT_EQ(node(1).AwaitReceive(1'000'000'000).status, -1);
  EXPECT_EQ(simulation_->counters().timeouts, 0u);
}

TEST_F(FaultsTest, SendThatFailsBehindOneThatIsSentAgainHasArrivedOnce) {
  Build({});
  simulation_->FailNext({.node = 0, .skip = 1, .carried_out = true});
  simulation_->message_faults() = {.ack_loss_ppm = 1'000'000};
  ASSERT_EQ(node(0).Send(node(1), "first", 1), 0);
  ASSERT_EQ(node(0).Send(node(1), "fails", 2), 0);
  simulation_->RunFor(kTimeoutNs / 2);
  simulation_->message_faults() = {};
  EXPECT_EQ(node(0).AwaitSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(node(0).AwaitSend().status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(simulation_->counters().timeouts, 1u);
  EXPECT_EQ(node(1).Text(node(1).AwaitReceive()), "first");
  EXPECT_EQ(node(1).Text(node(1).AwaitReceive()), "fails");
  EXPECT_EQ(node(1).AwaitReceive(1'000'000'000).status, -1);
}

TEST_F(FaultsTest, RequestThatFailsBehindReadsFailsWhenTheyHaveBeenAnswered) {
  Build({}, {.reads = 4});
  RequestRule rule;
  rule.node = 0;
  rule.peer = 1;
  rule.skip = 2;
  simulation_->FailNext(rule);
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(node(0).Read(node(1), kArea, kArea, 4096, i), 0);
  EXPECT_TRUE(simulation_->HasRule(0, 1)) << "not told yet";
  for (uint64_t i = 0; i < 4; ++i) {
    const ibv_wc wc = node(0).AwaitSend();
    EXPECT_EQ(wc.wr_id, i);
    const ibv_wc_status status = i < 2    ? IBV_WC_SUCCESS
                                 : i == 2 ? IBV_WC_RETRY_EXC_ERR
                                          : IBV_WC_WR_FLUSH_ERR;
    EXPECT_EQ(wc.status, status) << i;
  }
  EXPECT_EQ(simulation_->counters().sent, 2u) << "nothing was sent again";
}

TEST_F(FaultsTest, RuleForTwoNodes_IsThereUntilItsFailureIsTold) {
  Build({.log = LogMode::kText});
  RequestRule rule;
  rule.node = 0;
  rule.peer = 1;
  simulation_->FailNext(rule);
  EXPECT_TRUE(simulation_->HasRule(0, 1));
  ASSERT_EQ(node(0).Send(node(1), "fails", 1), 0);
  while (simulation_->log().Text().find(" injected ") == std::string::npos) {
    ASSERT_TRUE(simulation_->Step());
  }
  EXPECT_TRUE(simulation_->HasRule(0, 1));  // used, and nobody knows
  EXPECT_EQ(node(0).AwaitSend().status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_FALSE(simulation_->HasRule(0, 1));
}

TEST_F(FaultsTest, Observer_HearsOfCompletionsFailuresAndEvents) {
  struct Ears final : Observer {
    void OnActivity(uint32_t node, Activity what) override { heard.emplace_back(node, what); }
    std::vector<std::pair<uint32_t, Activity>> heard;
  } ears;
  Build({});
  simulation_->SetObserver(&ears);
  using Heard = std::vector<std::pair<uint32_t, Activity>>;
  ASSERT_TRUE(Works());
  EXPECT_EQ(ears.heard, (Heard{{1, Activity::kCompletion}, {0, Activity::kCompletion}}));
  ears.heard.clear();
  simulation_->FailNext({});
  EXPECT_FALSE(Works());
  EXPECT_EQ(ears.heard, (Heard{{0, Activity::kFailure}}));
  ears.heard.clear();
  simulation_->PortDown(1);
  EXPECT_EQ(ears.heard, (Heard{{1, Activity::kEvent}}));
  simulation_->SetObserver(nullptr);
}

TEST_F(FaultsTest, DciDeadInRts_IsFoundByItsPlaceAmongTheNodesDcis) {
  Build({});
  EXPECT_FALSE(simulation_->MakeDciDeadInRts(0, 7));
  ASSERT_TRUE(simulation_->MakeDciDeadInRts(0, 0));
  ASSERT_EQ(node(0).Send(node(1), "nothing", 1), 0);
  EXPECT_EQ(node(0).AwaitSend(1'000'000'000).status, -1);
}

TEST_F(FaultsTest, WriteReportedAsFailedLandsLateOverWhatCameAfter) {
  Build({.log = LogMode::kText});
  constexpr int64_t kLateNs = 5'000'000;
  simulation_->FailNext({.node = 0, .opcode = IBV_WR_RDMA_WRITE, .lands_late_ns = kLateNs});
  std::memset(&node(0).slab[kArea], 'A', 64);
  std::memset(&node(0).slab[kArea + 64], 'B', 64);
  ASSERT_EQ(node(0).Write(node(1), kArea, kArea, 64, 1, /*stream=*/1), 0);
  const int64_t start_ns = simulation_->NowNs();
  EXPECT_EQ(node(0).AwaitSend().status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_GE(simulation_->NowNs() - start_ns, 3 * kTimeoutNs);
  EXPECT_EQ(node(1).slab[kArea], std::byte{0});
  ASSERT_EQ(node(0).Write(node(1), kArea, kArea + 64, 64, 2, /*stream=*/2), 0);
  EXPECT_EQ(node(0).AwaitSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(node(1).slab[kArea], std::byte{'B'});
  std::memset(&node(0).slab[kArea], 'Z', 64);  // what was sent then counts, not what is here now
  simulation_->RunFor(kLateNs);
  EXPECT_EQ(node(1).slab[kArea], std::byte{'A'});
  EXPECT_EQ(node(1).slab[kArea + 63], std::byte{'A'});
  EXPECT_NE(simulation_->log().Text().find(" ghost "), std::string::npos);
}

TEST_F(FaultsTest, SendReportedAsFailedRunsLateBehindWhatCameAfter) {
  Build({});
  constexpr int64_t kLateNs = 5'000'000;
  simulation_->FailNext(
      {.node = 0, .status = IBV_WC_REM_OP_ERR, .carried_out = true, .lands_late_ns = kLateNs});
  ASSERT_EQ(node(0).Send(node(1), "late", 1, /*stream=*/1), 0);
  EXPECT_EQ(node(0).AwaitSend().status, IBV_WC_REM_OP_ERR);
  ASSERT_EQ(node(0).Send(node(1), "after", 2, /*stream=*/2), 0);
  EXPECT_EQ(node(1).Text(node(1).AwaitReceive()), "after");
  EXPECT_EQ(node(1).Text(node(1).AwaitReceive()), "late");
  EXPECT_GE(simulation_->NowNs(), kLateNs);
}

TEST_F(FaultsTest, LateWriteIntoMemoryThatIsGoneTouchesNothing) {
  Build({.log = LogMode::kText});
  simulation_->FailNext({.opcode = IBV_WR_RDMA_WRITE, .lands_late_ns = 1'000});
  ASSERT_EQ(node(0).Write(node(1), kArea, kArea, 64, 1, /*stream=*/1), 0);
  EXPECT_EQ(node(0).AwaitSend().status, IBV_WC_RETRY_EXC_ERR);
  nodes_[1].reset();
  simulation_->RunFor(1'000'000);
  EXPECT_NE(simulation_->log().Text().find("landed=0"), std::string::npos);
}

TEST_F(FaultsTest, DelayedMessageHoldsBackItsStreamOnly) {
  Build({});
  simulation_->message_faults() = {.delay_ppm = 1'000'000, .delay_ns = 500'000};
  ASSERT_EQ(node(0).Send(node(1), "slow", 1, /*stream=*/1), 0);
  simulation_->message_faults() = {};
  ASSERT_EQ(node(0).Send(node(1), "behind", 2, /*stream=*/1), 0);
  ASSERT_EQ(node(0).Send(node(1), "fast", 3, /*stream=*/2), 0);
  EXPECT_EQ(node(1).Text(node(1).AwaitReceive()), "fast");
  EXPECT_EQ(node(1).Text(node(1).AwaitReceive()), "slow");
  EXPECT_EQ(node(1).Text(node(1).AwaitReceive()), "behind");
}

TEST_F(FaultsTest, TimedFaultsHappenAtTheirTime) {
  Options options;
  options.faults.timed = {{.at_ns = 1'000'000, .what = Happening::kPortDown, .node = 1},
                          {.at_ns = 2'000'000, .what = Happening::kPortUp, .node = 1},
                          {.at_ns = 3'000'000, .what = Happening::kAddressChange, .node = 1},
                          {.at_ns = 4'000'000, .what = Happening::kUnplug, .node = 1},
                          {.at_ns = 5'000'000, .what = Happening::kPlug, .node = 1}};
  Build(options);
  simulation_->RunFor(999'999);
  EXPECT_EQ(NextAsyncEvent(node(1)), -1);
  simulation_->RunFor(1);
  EXPECT_EQ(NextAsyncEvent(node(1)), IBV_EVENT_PORT_ERR);
  simulation_->RunFor(1'000'000);
  EXPECT_EQ(NextAsyncEvent(node(1)), IBV_EVENT_PORT_ACTIVE);
  simulation_->RunFor(1'000'000);
  EXPECT_EQ(NextAsyncEvent(node(1)), IBV_EVENT_GID_CHANGE);
  simulation_->RunFor(1'000'000);
  EXPECT_EQ(NextAsyncEvent(node(1)), IBV_EVENT_DEVICE_FATAL);
  EXPECT_FALSE(simulation_->IsPlugged(1));
  simulation_->RunFor(1'000'000);
  EXPECT_TRUE(simulation_->IsPlugged(1));
}

}  // namespace faults_test
}  // namespace sluice::softdc::sim
