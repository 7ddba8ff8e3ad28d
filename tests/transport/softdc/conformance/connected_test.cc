// SPDX-License-Identifier: Apache-2.0
//
// RC and UC: what arrives, what is refused, and what an error does to both ends.
#include <arpa/inet.h>

#include <string>
#include <vector>

#include "tests/transport/softdc/conformance/conformance_test.h"
#include "tests/transport/softdc/conformance/plain_node.h"

namespace sluice::conformance {
namespace {

constexpr size_t kFree = PlainNode::kFreeOffset;

CONFORMANCE_SUITE(Connected);

TEST_P(Connected, MessagesArriveInPostingOrder) {
  PROVES(161);
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC}) {
    PlainPair pair(bed(), {.type = type});
    for (uint64_t i = 0; i < 8; ++i) ASSERT_EQ(pair.a.Send("message " + std::to_string(i), i), 0);
    for (uint64_t i = 0; i < 8; ++i) {
      const ibv_wc sent = pair.a.AwaitSend();
      EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
      EXPECT_EQ(sent.wr_id, i);
      EXPECT_EQ(sent.opcode, IBV_WC_SEND);
      EXPECT_EQ(sent.qp_num, pair.a.qp->qp_num);
      const ibv_wc got = pair.b.AwaitReceive();
      EXPECT_EQ(got.status, IBV_WC_SUCCESS);
      EXPECT_EQ(got.wr_id, i);
      EXPECT_EQ(got.opcode, IBV_WC_RECV);
      EXPECT_EQ(got.qp_num, pair.b.qp->qp_num);
      EXPECT_EQ(pair.b.Received(got), "message " + std::to_string(i));
    }
  }
}

TEST_P(Connected, EachOperationDoesWhatItSays) {
  PROVES(161);
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC}) {
    PlainPair pair(bed(), {.type = type});
    pair.a.Fill(kFree, "payload");
    ibv_send_wr wr = pair.a.WrTo(pair.b, kFree, IBV_WR_RDMA_WRITE, kFree, 7);
    ASSERT_EQ(pair.a.Post(wr), 0);
    EXPECT_EQ(pair.a.AwaitSend().opcode, IBV_WC_RDMA_WRITE);
    wr = pair.a.WrTo(pair.b, kFree + 64, IBV_WR_RDMA_WRITE_WITH_IMM, kFree, 7);
    wr.imm_data = htonl(77);
    ASSERT_EQ(pair.a.Post(wr), 0);
    EXPECT_EQ(pair.a.AwaitSend().status, IBV_WC_SUCCESS);
    ibv_wc got = pair.b.AwaitReceive();
    EXPECT_EQ(got.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    EXPECT_EQ(got.byte_len, 7u);
    EXPECT_EQ(got.imm_data, htonl(77));
    // All before it is there as well.
    EXPECT_EQ(pair.b.Text(kFree, 7), "payload");
    EXPECT_EQ(pair.b.Text(kFree + 64, 7), "payload");
    wr = pair.a.Wr(IBV_WR_SEND_WITH_IMM, kFree, 7);
    wr.imm_data = htonl(78);
    ASSERT_EQ(pair.a.Post(wr), 0);
    got = pair.b.AwaitReceive();
    EXPECT_EQ(Node::FlagsOf(got), static_cast<unsigned>(IBV_WC_WITH_IMM));
    EXPECT_EQ(pair.b.Received(got), "payload");
    EXPECT_EQ(pair.a.AwaitSend().status, IBV_WC_SUCCESS);
    if (type == IBV_QPT_UC) {
      for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
        EXPECT_EQ(pair.a.Post(pair.a.WrTo(pair.b, kFree, opcode, kFree, 8)), EINVAL);
      }
      continue;
    }
    pair.b.Fill(kFree + 128, "fetched");
    ASSERT_EQ(pair.a.Post(pair.a.WrTo(pair.b, kFree + 128, IBV_WR_RDMA_READ, kFree + 32, 7)), 0);
    const ibv_wc wc = pair.a.AwaitSend();
    EXPECT_EQ(wc.opcode, IBV_WC_RDMA_READ);
    EXPECT_EQ(wc.byte_len, 7u);
    EXPECT_EQ(pair.a.Text(kFree + 32, 7), "fetched");
  }
}

