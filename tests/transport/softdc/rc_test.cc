// SPDX-License-Identifier: Apache-2.0
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "tests/transport/softdc/plain_node.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace rc_test {

TEST(Rc, SendArrivesInPostingOrderWithItsBytes) {
  PlainPair pair;
  for (uint64_t i = 0; i < 8; ++i) ASSERT_EQ(pair.a.Send("message " + std::to_string(i), i), 0);
  for (uint64_t i = 0; i < 8; ++i) {
    const ibv_wc sent = pair.a.PollSend();
    EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
    EXPECT_EQ(sent.wr_id, i);
    EXPECT_EQ(sent.opcode, IBV_WC_SEND);
    const ibv_wc got = pair.b.PollReceive();
    EXPECT_EQ(got.status, IBV_WC_SUCCESS);
    EXPECT_EQ(got.wr_id, i);
    EXPECT_EQ(got.opcode, IBV_WC_RECV);
    EXPECT_EQ(got.qp_num, pair.b.qp->qp_num);
    EXPECT_EQ(got.src_qp, pair.a.qp->qp_num);
    EXPECT_EQ(pair.b.Text(i, 0, got.byte_len), "message " + std::to_string(i));
  }
}

TEST(Rc, QueuePairConnectedToItselfTalksToItself) {
  PlainNode node;
  node.ToReady(node.qp->qp_num);
  ASSERT_EQ(node.Send("mirror", 1), 0);
  EXPECT_EQ(node.PollSend().status, IBV_WC_SUCCESS);
  const ibv_wc got = node.PollReceive();
  EXPECT_EQ(node.Text(got.wr_id, 0, got.byte_len), "mirror");
}

TEST(Rc, ReceivesFromAnSrq) {
  PlainPair pair({}, {.srq = true});
  ASSERT_EQ(pair.a.Send("shared", 1), 0);
  const ibv_wc got = pair.b.PollReceive();
  EXPECT_EQ(pair.b.Text(got.wr_id, 0, got.byte_len), "shared");
  ibv_recv_wr wr{}, *bad = nullptr;
  EXPECT_EQ(ibv_post_recv(pair.b.qp, &wr, &bad), EINVAL);
  EXPECT_EQ(bad, &wr);
}

TEST(Rc, InlineMessageMayBeOverwrittenAfterPosting) {
  PlainPair pair;
  char text[] = "inline";
  ibv_sge sge{.addr = reinterpret_cast<uint64_t>(text), .length = 6, .lkey = 0};
  ibv_send_wr wr{}, *bad = nullptr;
  wr.opcode = IBV_WR_SEND_WITH_IMM;
  wr.imm_data = 0x01020304;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
  ASSERT_EQ(ibv_post_send(pair.a.qp, &wr, &bad), 0);
  std::memset(text, 'x', sizeof(text));
  const ibv_wc got = pair.b.PollReceive();
  EXPECT_EQ(pair.b.Text(got.wr_id, 0, got.byte_len), "inline");
  EXPECT_EQ(got.imm_data, 0x01020304u);
  EXPECT_EQ(got.wc_flags, static_cast<unsigned>(IBV_WC_WITH_IMM));
}

TEST(Rc, SmallInlineMessagesNeedNoRoomAskedFor) {
  PlainNode node;
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = node.send_cq;
  init.qp_type = IBV_QPT_RC;
  init.cap.max_send_wr = 2;
  init.cap.max_send_sge = 1;
  ibv_qp* qp = CreateQp(node.pd, &init);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(init.cap.max_inline_data, 60u);
  std::swap(node.qp, qp);
  node.ToInit();
  node.ToReady(node.qp->qp_num);
  const char text[60] = {};
  ibv_sge sge{.addr = reinterpret_cast<uint64_t>(text), .length = 60, .lkey = 0};
  ibv_send_wr wr{}, *bad = nullptr;
  wr.opcode = IBV_WR_SEND;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.send_flags = IBV_SEND_INLINE;
  EXPECT_EQ(ibv_post_send(node.qp, &wr, &bad), 0);
  sge.length = 61;
  EXPECT_EQ(ibv_post_send(node.qp, &wr, &bad), ENOMEM);
  std::swap(node.qp, qp);
  EXPECT_EQ(DestroyQp(qp), 0);
}

