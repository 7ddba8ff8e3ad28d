// SPDX-License-Identifier: Apache-2.0
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "gtest/gtest.h"
#include "tests/transport/softdc/plain_node.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace rc_test {

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

TEST(Rc, ReadyToReceiveNeedsAGlobalAddress) {
  PlainNode node;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.ah_attr.port_num = 1;
  constexpr int kMask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                        IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  EXPECT_EQ(ModifyQp(node.qp, &attr, kMask), EINVAL);
  attr.ah_attr.is_global = 1;
  EXPECT_EQ(ModifyQp(node.qp, &attr, kMask), 0);
}

}  // namespace rc_test
}  // namespace sluice::softdc