TEST_P(Connected, QueuePairMayTalkToItself) {
  PROVES(161);
  PlainNode node(bed());
  node.ConnectTo(node);
  ASSERT_EQ(node.Send("mirror", 1), 0);
  EXPECT_EQ(node.AwaitSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(node.Received(node.AwaitReceive()), "mirror");
}

TEST_P(Connected, ModifyMasksAreExact) {
  PROVES(86);
  struct Row {
    ibv_qp_type type;
    ibv_qp_state from, to;
    int required, optional;
  };
  constexpr int kInit = IBV_QP_PKEY_INDEX | IBV_QP_PORT;
  constexpr int kUcRtr = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  constexpr int kRtrToo = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX;
  constexpr int kRtsToo =
      IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE;
  constexpr Row kRows[] = {
      {IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT, kInit | IBV_QP_ACCESS_FLAGS, 0},
      {IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR, kRcRtr & ~IBV_QP_STATE, kRtrToo},
      {IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTS, kRcRts & ~IBV_QP_STATE,
       kRtsToo | IBV_QP_MIN_RNR_TIMER},
      {IBV_QPT_UC, IBV_QPS_RESET, IBV_QPS_INIT, kInit | IBV_QP_ACCESS_FLAGS, 0},
      {IBV_QPT_UC, IBV_QPS_INIT, IBV_QPS_RTR, kUcRtr, kRtrToo},
      {IBV_QPT_UC, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, kRtsToo},
      {IBV_QPT_UD, IBV_QPS_RESET, IBV_QPS_INIT, kInit | IBV_QP_QKEY, 0},
      {IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_RTR, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
      {IBV_QPT_UD, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, IBV_QP_CUR_STATE | IBV_QP_QKEY},
  };
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}) {
    PlainNode node(bed(), {.type = type, .receives = 0});
    ASSERT_EQ(node.ToState(IBV_QPS_RESET), 0);
    ibv_qp_attr attr = node.AttributesTo(node);
    attr.port_num = 1;
    attr.qkey = kQkey;
    for (const Row& row : kRows) {
      if (row.type != type) continue;
      SCOPED_TRACE(testing::Message() << "type " << type << " to state " << row.to);
      attr.qp_state = row.to;
      attr.cur_qp_state = row.from;
      for (int bit = IBV_QP_CUR_STATE; bit <= IBV_QP_DEST_QPN; bit <<= 1) {
        if ((bit & row.optional) != 0) continue;
        EXPECT_EQ(api().modify_qp(node.qp, &attr, (IBV_QP_STATE | row.required) ^ bit), EINVAL)
            << "bit " << bit;
      }
      ASSERT_EQ(api().modify_qp(node.qp, &attr, IBV_QP_STATE | row.required), 0);
    }
    if (bed().IsMlx5()) {
      EXPECT_EQ(node.ToState(IBV_QPS_SQD), EINVAL);  // which other devices have
    }
  }
}