TEST(Rc, WriteAndReadMoveBytesWithoutTheOtherSide) {
  PlainPair pair;
  std::memcpy(pair.a.slab + PlainNode::kSendArea, "one-sided", 9);
  ibv_send_wr write = pair.a.Wr(IBV_WR_RDMA_WRITE, PlainNode::kSendArea, 9);
  write.wr.rdma = {.remote_addr = pair.b.Address(PlainNode::kSendArea + 64),
                   .rkey = pair.b.mr->rkey};
  ASSERT_EQ(pair.a.Post(write), 0);
  EXPECT_EQ(pair.a.PollSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(pair.b.slab + PlainNode::kSendArea + 64, "one-sided", 9), 0);
  ibv_send_wr read = pair.a.Wr(IBV_WR_RDMA_READ, PlainNode::kSendArea + 128, 9);
  read.wr.rdma = write.wr.rdma;
  ASSERT_EQ(pair.a.Post(read), 0);
  const ibv_wc wc = pair.a.PollSend();
  EXPECT_EQ(wc.opcode, IBV_WC_RDMA_READ);
  EXPECT_EQ(wc.byte_len, 9u);
  EXPECT_EQ(std::memcmp(pair.a.slab + PlainNode::kSendArea + 128, "one-sided", 9), 0);
}

TEST(Rc, ChainWithABadWrPostsWhatStandsBeforeIt) {
  PlainPair pair;
  ibv_send_wr good = pair.a.Wr(IBV_WR_SEND, PlainNode::kSendArea, 4);
  good.wr_id = 1;
  ibv_sge many[8]{};
  ibv_send_wr bad_one = good;
  bad_one.wr_id = 2;
  bad_one.sg_list = many;
  bad_one.num_sge = 8;
  good.next = &bad_one;
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(pair.a.qp, &good, &bad), ENOMEM);
  EXPECT_EQ(bad, &bad_one);
  EXPECT_EQ(pair.a.PollSend().wr_id, 1u);
  EXPECT_EQ(pair.b.PollReceive().status, IBV_WC_SUCCESS);
}

TEST(Rc, PostingBeforeReadyToSendIsRefused) {
  PlainNode node;
  EXPECT_EQ(node.Send("early", 1), EINVAL);
}

