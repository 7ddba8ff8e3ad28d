// SPDX-License-Identifier: Apache-2.0
//
// DCI streams: isolation of an errored one, the budget of errored ones, their reset, and recovery of
// the whole DCI.
#include <string>

#include "tests/transport/softdc/conformance/conformance_test.h"

namespace sluice::conformance {
namespace {

constexpr uint32_t kNoKey = 0xffffff01;

class Streams : public Mlx5Test {
 protected:
  // An error that the far end reports at once.
  static void Break(Node& sender, const Address& to, uint16_t stream) {
    ASSERT_EQ(sender.Post(to, {.opcode = IBV_WR_RDMA_WRITE,
                               .wr_id = 1000u + stream,
                               .text = "x",
                               .stream = stream,
                               .rkey = kNoKey}),
              0);
    const ibv_wc wc = sender.AwaitSend();
    ASSERT_EQ(wc.status, IBV_WC_REM_ACCESS_ERR);
    ASSERT_EQ(wc.wr_id, 1000u + stream);
  }
  // Streams can be in error at all, and come back.
  bool CanIsolate() {
    Node probe(bed(), {.streams = false});
    mlx5dv_context caps{};
    caps.comp_mask = MLX5DV_CONTEXT_MASK_DCI_STREAMS;
    return api().dv_query_device(probe.context, &caps) == 0 &&
           (caps.comp_mask & MLX5DV_CONTEXT_MASK_DCI_STREAMS) != 0 &&
           caps.dci_streams_caps.max_log_num_errored >= 2;
  }
  void AwaitState(Node& node, ibv_qp_state state) {
    bed().Await("the state", [&] { return node.QueryState(node.dci) == state; });
  }
};
ON_EVERY_DEVICE(Streams);

TEST_P(Streams, ErroredStreamFlushesAndOthersGoOn) {
  PROVES(17);
  if (!CanIsolate()) GTEST_SKIP() << "the device reports no errored streams";
  Node sender(bed()), target(bed(), OnHost(1));
  const Address to = target.address();
  Break(sender, to, 1);
  ASSERT_EQ(sender.Post(to, {.wr_id = 2, .text = "same stream", .stream = 1, .flags = 0}), 0);
  const ibv_wc flushed = sender.AwaitSend();
  EXPECT_EQ(flushed.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(flushed.wr_id, 2u);
  ASSERT_EQ(sender.Post(to, {.wr_id = 3, .text = "other stream", .stream = 2}), 0);
  EXPECT_EQ(sender.AwaitSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(target.TextOf(target.AwaitReceive()), "other stream");
  EXPECT_EQ(sender.QueryState(sender.dci), IBV_QPS_RTS);
}

TEST_P(Streams, OneBatchIsFlushedInQueueOrder) {
  PROVES(9, 17);
  if (!CanIsolate()) GTEST_SKIP() << "the device reports no errored streams";
  Node sender(bed()), target(bed(), OnHost(1));
  const Address to = target.address();
  ibv_wr_start(sender.dci_ex);
  sender.Add(to, {.wr_id = 0, .text = "a", .stream = 1});
  sender.Add(to,
             {.opcode = IBV_WR_RDMA_WRITE, .wr_id = 1, .text = "b", .stream = 1, .rkey = kNoKey});
  sender.Add(to, {.wr_id = 2, .text = "c", .stream = 2});
  sender.Add(to, {.wr_id = 3, .text = "d", .stream = 1});
  sender.Add(to, {.wr_id = 4, .text = "e", .stream = 2});
  ASSERT_EQ(ibv_wr_complete(sender.dci_ex), 0);
  const ibv_wc_status want[] = {IBV_WC_SUCCESS, IBV_WC_REM_ACCESS_ERR, IBV_WC_SUCCESS,
                                IBV_WC_WR_FLUSH_ERR, IBV_WC_SUCCESS};
  for (uint64_t i = 0; i < 5; ++i) {
    const ibv_wc wc = sender.AwaitSend();
    EXPECT_EQ(wc.wr_id, i);
    EXPECT_EQ(wc.status, want[i]) << i;
  }
  std::string arrived;
  for (int i = 0; i < 3; ++i) arrived += target.TextOf(target.AwaitReceive());
  EXPECT_LT(arrived.find('c'), arrived.find('e'));  // between streams there is no order
  EXPECT_NE(arrived.find('a'), std::string::npos);
}

TEST_P(Streams, BudgetSpentStopsTheQueue) {
  PROVES(18);
  if (!CanIsolate()) GTEST_SKIP() << "the device reports no errored streams";
  for (const uint8_t log : {0, 1, 2}) {
    Node sender(bed(), {.log_errored_streams = log}), target(bed(), OnHost(1));
    const Address to = target.address();
    const uint16_t budget = static_cast<uint16_t>(1 << log);
    for (uint16_t stream = 1; stream < budget; ++stream) {
      Break(sender, to, stream);
      EXPECT_EQ(sender.QueryState(sender.dci), IBV_QPS_RTS);
    }
    ASSERT_EQ(sender.Post(to, {.text = "still works", .stream = 100}), 0);
    EXPECT_EQ(sender.AwaitSend().status, IBV_WC_SUCCESS);
    Break(sender, to, budget);  // its own status, not a flush
    AwaitState(sender, IBV_QPS_ERR);
    ASSERT_EQ(sender.Post(to, {.wr_id = 9, .text = "x", .stream = 100}), 0);
    const ibv_wc wc = sender.AwaitSend();
    EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(wc.wr_id, 9u);
  }
}

TEST_P(Streams, SameStreamCountsOnce) {
  PROVES(18);
  if (!CanIsolate()) GTEST_SKIP() << "the device reports no errored streams";
  Node sender(bed(), {.log_errored_streams = 1}), target(bed(), OnHost(1));
  const Address to = target.address();
  Break(sender, to, 1);
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(
        sender.Post(to, {.opcode = IBV_WR_RDMA_WRITE, .text = "x", .stream = 1, .rkey = kNoKey}),
        0);
    EXPECT_EQ(sender.AwaitSend().status, IBV_WC_WR_FLUSH_ERR);
  }
  EXPECT_EQ(sender.QueryState(sender.dci), IBV_QPS_RTS);
}

TEST_P(Streams, WhatWaitsInOtherStreamsIsFlushedWhenTheQueueStops) {
  PROVES(9, 18);
  if (!CanIsolate()) GTEST_SKIP() << "the device reports no errored streams";
  Node sender(bed(), {.log_errored_streams = 0}), target(bed(), OnHost(1));
  Node empty(bed(), OnHost(2, {.receives = 0}));
  ASSERT_EQ(sender.Post(empty.address(), {.wr_id = 1, .text = "waits", .stream = 5}), 0);
  ASSERT_EQ(
      sender.Post(
          target.address(),
          {.opcode = IBV_WR_RDMA_WRITE, .wr_id = 2, .text = "x", .stream = 6, .rkey = kNoKey}),
      0);
  const ibv_wc first = sender.AwaitSend();
  EXPECT_EQ(first.wr_id, 1u);
  EXPECT_EQ(first.status, IBV_WC_WR_FLUSH_ERR);
  const ibv_wc second = sender.AwaitSend();
  EXPECT_EQ(second.wr_id, 2u);
  EXPECT_EQ(second.status, IBV_WC_REM_ACCESS_ERR);
}

TEST_P(Streams, ResetBringsTheStreamBackAndGivesBudgetBack) {
  PROVES(19);
  if (!CanIsolate()) GTEST_SKIP() << "the device reports no errored streams";
  Node sender(bed(), {.log_errored_streams = 1}), target(bed(), OnHost(1));
  const Address to = target.address();
  for (uint16_t stream = 1; stream <= 5; ++stream) {
    Break(sender, to, stream);
    ASSERT_EQ(api().dv_dci_stream_id_reset(sender.dci, stream), 0);
    ASSERT_EQ(sender.Post(to, {.text = "again", .stream = stream}), 0);
    EXPECT_EQ(sender.AwaitSend().status, IBV_WC_SUCCESS);
    EXPECT_EQ(target.TextOf(target.AwaitReceive()), "again");
  }
  EXPECT_EQ(sender.QueryState(sender.dci), IBV_QPS_RTS);
}

TEST_P(Streams, ResetOfAHealthyStreamIsRefused) {
  PROVES(19);
  if (!CanIsolate()) GTEST_SKIP() << "the device reports no errored streams";
  Node sender(bed()), target(bed(), OnHost(1));
  EXPECT_EQ(api().dv_dci_stream_id_reset(sender.dci, 1), EINVAL);
  Break(sender, target.address(), 1);
  EXPECT_EQ(api().dv_dci_stream_id_reset(sender.dci, 2), EINVAL);
  EXPECT_EQ(api().dv_dci_stream_id_reset(sender.dci, 1), 0);
  EXPECT_EQ(api().dv_dci_stream_id_reset(sender.dci, 1), EINVAL);
}

TEST_P(Streams, ResetIsForADciThatIsReadyToSend) {
  PROVES(19);
  if (!CanIsolate()) GTEST_SKIP() << "the device reports no errored streams";
  Node sender(bed()), target(bed(), OnHost(1));
  EXPECT_EQ(api().dv_dci_stream_id_reset(sender.dct, 1), EINVAL);
  Break(sender, target.address(), 1);
  ASSERT_EQ(sender.Modify(sender.dci, IBV_QPS_ERR, IBV_QP_STATE), 0);
  EXPECT_EQ(api().dv_dci_stream_id_reset(sender.dci, 1), EOPNOTSUPP);
}

TEST_P(Streams, WithoutStreamsTheFirstErrorStopsTheQueue) {
  PROVES(59);
  Node sender(bed(), {.streams = false}), target(bed(), OnHost(1)), other(bed(), OnHost(2));
  ibv_wr_start(sender.dci_ex);
  sender.Add(target.address(), {.wr_id = 0, .text = "before"});
  sender.Add(target.address(),
             {.opcode = IBV_WR_RDMA_WRITE, .wr_id = 1, .text = "x", .rkey = kNoKey});
  sender.Add(other.address(), {.wr_id = 2, .text = "x"});
  sender.Add(target.address(), {.wr_id = 3, .text = "x", .stream = 7, .flags = 0});
  ASSERT_EQ(ibv_wr_complete(sender.dci_ex), 0);
  const ibv_wc_status want[] = {IBV_WC_SUCCESS, IBV_WC_REM_ACCESS_ERR, IBV_WC_WR_FLUSH_ERR,
                                IBV_WC_WR_FLUSH_ERR};
  for (uint64_t i = 0; i < 4; ++i) {
    const ibv_wc wc = sender.AwaitSend();
    EXPECT_EQ(wc.wr_id, i);
    EXPECT_EQ(wc.status, want[i]) << i;
  }
  AwaitState(sender, IBV_QPS_ERR);
  // The target and its other senders know nothing of it.
  EXPECT_EQ(target.QueryState(target.dct), IBV_QPS_RTR);
  ASSERT_EQ(other.Post(target.address(), {.text = "from another"}), 0);
  EXPECT_EQ(other.AwaitSend().status, IBV_WC_SUCCESS);
}

TEST_P(Streams, RecoveryKeepsTheNumberAndForgetsCompletions) {
  PROVES(20);
  Node sender(bed(), {.streams = false}), target(bed(), OnHost(1));
  const Address to = target.address();
  const uint32_t number = sender.dci->qp_num;
  for (uint64_t round = 0; round < 3; ++round) {
    ASSERT_EQ(sender.Post(to, {.opcode = IBV_WR_RDMA_WRITE, .text = "x", .rkey = kNoKey}), 0);
    AwaitState(sender, IBV_QPS_ERR);
    ASSERT_EQ(sender.Post(to, {.text = "flushed"}), 0);
    sender.Recover();
    EXPECT_TRUE(sender.NoCompletion(sender.send_cq));
    EXPECT_EQ(sender.dci->qp_num, number);
    ASSERT_EQ(sender.Post(to, {.wr_id = 10 + round, .text = "back"}), 0);
    const ibv_wc wc = sender.AwaitSend();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.wr_id, 10 + round);
    EXPECT_EQ(target.TextOf(target.AwaitReceive()), "back");
  }
}

TEST_P(Streams, RecoveryFreesTheWholeQueue) {
  PROVES(20);
  Node sender(bed(), {.send_wr = 8}), target(bed(), OnHost(1)),
      empty(bed(), OnHost(2, {.receives = 0}));
  int posted = 0;
  while (posted < 1000 && sender.Post(empty.address(), {.text = "stuck", .flags = 0}) == 0)
    ++posted;
  ASSERT_LT(posted, 1000);
  sender.Recover();
  for (int i = 0; i < posted; ++i) {
    ASSERT_EQ(sender.Post(target.address(), {.text = "x"}), 0) << i;
  }
  for (int i = 0; i < posted; ++i) EXPECT_EQ(sender.AwaitSend().status, IBV_WC_SUCCESS);
}

// The first target has no receive, and the second would have one.
TEST_P(Streams, WithoutStreamsOneTargetHoldsUpTheNext) {
  PROVES(174);
  Node sender(bed(), {.streams = false}), other(bed());
  Node good(bed(), OnHost(1)), waits(bed(), OnHost(2, {.receives = 0}));
  ASSERT_EQ(sender.Post(waits.address(), {.text = "waits"}), 0);
  ASSERT_EQ(sender.Post(good.address(), {.text = "held up"}), 0);
  ASSERT_EQ(other.Post(good.address(), {.text = "marker"}), 0);
  EXPECT_EQ(good.TextOf(good.AwaitReceive()), "marker");
  EXPECT_TRUE(good.NoCompletion(good.receive_cq));
  waits.PostReceives(1);
  EXPECT_EQ(waits.TextOf(waits.AwaitReceive()), "waits");
  EXPECT_EQ(good.TextOf(good.AwaitReceive()), "held up");
}

TEST_P(Streams, OneStreamDoesNotHoldUpAnother) {
  PROVES(174);
  Node sender(bed()), good(bed(), OnHost(1)), waits(bed(), OnHost(2, {.receives = 0}));
  ASSERT_EQ(sender.Post(waits.address(), {.text = "waits", .stream = 1}), 0);
  ASSERT_EQ(sender.Post(good.address(), {.text = "behind it", .stream = 1}), 0);
  ASSERT_EQ(sender.Post(good.address(), {.text = "beside it", .stream = 2}), 0);
  EXPECT_EQ(good.TextOf(good.AwaitReceive()), "beside it");
  waits.PostReceives(1);
  EXPECT_EQ(good.TextOf(good.AwaitReceive()), "behind it");
}

}  // namespace
}  // namespace sluice::conformance
