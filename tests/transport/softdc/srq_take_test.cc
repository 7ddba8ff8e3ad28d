// SPDX-License-Identifier: Apache-2.0
//
// Deliveries inside one process: Srq::Take and the completions that a fabric pushes itself.
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/softdc/dc_node.h"
#include "transport/softdc/model/cq.h"
#include "transport/softdc/model/srq.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace srq_take_test {

class SrqTakeTest : public ::testing::Test {
 protected:
  SrqTakeTest() : node_({.receives = 0}) {}

  Srq& srq() { return *Srq::From(node_.srq); }
  Cq& cq() { return *Cq::From(node_.receive_cq); }
  void Post(uint64_t wr_id, uint32_t lkey) {
    std::array<ibv_sge, 2> sges = {
        ibv_sge{.addr = Address(64 * wr_id), .length = 16, .lkey = lkey},
        ibv_sge{.addr = Address(4096 + 64 * wr_id), .length = 48, .lkey = lkey}};
    ibv_recv_wr wr{.wr_id = wr_id, .next = nullptr, .sg_list = sges.data(), .num_sge = 2};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_srq_recv(node_.srq, &wr, &bad), 0);
  }
  uint64_t Address(size_t offset) { return reinterpret_cast<uint64_t>(node_.slab + offset); }
  static shm::Cqe CqeOf(const TakenReceive& taken, uint32_t qp_number) {
    shm::Cqe cqe;
    cqe.srq_id = taken.srq_id;
    cqe.wqe_index = taken.wqe_index;
    cqe.opcode = IBV_WC_RECV;
    cqe.qp_num = qp_number;
    return cqe;
  }
  int Poll(ibv_wc* wc) { return ibv_poll_cq(node_.receive_cq, 1, wc); }

  DcNode node_;
  std::array<ibv_sge, kMaxSrqSges> pieces_;
};

TEST_F(SrqTakeTest, GivesTheOldestWithItsPieces) {
  EXPECT_FALSE(srq().Take(pieces_));
  Post(1, node_.mr->lkey);
  Post(2, node_.mr->lkey);
  const auto taken = srq().Take(pieces_);
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->status, IBV_WC_SUCCESS);
  ASSERT_EQ(taken->sge_count, 2u);
  EXPECT_EQ(pieces_[0].addr, Address(64));
  EXPECT_EQ(pieces_[0].length, 16u);
  EXPECT_EQ(pieces_[1].addr, Address(4096 + 64));
  EXPECT_EQ(pieces_[1].length, 48u);
}

TEST_F(SrqTakeTest, CompletionCarriesEverything) {
  Post(3, node_.mr->lkey);
  const auto taken = srq().Take(pieces_);
  ASSERT_TRUE(taken);
  shm::Cqe cqe = CqeOf(*taken, 0x111);
  cqe.byte_len = 20;
  cqe.imm_data = 0xabcd;
  cqe.wc_flags = IBV_WC_WITH_INV | IBV_WC_GRH;
  cqe.src_qp = 0x222;
  cqe.slid = 5;
  cqe.sl = 6;
  cqe.pkey_index = 7;
  cqe.dlid_path_bits = 8;
  cq().PushReceive(cqe);
  ibv_wc wc{};
  ASSERT_EQ(Poll(&wc), 1);
  EXPECT_EQ(wc.wr_id, 3u);
  EXPECT_EQ(wc.byte_len, 20u);
  EXPECT_EQ(wc.invalidated_rkey, 0xabcdu);
  EXPECT_EQ(wc.wc_flags, static_cast<unsigned>(IBV_WC_WITH_INV | IBV_WC_GRH));
  EXPECT_EQ(wc.qp_num, 0x111u);
  EXPECT_EQ(wc.src_qp, 0x222u);
  EXPECT_EQ(wc.slid, 5);
  EXPECT_EQ(wc.sl, 6);
  EXPECT_EQ(wc.pkey_index, 7);
  EXPECT_EQ(wc.dlid_path_bits, 8);
  EXPECT_EQ(Poll(&wc), 0);
}

TEST_F(SrqTakeTest, GivenBackItIsTheNextAgain) {
  Post(4, node_.mr->lkey);
  const auto taken = srq().Take(pieces_);
  ASSERT_TRUE(taken);
  EXPECT_FALSE(srq().Take(pieces_));
  shm::Cqe cqe = CqeOf(*taken, 1);
  cqe.flags = shm::kCqeUnused;
  cq().PushReceive(cqe);
  EXPECT_TRUE(srq().Take(pieces_));
}

