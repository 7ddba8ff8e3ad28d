// SPDX-License-Identifier: Apache-2.0
//
// What a simulated queue does on the wire and in virtual time.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/transport/softdc/sim/sim_nodes_test.h"
#include "transport/softdc/sim/simulation.h"

namespace sluice::softdc::sim {
namespace sim_requester_test {

class SimRequesterTest : public SimNodesTest {
 protected:
  int64_t Since(int64_t start_ns) const { return simulation_->NowNs() - start_ns; }
};

TEST_F(SimRequesterTest, SendTakesConnectLatencyAndWire) {
  Build({.rate_bits_per_second = 8'000'000'000,
         .latency_ns = 1000,
         .dc_connect_ns = 300,
         .header_bytes = 64});
  const int64_t start_ns = simulation_->NowNs();
  ASSERT_EQ(node(0).Send(node(1), std::string(36, 'x'), 5), 0);
  const ibv_wc received = node(1).AwaitReceive();
  EXPECT_EQ(Since(start_ns), 100 + 300 + 1000);  // 100 bytes at 1 byte/ns
  EXPECT_EQ(node(1).Text(received), std::string(36, 'x'));
  EXPECT_EQ(received.src_qp, node(0).dci->qp_num);
  EXPECT_EQ(received.qp_num, node(1).dct->qp_num);
  const ibv_wc sent = node(0).AwaitSend();
  EXPECT_EQ(Since(start_ns), 1400 + 1000);
  EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
  EXPECT_EQ(sent.wr_id, 5u);
}

TEST_F(SimRequesterTest, WriteReadAndAtomicMoveTheBytes) {
  Build({});
  std::memset(&node(0).slab[kArea], 0x5a, 3000);
  ASSERT_EQ(node(0).Write(node(1), kArea, kArea, 3000, 1), 0);
  ASSERT_EQ(node(0).AwaitSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(node(1).slab[kArea + 2999], std::byte{0x5a});
  ASSERT_EQ(node(0).Read(node(1), kArea, 2 * kArea - 4096, 3000, 2), 0);
  const ibv_wc read = node(0).AwaitSend();
  EXPECT_EQ(read.status, IBV_WC_SUCCESS);
  EXPECT_EQ(read.byte_len, 3000u);
  EXPECT_EQ(node(0).slab[2 * kArea - 4096 + 2999], std::byte{0x5a});
  uint64_t value = 40;
  std::memcpy(&node(1).slab[kArea], &value, sizeof(value));
  ASSERT_EQ(node(0).FetchAdd(node(1), kArea, kArea, 2, 3), 0);
  EXPECT_EQ(node(0).AwaitSend().status, IBV_WC_SUCCESS);
  std::memcpy(&value, &node(0).slab[kArea], sizeof(value));
  EXPECT_EQ(value, 40u);
  std::memcpy(&value, &node(1).slab[kArea], sizeof(value));
  EXPECT_EQ(value, 42u);
}

TEST_F(SimRequesterTest, NobodyThereFailsAfterTimeoutTimesRetriesPlusOne) {
  Build({});
  node(1).dct->qp_num += 1000;
  const int64_t start_ns = simulation_->NowNs();
  ASSERT_EQ(node(0).Send(node(1), "hello?", 1), 0);
  node(1).dct->qp_num -= 1000;
  const ibv_wc wc = node(0).AwaitSend();
  EXPECT_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(wc.vendor_err, 0x81u);
  EXPECT_GE(Since(start_ns), 3 * kTimeoutNs);
  EXPECT_LT(Since(start_ns), 3 * kTimeoutNs + 1000);
  EXPECT_EQ(simulation_->counters().sent, 3u);
}

// Facts 200, 201: the device's timer, not the queue's, says how long.
TEST_F(SimRequesterTest, RetriesTakeAsLongAsTheDialsSay) {
  struct Case {
    Dials::Retries dials;
    int64_t takes_ns;
  };
  for (const Case& one :
       {Case{{.timeout_factor = 4}, 4 * 3 * kTimeoutNs},
        Case{{.min_timeout = 10}, 3 * (4096ll << 10)}, Case{{.min_timeout = 5}, 3 * kTimeoutNs},
        Case{{.total_retry_ns = 90'000'000}, 90'000'000}}) {
    nodes_.clear();
    Options options;
    options.dials.retries = one.dials;
    Build(options);
    node(1).dct->qp_num += 1000;
    const int64_t start_ns = simulation_->NowNs();
    ASSERT_EQ(node(0).Send(node(1), "hello?", 1), 0);
    node(1).dct->qp_num -= 1000;
    EXPECT_EQ(node(0).AwaitSend().status, IBV_WC_RETRY_EXC_ERR);
    EXPECT_GE(Since(start_ns), one.takes_ns);
    EXPECT_LT(Since(start_ns), one.takes_ns + 1000);
    EXPECT_EQ(simulation_->counters().sent, 3u);
  }
}

TEST_F(SimRequesterTest, EmptySrqIsTriedAgainAfterTheTargetsTimer) {
  Build({}, {.receives = 0, .rnr_retry = 7, .min_rnr_timer = 12});  // 640 us
  const int64_t start_ns = simulation_->NowNs();
  ASSERT_EQ(node(0).Send(node(1), "early", 1), 0);
  simulation_->RunFor(600'000);
  EXPECT_EQ(simulation_->counters().not_ready, 1u);
  node(1).PostReceives(1);
  EXPECT_EQ(node(1).Text(node(1).AwaitReceive()), "early");
  EXPECT_GE(Since(start_ns), 640'000);
  EXPECT_LT(Since(start_ns), 650'000);
  EXPECT_EQ(node(0).AwaitSend().status, IBV_WC_SUCCESS);
}

TEST_F(SimRequesterTest, EmptySrqFailsWhenTheRnrRetriesAreUsedUp) {
  Build({}, {.receives = 0, .rnr_retry = 2});
  ASSERT_EQ(node(0).Send(node(1), "never", 1), 0);
  EXPECT_EQ(node(0).AwaitSend().status, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_EQ(simulation_->counters().not_ready, 3u);
}

TEST_F(SimRequesterTest, LossIsRepairedInOrderAndNothingComesTwice) {
  Options options;
  options.faults.messages = {.loss_ppm = 150'000, .ack_loss_ppm = 150'000};
  Build(options, {.receives = 256, .cqe = 1024, .timeout = 4, .retry_count = 7});
  std::vector<std::string> received;
  int completed = 0;
  const auto collect = [&] {
    ibv_wc wc{};
    while (ibv_poll_cq(node(1).receive_cq, 1, &wc) == 1) {
      received.push_back(node(1).Text(wc));
      node(1).PostReceives(1);
    }
    while (ibv_poll_cq(node(0).send_cq, 1, &wc) == 1) {
      EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
      EXPECT_EQ(wc.wr_id, static_cast<uint64_t>(completed));
      ++completed;
    }
  };
  for (int i = 0; i < 200; ++i) {
    ASSERT_EQ(node(0).Send(node(1), std::to_string(i), static_cast<uint64_t>(i)), 0);
    if (i % 8 == 7) {
      ASSERT_TRUE(simulation_->RunUntil(
          [&] {
            collect();
            return completed == i + 1;
          },
          1'000'000'000));
    }
  }
  EXPECT_GT(simulation_->counters().timeouts, 10u);
  ASSERT_EQ(received.size(), 200u);
  for (int i = 0; i < 200; ++i) EXPECT_EQ(received[i], std::to_string(i));
}

TEST_F(SimRequesterTest, AtomicWhoseAnswerWasLostIsNotCarriedOutTwice) {
  Options options;
  Build(options, {.timeout = 4});
  simulation_->message_faults().ack_loss_ppm = 1'000'000;
  ASSERT_EQ(node(0).FetchAdd(node(1), kArea, kArea, 1, 1), 0);
  simulation_->RunFor(10'000);
  simulation_->message_faults().ack_loss_ppm = 0;
  EXPECT_EQ(node(0).AwaitSend().status, IBV_WC_SUCCESS);
  uint64_t value = 0;
  std::memcpy(&value, &node(1).slab[kArea], sizeof(value));
  EXPECT_EQ(value, 1u);
  std::memcpy(&value, &node(0).slab[kArea], sizeof(value));
  EXPECT_EQ(value, 0u);
}

// Fact: a queue without streams talks to one target at a time; a target that is silent holds up all
// others.
TEST_F(SimRequesterTest, WithoutStreamsASilentTargetHoldsUpTheOthers) {
  Build({.nodes = 3}, {.streams = false});
  simulation_->Kill(1);
  const int64_t start_ns = simulation_->NowNs();
  ASSERT_EQ(node(0).Send(node(1), "dead", 1), 0);
  ASSERT_EQ(node(0).Send(node(2), "well", 2), 0);
  EXPECT_EQ(node(0).AwaitSend().status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(node(0).AwaitSend().status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_GE(Since(start_ns), 3 * kTimeoutNs);
  EXPECT_EQ(node(2).AwaitReceive(1'000'000'000).status, -1);
}

TEST_F(SimRequesterTest, WithStreamsOthersGoOnBesideASilentTarget) {
  Build({.nodes = 3});
  simulation_->Kill(1);
  const int64_t start_ns = simulation_->NowNs();
  ASSERT_EQ(node(0).Send(node(1), "dead", 1, /*stream=*/1), 0);
  ASSERT_EQ(node(0).Send(node(2), "well", 2, /*stream=*/2), 0);
  EXPECT_EQ(node(2).Text(node(2).AwaitReceive()), "well");
  EXPECT_LT(Since(start_ns), 10'000);
  // Completions come in posting order all the same.
  EXPECT_EQ(node(0).AwaitSend().status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(node(0).AwaitSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(node(0).State(), IBV_QPS_RTS);
}

TEST_F(SimRequesterTest, StreamsBeyondTheirNumberShareAChannel) {
  Build({.nodes = 3}, {.log_streams = 1});
  simulation_->Kill(1);
  ASSERT_EQ(node(0).Send(node(1), "dead", 1, /*stream=*/1), 0);
  ASSERT_EQ(node(0).Send(node(2), "well", 2, /*stream=*/3), 0);
  const int64_t start_ns = simulation_->NowNs();
  EXPECT_EQ(node(2).Text(node(2).AwaitReceive()), "well");
  EXPECT_GE(Since(start_ns), 3 * kTimeoutNs);
}

TEST_F(SimRequesterTest, ConnectIsPaidWhenTheTargetChangesAndOnlyThen) {
  Build({.nodes = 3, .dc_connect_ns = 100'000, .log = LogMode::kText}, {.streams = false});
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(node(0).Send(node(1), "one", i), 0);
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(node(0).Send(node(2), "two", i), 0);
  ASSERT_EQ(node(0).Send(node(1), "one", 9), 0);
  const int64_t start_ns = simulation_->NowNs();
  for (int i = 0; i < 9; ++i) EXPECT_EQ(node(0).AwaitSend().status, IBV_WC_SUCCESS);
  EXPECT_GE(Since(start_ns), 3 * 100'000);
  EXPECT_LT(Since(start_ns), 4 * 100'000);
  const std::string log = simulation_->log().Text();
  size_t connects = 0;
  for (size_t at = 0; (at = log.find(" connect ", at)) != std::string::npos; ++at) ++connects;
  EXPECT_EQ(connects, 3u);
}

TEST_F(SimRequesterTest, ErroredStreamFlushesAndTheBudgetStopsTheQueue) {
  Build({}, {.log_errored_streams = 1});
  ASSERT_EQ(node(0).Write(node(1), 0, kArea, 8, 1, /*stream=*/1, /*rkey=*/0xdead00), 0);
  ASSERT_EQ(node(0).Send(node(1), "behind", 2, /*stream=*/1), 0);
  ASSERT_EQ(node(0).Send(node(1), "beside", 3, /*stream=*/2), 0);
  EXPECT_EQ(node(0).AwaitSend().status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(node(0).AwaitSend().status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(node(0).AwaitSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(node(0).State(), IBV_QPS_RTS);
  EXPECT_EQ(node(0).api.dv_dci_stream_id_reset(node(0).dci, 1), 0);
  ASSERT_EQ(node(0).Send(node(1), "again", 4, /*stream=*/1), 0);
  EXPECT_EQ(node(0).AwaitSend().status, IBV_WC_SUCCESS);
  ASSERT_EQ(node(0).Write(node(1), 0, kArea, 8, 5, /*stream=*/1, /*rkey=*/0xdead00), 0);
  ASSERT_EQ(node(0).Write(node(1), 0, kArea, 8, 6, /*stream=*/2, /*rkey=*/0xdead00), 0);
  ASSERT_EQ(node(0).Send(node(1), "too late", 7, /*stream=*/3), 0);
  EXPECT_EQ(node(0).AwaitSend().status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(node(0).AwaitSend().status, IBV_WC_REM_ACCESS_ERR);
  node(0).AwaitSend();
  EXPECT_EQ(node(0).State(), IBV_QPS_ERR);
  node(0).Recover();
  ASSERT_EQ(node(0).Send(node(1), "recovered", 8, /*stream=*/1), 0);
  EXPECT_EQ(node(0).AwaitSend().status, IBV_WC_SUCCESS);
}

TEST_F(SimRequesterTest, ResetForgetsWhatIsUnderWay) {
  Build({});
  ASSERT_EQ(node(0).Send(node(1), "on its way", 1), 0);
  node(0).Recover();
  ASSERT_EQ(node(0).Send(node(1), "after", 2), 0);
  EXPECT_EQ(node(0).AwaitSend().wr_id, 2u);
  simulation_->RunFor(100'000'000);
  ibv_wc wc{};
  EXPECT_EQ(ibv_poll_cq(node(0).send_cq, 1, &wc), 0);
}

TEST_F(SimRequesterTest, LongMessagesOfOneQueueDoNotShutOutAnother) {
  Build({.nodes = 3, .rate_bits_per_second = 8'000'000'000},
        {.receives = 64, .receive_bytes = 1024});
  // 32 KiB each, so the way out is busy for a long time.
  for (uint64_t i = 0; i < 16; ++i) {
    ASSERT_EQ(node(0).Write(node(1), kArea, kArea, 32 << 10, i, /*stream=*/1), 0);
  }
  ASSERT_EQ(node(0).Send(node(2), "short", 99, /*stream=*/2), 0);
  const int64_t start_ns = simulation_->NowNs();
  EXPECT_EQ(node(2).Text(node(2).AwaitReceive()), "short");
  EXPECT_LT(Since(start_ns), 4 * (32 << 10));
  for (int i = 0; i < 17; ++i) EXPECT_EQ(node(0).AwaitSend().status, IBV_WC_SUCCESS);
  EXPECT_GE(Since(start_ns), 16 * (32 << 10));
}

TEST_F(SimRequesterTest, AnswersOfReadsDoNotShutOutAnotherQueue) {
  Build({.nodes = 3, .rate_bits_per_second = 8'000'000'000},
        {.receives = 64, .receive_bytes = 1024, .reads = 16});
  for (uint64_t i = 0; i < 16; ++i) {
    ASSERT_EQ(node(1).Read(node(0), kArea, kArea, 32 << 10, i), 0);
  }
  // All have arrived, and one answer is on its way.
  simulation_->RunFor(40'000);
  const int64_t start_ns = simulation_->NowNs();
  ASSERT_EQ(node(0).Send(node(2), "short", 99), 0);
  EXPECT_EQ(node(2).Text(node(2).AwaitReceive()), "short");
  EXPECT_LT(Since(start_ns), 3 * (32 << 10));
  for (uint64_t i = 0; i < 16; ++i) EXPECT_EQ(node(1).AwaitSend().wr_id, i);
  EXPECT_GE(Since(start_ns), 14 * (32 << 10));
}

TEST_F(SimRequesterTest, WhatFollowsReadsIsAnsweredAfterThem) {
  Build({.rate_bits_per_second = 8'000'000'000},
        {.receives = 64, .receive_bytes = 1024, .timeout = 12, .reads = 16});
  for (int round = 0; round < 2; ++round) {
    for (uint64_t i = 0; i < 12; i += 3) {
      ASSERT_EQ(node(0).Read(node(1), kArea, kArea, 32 << 10, i), 0);
      ASSERT_EQ(node(0).Send(node(1), "one", i + 1), 0);
      ASSERT_EQ(node(0).Send(node(1), "two", i + 2), 0);
    }
    for (uint64_t i = 0; i < 12; ++i) {
      const ibv_wc wc = node(0).AwaitSend();
      EXPECT_EQ(wc.wr_id, i);
      EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    }
  }
  EXPECT_EQ(simulation_->counters().sent, 24u) << "an answer that came early passed for a loss";
}

// The answers that wait when the reader gives up stand in nobody's way, and it may turn to another target.
TEST_F(SimRequesterTest, AnswersThatNobodyWaitsForAnyMoreHarmNobody) {
  Build({.nodes = 3, .rate_bits_per_second = 8'000'000'000},
        {.receives = 64, .receive_bytes = 1024, .reads = 16});
  for (int round = 0; round < 3; ++round) {
    for (uint64_t i = 0; i < 8; ++i) {
      ASSERT_EQ(node(1).Read(node(0), kArea, kArea, 32 << 10, i), 0);
    }
    simulation_->RunFor(60'000);
    node(1).Recover();
    for (uint64_t i = 20; i < 24; ++i) {
      ASSERT_EQ(node(1).Read(node(round % 2 == 0 ? 2 : 0), kArea, kArea, 32 << 10, i), 0);
    }
    for (uint64_t i = 20; i < 24; ++i) EXPECT_EQ(node(1).AwaitSend().wr_id, i);
  }
}

}  // namespace sim_requester_test
}  // namespace sluice::softdc::sim