TEST_P(Connected, RefusedRequestStopsBothEnds) {
  PROVES(14, 87);
  PlainPair pair(bed(), {.receives = 4});
  ibv_send_wr wr = pair.a.WrTo(pair.b, kFree, IBV_WR_RDMA_WRITE, kFree, 8);
  wr.wr.rdma.rkey ^= 1;
  wr.wr_id = 9;
  ASSERT_EQ(pair.a.Post(wr), 0);
  const ibv_wc wc = pair.a.AwaitSend();
  EXPECT_EQ(wc.status, IBV_WC_REM_ACCESS_ERR);
  if (bed().IsMlx5()) {
    EXPECT_EQ(wc.vendor_err, 0x88u);
  }
  EXPECT_EQ(wc.wr_id, 9u);
  for (PlainNode* node : {&pair.a, &pair.b}) {
    for (uint64_t i = 0; i < 4; ++i) {
      const ibv_wc flushed = node->AwaitReceive();
      EXPECT_EQ(flushed.status, IBV_WC_WR_FLUSH_ERR);
      EXPECT_EQ(flushed.wr_id, i);
    }
    EXPECT_EQ(node->State(), IBV_QPS_ERR);
  }
  ibv_async_event event = pair.b.AwaitAsync();
  EXPECT_EQ(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
  EXPECT_EQ(event.element.qp, pair.b.qp);
  api().ack_async_event(&event);
  ASSERT_EQ(pair.a.Send("flushed", 10, /*flags=*/0), 0);
  EXPECT_EQ(pair.a.AwaitSend().status, IBV_WC_WR_FLUSH_ERR);
}

TEST_P(Connected, RightsOfTheQueuePairCount) {
  PROVES(39, 87);
  constexpr unsigned kWriteOnly = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  PlainPair pair(bed(), {}, {.access = kWriteOnly});
  ASSERT_EQ(pair.a.Post(pair.a.WrTo(pair.b, kFree, IBV_WR_RDMA_WRITE, kFree, 8)), 0);
  EXPECT_EQ(pair.a.AwaitSend().status, IBV_WC_SUCCESS);
  ASSERT_EQ(pair.a.Post(pair.a.WrTo(pair.b, kFree, IBV_WR_RDMA_READ, kFree, 8)), 0);
  EXPECT_EQ(pair.a.AwaitSend().status, IBV_WC_REM_INV_REQ_ERR);
}

TEST_P(Connected, MessageLongerThanTheBufferStopsBothEnds) {
  PROVES(15, 87);
  PlainPair pair(bed(), {}, {.receives = 2, .receive_bytes = 16});
  ASSERT_EQ(pair.a.Send("this does not fit into 16 bytes", 1), 0);
  EXPECT_EQ(pair.a.AwaitSend().status, IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(pair.b.AwaitReceive().status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(pair.b.AwaitReceive().status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(pair.b.State(), IBV_QPS_ERR);
  ibv_async_event event = pair.b.AwaitAsync();
  EXPECT_EQ(event.event_type, IBV_EVENT_QP_REQ_ERR);
  api().ack_async_event(&event);
}

TEST_P(Connected, OnlyThePeerIsAnswered) {
  PROVES(12, 88);
  PlainNode a(bed()), b(bed(), {.host = 1}), c(bed(), {.host = 2});
  a.ConnectTo(b);
  b.ConnectTo(c);
  ASSERT_EQ(a.Send("not for you", 1), 0);
  const ibv_wc wc = a.AwaitSend();
  EXPECT_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
  if (bed().IsMlx5()) {
    EXPECT_EQ(wc.vendor_err, 0x81u);
  }
  // A packet of RC does not name the queue pair that it comes from: where both have one address, the
  // next sequence number is all that tells a stranger's from the peer's.
  if (bed().IsSoftware()) {
    EXPECT_TRUE(b.NoCompletion(b.receive_cq));
  }
}

TEST_P(Connected, MissingReceiveIsWaitedForAsOftenAsAsked) {
  PROVES(16);
  PlainPair limited(bed(), {.rnr_retry = 2}, {.receives = 0});
  ASSERT_EQ(limited.a.Send("nobody is ready", 1), 0);
  const ibv_wc wc = limited.a.AwaitSend();
  EXPECT_EQ(wc.status, IBV_WC_RNR_RETRY_EXC_ERR);
  if (bed().IsMlx5()) {
    EXPECT_EQ(wc.vendor_err, 0x87u);
  }
  PlainPair endless(bed(), {.rnr_retry = 7}, {.receives = 0});
  ASSERT_EQ(endless.a.Send("late", 1), 0);
  ASSERT_EQ(endless.b.PostReceive(3), 0);
  EXPECT_EQ(endless.a.AwaitSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(endless.b.AwaitReceive().wr_id, 3u);
}

TEST_P(Connected, UcLosesWhatDoesNotFitAndSaysNothing) {
  PROVES(90);
  PlainPair pair(bed(), {.type = IBV_QPT_UC, .receives = 1});
  ASSERT_EQ(pair.a.Send("first", 1), 0);
  EXPECT_EQ(pair.b.Received(pair.b.AwaitReceive()), "first");
  EXPECT_EQ(pair.a.AwaitSend().status, IBV_WC_SUCCESS);
  ASSERT_EQ(pair.a.Send("lost", 2), 0);
  EXPECT_EQ(pair.a.AwaitSend().status, IBV_WC_SUCCESS);
  ibv_send_wr wr = pair.a.WrTo(pair.b, kFree, IBV_WR_RDMA_WRITE, kFree, 4);
  pair.a.Fill(kFree, "lost");
  wr.wr.rdma.rkey ^= 1;
  ASSERT_EQ(pair.a.Post(wr), 0);
  EXPECT_EQ(pair.a.AwaitSend().status, IBV_WC_SUCCESS);
  // A WRITE that lands behind them: they have passed.
  pair.a.Fill(kFree + 64, "mark");
  ASSERT_EQ(pair.a.Post(pair.a.WrTo(pair.b, kFree + 64, IBV_WR_RDMA_WRITE, kFree + 64, 4)), 0);
  EXPECT_EQ(pair.a.AwaitSend().status, IBV_WC_SUCCESS);
  bed().Await("the mark", [&] { return pair.b.Text(kFree + 64, 4) == "mark"; });
  ASSERT_EQ(pair.b.PostReceive(5), 0);
  ASSERT_EQ(pair.a.Send("second", 3), 0);
  EXPECT_EQ(pair.b.Received(pair.b.AwaitReceive()), "second");
  EXPECT_EQ(pair.b.Text(kFree, 4), std::string(4, '\0'));
  EXPECT_EQ(pair.b.State(), IBV_QPS_RTS);
  EXPECT_EQ(pair.a.AwaitSend().status, IBV_WC_SUCCESS);
}

TEST_P(Connected, ChainIsPostedUpToItsFirstBadWr) {
  PROVES(92);
  PlainPair pair(bed());
  ibv_send_wr good = pair.a.Wr(IBV_WR_SEND, kFree, 4);
  good.wr_id = 1;
  ibv_sge many[8]{};
  ibv_send_wr too_long = good, after = good;
  too_long.sg_list = many;
  too_long.num_sge = 8;
  good.next = &too_long;
  too_long.next = &after;
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(pair.a.qp, &good, &bad);
  EXPECT_TRUE(error == ENOMEM || (error != 0 && !bed().IsMlx5())) << error;
  EXPECT_EQ(bad, &too_long);
  EXPECT_EQ(pair.a.AwaitSend().wr_id, 1u);
  EXPECT_EQ(pair.b.AwaitReceive().status, IBV_WC_SUCCESS);
  // Nothing of the rest follows.
  ASSERT_EQ(pair.a.Send("marker", 2), 0);
  EXPECT_EQ(pair.b.Received(pair.b.AwaitReceive()), "marker");
}

TEST_P(Connected, ReceivesComeFromTheSharedQueueAlone) {
  PROVES(92);
  PlainPair pair(bed(), {}, {.srq = true});
  ASSERT_EQ(pair.a.Send("shared", 1), 0);
  EXPECT_EQ(pair.b.Received(pair.b.AwaitReceive()), "shared");
  ibv_recv_wr wr{};
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_recv(pair.b.qp, &wr, &bad), EINVAL);
  EXPECT_EQ(bad, &wr);
}

// Nobody learns which receives of the shared queue they were.
TEST_P(Connected, ResetForgetsReceivesOfTheSharedQueueToo) {
  PROVES(161);
  PlainPair pair(bed(), {}, {.srq = true});
  ASSERT_EQ(pair.a.Send("forgotten", 1), 0);
  EXPECT_EQ(pair.a.AwaitSend().status, IBV_WC_SUCCESS);
  ASSERT_EQ(pair.b.ToState(IBV_QPS_RESET), 0);
  if (bed().IsMlx5()) {
    EXPECT_TRUE(pair.b.NoCompletion(pair.b.receive_cq));
  } else {
    pair.b.AwaitReceive();  // other drivers leave it there
  }
}

TEST_P(Connected, ReceivesAreTakenFromInitOn) {
  PROVES(92);
  PlainNode node(bed(), {.receives = 0});
  EXPECT_EQ(node.PostReceive(0), 0);
  EXPECT_EQ(node.Send("early", 1), EINVAL);
  ASSERT_EQ(node.ToState(IBV_QPS_RESET), 0);
  EXPECT_EQ(node.PostReceive(1), EINVAL);
  EXPECT_EQ(node.Send("early", 1), EINVAL);
}

TEST_P(Connected, ResetForgetsAndTheQueuePairConnectsAnew) {
  PROVES(20, 161);
  PlainPair pair(bed(), {}, {.receives = 3});
  ASSERT_EQ(pair.a.Send("forgotten", 1), 0);
  EXPECT_EQ(pair.a.AwaitSend().status, IBV_WC_SUCCESS);
  const uint32_t number = pair.b.qp->qp_num;
  ASSERT_EQ(pair.a.ToState(IBV_QPS_RESET), 0);
  ASSERT_EQ(pair.b.ToState(IBV_QPS_RESET), 0);
  if (bed().IsMlx5()) {
    EXPECT_TRUE(pair.b.NoCompletion(pair.b.receive_cq));
  } else {
    pair.b.AwaitReceive();  // other drivers leave it there
  }
  pair.a.ToInit();
  pair.b.ToInit();
  EXPECT_EQ(pair.b.qp->qp_num, number);
  ASSERT_EQ(pair.b.PostReceive(9), 0);
  pair.b.ConnectTo(pair.a);
  pair.a.ConnectTo(pair.b);
  ASSERT_EQ(pair.a.Send("again", 2), 0);
  const ibv_wc got = pair.b.AwaitReceive();
  EXPECT_EQ(got.wr_id, 9u);
  EXPECT_EQ(pair.b.Received(got), "again");
}

}  // namespace
}  // namespace sluice::conformance