TEST_F(SrqTakeTest, KeyThatIsGoneIsFoundAtUse) {
  ibv_mr* mr = RegMr(node_.pd, node_.slab, DcNode::kSlabBytes, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(mr, nullptr);
  Post(5, mr->lkey);
  ASSERT_EQ(DeregMr(mr), 0);
  const auto taken = srq().Take(pieces_);
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(SrqTakeTest, ReceiveQueueOfAQueuePairKeepsItsDepthAndDrainsInOrder) {
  auto queue = Srq::CreateReceiveQueue(node_.pd, 3, 1);
  ASSERT_NE(queue, nullptr);
  ibv_sge sge{.addr = Address(0), .length = 8, .lkey = node_.mr->lkey};
  ibv_recv_wr* bad = nullptr;
  for (uint64_t i = 0; i < 4; ++i) {
    ibv_recv_wr wr{.wr_id = i, .next = nullptr, .sg_list = &sge, .num_sge = 1};
    EXPECT_EQ(queue->Post(&wr, &bad), i < 3 ? 0 : ENOMEM);
  }
  queue->FlushTo(cq(), 0x30);
  cq().FlushReceives(*queue);
  ibv_wc wc{};
  for (uint64_t i = 0; i < 3; ++i) {
    ASSERT_EQ(Poll(&wc), 1);
    EXPECT_EQ(wc.wr_id, i);
    EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
  }
  EXPECT_EQ(Poll(&wc), 0);
  queue->Forget();
  ibv_recv_wr wr{.wr_id = 9, .next = nullptr, .sg_list = &sge, .num_sge = 1};
  EXPECT_EQ(queue->Post(&wr, &bad), 0);
}

TEST_F(SrqTakeTest, PurgedCompletionsGiveTheirPlacesBack) {
  ibv_srq_attr attr{};
  ASSERT_EQ(QuerySrq(node_.srq, &attr), 0);
  for (uint32_t i = 0; i < attr.max_wr; ++i) Post(1, node_.mr->lkey);
  for (uint32_t i = 0; i < attr.max_wr / 2; ++i) {
    const auto taken = srq().Take(pieces_);
    ASSERT_TRUE(taken);
    cq().PushReceive(CqeOf(*taken, i % 2 == 0 ? 0x10 : 0x20));
  }
  cq().PurgeReceives(0x10, /*shared=*/false);
  ibv_wc wc{};
  uint32_t left = 0;
  while (Poll(&wc) == 1) {
    EXPECT_EQ(wc.qp_num, 0x20u);
    ++left;
  }
  EXPECT_EQ(left, attr.max_wr / 4);
  for (uint32_t i = 0; i < attr.max_wr / 2; ++i) Post(1, node_.mr->lkey);
}

// The same for what a sender has put into its ring; others keep their order.
TEST_F(SrqTakeTest, PurgeReachesIntoTheRingsOfSenders) {
  DcNode a;
  node_.PostReceives(3);
  ASSERT_EQ(a.Send(node_.Address(), "x", 1), 0);
  ASSERT_EQ(a.PollSend().status, IBV_WC_SUCCESS);
  cq().PurgeReceives(node_.dct->qp_num + 1, /*shared=*/false);
  ASSERT_EQ(a.Send(node_.Address(), "y", 2), 0);
  ASSERT_EQ(a.PollSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(node_.ReceivedText(node_.PollReceive()), "x");
  EXPECT_EQ(node_.ReceivedText(node_.PollReceive()), "y");
  ASSERT_EQ(a.Send(node_.Address(), "z", 3), 0);
  ASSERT_EQ(a.PollSend().status, IBV_WC_SUCCESS);
  cq().PurgeReceives(node_.dct->qp_num, /*shared=*/false);
  ibv_wc wc{};
  EXPECT_EQ(Poll(&wc), 0);
}

TEST_F(SrqTakeTest, FlushedReceivesAndSendsPurgeApart) {
  std::atomic<uint64_t> released{0};
  ibv_wc send{};
  send.wr_id = 1;
  auto queue = Srq::CreateReceiveQueue(node_.pd, 1, 1);
  ASSERT_NE(queue, nullptr);
  ibv_recv_wr* bad = nullptr;
  ibv_recv_wr wr{.wr_id = 2, .next = nullptr, .sg_list = nullptr, .num_sge = 0};
  ASSERT_EQ(queue->Post(&wr, &bad), 0);
  queue->FlushTo(cq(), 0x30);
  cq().FlushReceives(*queue);
  cq().PushSend(send, false, &released, 41);
  cq().PurgeSends(&released);
  ibv_wc wc{};
  ASSERT_EQ(Poll(&wc), 1);
  EXPECT_EQ(wc.wr_id, 2u);
  EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(wc.qp_num, 0x30u);
  cq().PushSend(send, false, &released, 41);
  ASSERT_EQ(Poll(&wc), 1);
  EXPECT_EQ(released.load(), 42u);
}

}  // namespace srq_take_test
}  // namespace sluice::softdc
