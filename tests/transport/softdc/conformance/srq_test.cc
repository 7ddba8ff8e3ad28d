// SPDX-License-Identifier: Apache-2.0
//
// Shared receive queues: posting, limits, and what an empty one does to senders.
#include <string>
#include <vector>

#include "tests/transport/softdc/conformance/conformance_test.h"

namespace sluice::conformance {
namespace {

CONFORMANCE_SUITE(ReceiveQueue);

ibv_recv_wr Receive(Node& node, uint64_t wr_id, ibv_sge* sge) {
  *sge = {.addr = reinterpret_cast<uint64_t>(node.slab), .length = 64, .lkey = node.mr->lkey};
  return {.wr_id = wr_id, .next = nullptr, .sg_list = sge, .num_sge = 1};
}

uint32_t Capacity(Node& node) {
  ibv_srq_attr attr{};
  EXPECT_EQ(node.api.query_srq(node.srq, &attr), 0);
  return attr.max_wr;
}

TEST_P(ReceiveQueue, SizeIsWrittenBackAndAtLeastWhatWasAskedFor) {
  PROVES(54);
  Node node(bed());
  for (const uint32_t wanted : {1u, 17u, 255u, 1000u}) {
    ibv_srq_init_attr init{};
    init.attr = {.max_wr = wanted, .max_sge = 1, .srq_limit = 0};
    ibv_srq* srq = api().create_srq(node.pd, &init);
    ASSERT_NE(srq, nullptr);
    EXPECT_GE(init.attr.max_wr, wanted);
    ibv_srq_attr attr{};
    ASSERT_EQ(api().query_srq(srq, &attr), 0);
    EXPECT_EQ(attr.max_wr, init.attr.max_wr);
    EXPECT_EQ(attr.srq_limit, 0u);
    EXPECT_EQ(api().destroy_srq(srq), 0);
  }
  ibv_srq_init_attr init{};
  init.attr = {.max_wr = 1u << 30, .max_sge = 1, .srq_limit = 0};
  errno = 0;
  EXPECT_EQ(api().create_srq(node.pd, &init), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_P(ReceiveQueue, FullQueueNamesTheFirstThatDidNotFit) {
  PROVES(53);
  Node node(bed(), {.receives = 0});
  const uint32_t capacity = Capacity(node);
  uint32_t posted = 0;
  ibv_sge sge;
  ibv_recv_wr* bad = nullptr;
  // The device may need one slot for itself.
  while (posted < capacity - 2) {
    ibv_recv_wr wr = Receive(node, posted++, &sge);
    ASSERT_EQ(ibv_post_srq_recv(node.srq, &wr, &bad), 0);
  }
  ibv_recv_wr chain[4];
  for (int i = 0; i < 4; ++i) {
    chain[i] = Receive(node, posted + i, &sge);
    if (i > 0) chain[i - 1].next = &chain[i];
  }
  EXPECT_EQ(ibv_post_srq_recv(node.srq, chain, &bad), ENOMEM);
  ASSERT_GE(bad, chain + 1);
  ASSERT_LE(bad, chain + 2);
  posted += static_cast<uint32_t>(bad - chain);
  // Those before the failing one are posted.
  Node sender(bed(), OnHost(1, {.send_wr = 1024, .cqe = 2048}));
  for (uint32_t i = 0; i < posted; ++i) {
    ASSERT_EQ(sender.Post(node.address(), {.wr_id = i, .text = "x", .flags = IBV_SEND_SIGNALED}),
              0);
    EXPECT_EQ(node.AwaitReceive().wr_id, i);
    EXPECT_EQ(sender.AwaitSend().status, IBV_WC_SUCCESS);
  }
}

TEST_P(ReceiveQueue, TooManyPiecesAreRefused) {
  PROVES(53);
  Node node(bed());
  ibv_srq_attr attr{};
  ASSERT_EQ(api().query_srq(node.srq, &attr), 0);
  std::vector<ibv_sge> sges(attr.max_sge + 1);
  ibv_recv_wr wr{.wr_id = 1,
                 .next = nullptr,
                 .sg_list = sges.data(),
                 .num_sge = static_cast<int>(sges.size())};
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_srq_recv(node.srq, &wr, &bad), EINVAL);
  EXPECT_EQ(bad, &wr);
}

TEST_P(ReceiveQueue, MessageIsScatteredOverThePieces) {
  PROVES(53);
  Node sender(bed()), target(bed(), OnHost(1, {.receives = 0}));
  ibv_sge sges[2];
  for (int i = 0; i < 2; ++i) {
    sges[i] = {.addr = reinterpret_cast<uint64_t>(target.slab + i * 1000),
               .length = 4,
               .lkey = target.mr->lkey};
  }
  ibv_recv_wr wr{.wr_id = 1, .next = nullptr, .sg_list = sges, .num_sge = 2};
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_srq_recv(target.srq, &wr, &bad), 0);
  ASSERT_EQ(sender.Post(target.address(), {.text = "abcdefg"}), 0);
  EXPECT_EQ(target.AwaitReceive().byte_len, 7u);
  EXPECT_EQ(target.SlabText(0, 4), "abcd");
  EXPECT_EQ(target.SlabText(1000, 3), "efg");
}

TEST_P(ReceiveQueue, NoResizeAndALimitBelowTheSize) {
  PROVES(55);
  Node node(bed());
  const uint32_t capacity = Capacity(node);
  ibv_srq_attr attr{.max_wr = 2 * capacity, .max_sge = 1, .srq_limit = 0};
  EXPECT_EQ(api().modify_srq(node.srq, &attr, IBV_SRQ_MAX_WR), EINVAL);
  EXPECT_EQ(Capacity(node), capacity);
  attr.srq_limit = capacity;
  EXPECT_EQ(api().modify_srq(node.srq, &attr, IBV_SRQ_LIMIT), EINVAL);
  attr.srq_limit = capacity - 1;
  EXPECT_EQ(api().modify_srq(node.srq, &attr, IBV_SRQ_LIMIT), 0);
}

TEST_P(ReceiveQueue, EmptyQueueIsWaitedForForEverWithRetry7) {
  PROVES(16);
  Node sender(bed(), {.rnr_retry = 7}), target(bed(), OnHost(1, {.receives = 0}));
  Node other(bed(), OnHost(2, {.receives = 0}));
  ASSERT_EQ(sender.Post(target.address(), {.wr_id = 1, .text = "late", .stream = 1}), 0);
  // Far more attempts than any finite count allows: a second sender with one runs out meanwhile.
  Node impatient(bed(), {.rnr_retry = 6});
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(impatient.Post(other.address(), {.text = "x"}), 0);
    EXPECT_EQ(impatient.AwaitSend().status, IBV_WC_RNR_RETRY_EXC_ERR);
    impatient.Recover();
  }
  EXPECT_TRUE(sender.NoCompletion(sender.send_cq));
  target.PostReceives(1);
  EXPECT_EQ(sender.AwaitSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(target.TextOf(target.AwaitReceive()), "late");
}

TEST_P(ReceiveQueue, EmptyQueueFailsTheSendWhenRetriesEnd) {
  PROVES(16);
  for (const uint8_t retries : {0, 2}) {
    Node sender(bed(), {.rnr_retry = retries}), target(bed(), OnHost(1, {.receives = 0}));
    ASSERT_EQ(sender.Post(target.address(), {.wr_id = 4, .text = "x"}), 0);
    const ibv_wc wc = sender.AwaitSend();
    EXPECT_EQ(wc.status, IBV_WC_RNR_RETRY_EXC_ERR);
    EXPECT_EQ(wc.wr_id, 4u);
    if (bed().IsMlx5()) {
      EXPECT_EQ(wc.vendor_err, 0x87u);
    }
  }
}

TEST_P(ReceiveQueue, ReceivePostedWhileTheSenderRetriesIsTaken) {
  PROVES(16);
  // 655 ms between attempts: the first one has failed long before the receive is there.
  Node sender(bed(), {.rnr_retry = 1}),
      target(bed(), OnHost(1, {.receives = 0, .min_rnr_timer = 20}));
  ASSERT_EQ(sender.Post(target.address(), {.text = "second try"}), 0);
  EXPECT_TRUE(sender.NoCompletion(sender.send_cq));
  target.PostReceives(1);
  EXPECT_EQ(sender.AwaitSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(target.TextOf(target.AwaitReceive()), "second try");
}

TEST_P(ReceiveQueue, WriteWithImmediateNeedsAReceiveToo) {
  PROVES(16, 56);
  Node sender(bed(), {.rnr_retry = 0}), target(bed(), OnHost(1, {.receives = 0}));
  const Address to = target.address();
  ASSERT_EQ(sender.Post(to, {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                             .text = "x",
                             .remote_offset = Node::kFreeOffset,
                             .stream = 1}),
            0);
  EXPECT_EQ(sender.AwaitSend().status, IBV_WC_RNR_RETRY_EXC_ERR);
  // A plain write does not.
  ASSERT_EQ(sender.Post(to, {.opcode = IBV_WR_RDMA_WRITE,
                             .text = "x",
                             .remote_offset = Node::kFreeOffset,
                             .stream = 2}),
            0);
  EXPECT_EQ(sender.AwaitSend().status, IBV_WC_SUCCESS);
}

TEST_P(ReceiveQueue, OneQueueServesManyTargets) {
  PROVES(68);
  Node sender(bed()), target(bed(), OnHost(1, {.receives = 4}));
  Node::Creation creation = target.DctCreation();
  ibv_qp* second = target.Create(creation);
  ASSERT_NE(second, nullptr);
  ASSERT_EQ(target.Modify(second, IBV_QPS_INIT, kDctInit), 0);
  ASSERT_EQ(target.Modify(second, IBV_QPS_RTR, kDctRtr), 0);
  Address to = target.address();
  ASSERT_EQ(sender.Post(to, {.text = "first"}), 0);
  EXPECT_EQ(target.AwaitReceive().qp_num, target.dct->qp_num);
  to.dctn = second->qp_num;
  ASSERT_EQ(sender.Post(to, {.text = "second"}), 0);
  EXPECT_EQ(target.AwaitReceive().qp_num, second->qp_num);
  EXPECT_EQ(api().destroy_qp(second), 0);
}

}  // namespace
}  // namespace sluice::conformance