TEST(Rc, WrongRkeyStopsBothSidesAndFlushesTheirQueues) {
  PlainPair pair;
  ibv_send_wr write = pair.a.Wr(IBV_WR_RDMA_WRITE, PlainNode::kSendArea, 8);
  write.wr.rdma = {.remote_addr = pair.b.Address(0), .rkey = pair.b.mr->rkey + 1};
  ASSERT_EQ(pair.a.Post(write), 0);
  const ibv_wc wc = pair.a.PollSend();
  EXPECT_EQ(wc.status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(wc.vendor_err, 0x88u);
  EXPECT_EQ(pair.a.State(), IBV_QPS_ERR);
  for (uint64_t i = 0; i < 16; ++i) {
    const ibv_wc flushed = pair.b.PollReceive();
    EXPECT_EQ(flushed.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(flushed.wr_id, i);
    EXPECT_EQ(pair.a.PollReceive().status, IBV_WC_WR_FLUSH_ERR);
  }
  EXPECT_EQ(pair.b.State(), IBV_QPS_ERR);
  ibv_async_event event{};
  ASSERT_EQ(GetAsyncEvent(pair.b.context, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
  EXPECT_EQ(event.element.qp, pair.b.qp);
  AckAsyncEvent(&event);
}

TEST(Rc, MissingAccessFlagOfTheQueuePairIsDenied) {
  PlainPair pair({}, {.access = IBV_ACCESS_LOCAL_WRITE});
  ibv_send_wr read = pair.a.Wr(IBV_WR_RDMA_READ, PlainNode::kSendArea, 8);
  read.wr.rdma = {.remote_addr = pair.b.Address(0), .rkey = pair.b.mr->rkey};
  ASSERT_EQ(pair.a.Post(read), 0);
  EXPECT_EQ(pair.a.PollSend().status, IBV_WC_REM_ACCESS_ERR);
}

TEST(Rc, MessageLongerThanTheBufferFailsAtBothEnds) {
  PlainPair pair({}, {.receives = 2, .receive_bytes = 16});
  ASSERT_EQ(pair.a.Send("this does not fit into 16 bytes", 1), 0);
  EXPECT_EQ(pair.a.PollSend().status, IBV_WC_REM_INV_REQ_ERR);
  const ibv_wc first = pair.b.PollReceive();
  EXPECT_EQ(first.status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(first.wr_id, 0u);
  EXPECT_EQ(pair.b.PollReceive().status, IBV_WC_WR_FLUSH_ERR);
}

TEST(Rc, NoReceiveIsRetriedAsOftenAsAsked) {
  PlainPair pair({.rnr_retry = 2}, {.receives = 0});
  ASSERT_EQ(pair.a.Send("nobody is ready", 1), 0);
  const ibv_wc wc = pair.a.PollSend();
  EXPECT_EQ(wc.status, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_EQ(wc.vendor_err, 0x87u);
}

TEST(Rc, LateReceiveIsFoundWhenRetriesHaveNoEnd) {
  PlainPair pair({.rnr_retry = 7}, {.receives = 0});
  ASSERT_EQ(pair.a.Send("late", 1), 0);
  ASSERT_EQ(pair.b.PostReceive(3), 0);
  EXPECT_EQ(pair.a.PollSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.b.PollReceive().wr_id, 3u);
}

TEST(Rc, PeerConnectedToSomebodyElseDoesNotAnswer) {
  PlainNode a, b, c;
  a.ToReady(b.qp->qp_num);
  b.ToReady(c.qp->qp_num);
  ASSERT_EQ(a.Send("not for you", 1), 0);
  const ibv_wc wc = a.PollSend();
  EXPECT_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(wc.vendor_err, 0x81u);
}

TEST(Rc, ErrorStateFlushesBothQueuesAndWhatIsPostedLater) {
  PlainPair pair({.receives = 1}, {});
  ASSERT_EQ(pair.a.ToState(IBV_QPS_ERR), 0);
  EXPECT_EQ(pair.a.PollReceive().status, IBV_WC_WR_FLUSH_ERR);
  ASSERT_EQ(pair.a.PostReceive(7), 0);
  const ibv_wc late = pair.a.PollReceive();
  EXPECT_EQ(late.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(late.wr_id, 7u);
  ASSERT_EQ(pair.a.Send("flushed", 8, /*flags=*/0), 0);
  const ibv_wc wc = pair.a.PollSend();
  EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(wc.wr_id, 8u);
}

TEST(Rc, CompletionsBeforeTheErrorComeBeforeTheFlushedOnes) {
  PlainPair pair({}, {.receives = 3});
  ASSERT_EQ(pair.a.Send("first", 1), 0);
  EXPECT_EQ(pair.a.PollSend().status, IBV_WC_SUCCESS);
  ASSERT_EQ(pair.b.ToState(IBV_QPS_ERR), 0);
  EXPECT_EQ(pair.b.PollReceive().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.b.PollReceive().status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(pair.b.PollReceive().status, IBV_WC_WR_FLUSH_ERR);
}

TEST(Rc, ResetForgetsEverythingAndTheNumberStays) {
  PlainPair pair({}, {.receives = 3});
  ASSERT_EQ(pair.a.Send("forgotten", 1), 0);
  EXPECT_EQ(pair.a.PollSend().status, IBV_WC_SUCCESS);
  const uint32_t number = pair.b.qp->qp_num;
  ASSERT_EQ(pair.b.ToState(IBV_QPS_RESET), 0);
  ibv_wc wc{};
  EXPECT_EQ(ibv_poll_cq(pair.b.receive_cq, 1, &wc), 0);
  pair.b.ToInit();
  EXPECT_EQ(pair.b.qp->qp_num, number);
  ASSERT_EQ(pair.b.PostReceive(9), 0);
  pair.b.ToReady(pair.a.qp->qp_num);
  ASSERT_EQ(pair.a.Send("again", 2), 0);
  const ibv_wc got = pair.b.PollReceive();
  EXPECT_EQ(got.wr_id, 9u);
  EXPECT_EQ(pair.b.Text(9, 0, got.byte_len), "again");
}

// A refused WRITE with immediate gives its receive back through the CQ, where the reset finds it.
TEST(Rc, ResetForgetsAReceiveThatCameBackUnused) {
  PlainPair pair;
  ibv_send_wr wr = pair.a.Wr(IBV_WR_RDMA_WRITE_WITH_IMM, PlainNode::kSendArea, 8);
  wr.wr.rdma = {.remote_addr = pair.b.Address(0), .rkey = pair.b.mr->rkey + 1};
  ASSERT_EQ(pair.a.Post(wr), 0);
  ASSERT_EQ(pair.a.PollSend().status, IBV_WC_REM_ACCESS_ERR);
  while (pair.b.State() != IBV_QPS_ERR) {
  }
  ASSERT_EQ(pair.b.ToState(IBV_QPS_RESET), 0);
  pair.b.ToInit();
  ibv_wc wc{};
  EXPECT_EQ(ibv_poll_cq(pair.b.receive_cq, 1, &wc), 0);
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(QueryQp(pair.b.qp, &attr, IBV_QP_CAP, &init), 0);
  // There is room for as many as at the start.
  for (uint32_t i = 0; i < attr.cap.max_recv_wr; ++i) EXPECT_EQ(pair.b.PostReceive(i), 0);
}

TEST(Rc, QueryReturnsWhatWasModified) {
  PlainPair pair;
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(QueryQp(pair.a.qp, &attr, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_RTS);
  EXPECT_EQ(attr.dest_qp_num, pair.b.qp->qp_num);
  EXPECT_EQ(attr.path_mtu, IBV_MTU_1024);
  EXPECT_EQ(attr.timeout, 10);
  EXPECT_EQ(attr.max_rd_atomic, 4);
  EXPECT_EQ(attr.cap.max_recv_wr, 64u);
  EXPECT_EQ(init.qp_type, IBV_QPT_RC);
  EXPECT_EQ(init.send_cq, pair.a.send_cq);
}

TEST(Rc, ModifyMasksAreExact) {
  PlainNode node;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  const int full = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  for (int bit = 1; bit <= IBV_QP_RATE_LIMIT; bit <<= 1) {
    if (bit == IBV_QP_STATE) continue;
    const bool optional = (bit & (IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX)) != 0;
    if (optional) continue;
    EXPECT_EQ(ModifyQp(node.qp, &attr, full ^ bit), EINVAL) << bit;
  }
  attr.ah_attr.is_global = 0;  // RoCE has nothing but GIDs
  EXPECT_EQ(ModifyQp(node.qp, &attr, full), EINVAL);
  attr.ah_attr.is_global = 1;
  EXPECT_EQ(ModifyQp(node.qp, &attr, full), 0);
  attr.qp_state = IBV_QPS_SQD;
  EXPECT_EQ(ModifyQp(node.qp, &attr, IBV_QP_STATE), EINVAL);
}

}  // namespace rc_test
}  // namespace sluice::softdc
