// SPDX-License-Identifier: Apache-2.0
//
// What completions say, at both ends, and in which order they come.
#include <arpa/inet.h>

#include <cstring>
#include <string>

#include "tests/transport/softdc/conformance/conformance_test.h"

namespace sluice::conformance {
namespace {

CONFORMANCE_SUITE(Completion);

TEST_P(Completion, RequesterIsToldOperationNumberAndId) {
  PROVES(49);
  Node sender(bed()), target(bed(), OnHost(1));
  const Address to = target.address();
  struct Case {
    ibv_wr_opcode posted;
    ibv_wc_opcode completed;
    unsigned flags;
  };
  const Case cases[] = {
      {IBV_WR_SEND, IBV_WC_SEND, 0},
      {IBV_WR_SEND_WITH_IMM, IBV_WC_SEND, IBV_WC_WITH_IMM},
      {IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE, 0},
      {IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RDMA_WRITE, IBV_WC_WITH_IMM},
      {IBV_WR_RDMA_READ, IBV_WC_RDMA_READ, 0},
  };
  uint64_t wr_id = uint64_t{1} << 63;
  for (const Case& c : cases) {
    ASSERT_EQ(sender.Post(to, {.opcode = c.posted,
                               .wr_id = ++wr_id,
                               .text = "twelve bytes",
                               .read_bytes = 12,
                               .local_offset = Node::kFreeOffset,
                               .remote_offset = Node::kFreeOffset}),
              0);
    const ibv_wc wc = sender.AwaitSend();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.wr_id, wr_id);
    EXPECT_EQ(wc.qp_num, sender.dci->qp_num);
    EXPECT_EQ(wc.opcode, c.completed);
    EXPECT_EQ(wc.wc_flags, c.flags) << c.posted;
    if (c.posted == IBV_WR_RDMA_READ) {
      EXPECT_EQ(wc.byte_len, 12u);
    }
  }
}

TEST_P(Completion, ReceiverOfASend) {
  PROVES(50, 51, 52);
  Node sender(bed()), target(bed(), OnHost(1));
  std::memset(target.slab, '.', 256);
  ASSERT_EQ(sender.Post(target.address(), {.text = "hello"}), 0);
  const ibv_wc wc = target.AwaitReceive();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_RECV);
  EXPECT_EQ(wc.byte_len, 5u);
  EXPECT_EQ(Node::FlagsOf(wc), 0u);
  EXPECT_EQ(wc.qp_num, target.dct->qp_num);
  if (bed().IsMlx5()) {
    EXPECT_EQ(wc.src_qp, sender.dci->qp_num);  // the manual promises it for UD alone
  }
  EXPECT_EQ(target.SlabText(0, 8), "hello...");  // at the start: no GRH
  EXPECT_TRUE(target.NoCompletion(target.send_cq));
}

TEST_P(Completion, ImmediateComesAsItWasGiven) {
  PROVES(11, 50);
  Node sender(bed()), target(bed(), OnHost(1));
  ASSERT_EQ(sender.Post(target.address(),
                        {.opcode = IBV_WR_SEND_WITH_IMM, .text = "hi", .imm = 0x01020304}),
            0);
  const ibv_wc wc = target.AwaitReceive();
  EXPECT_EQ(wc.opcode, IBV_WC_RECV);
  EXPECT_EQ(Node::FlagsOf(wc), static_cast<unsigned>(IBV_WC_WITH_IMM));
  const unsigned char* bytes = reinterpret_cast<const unsigned char*>(&wc.imm_data);
  EXPECT_EQ(bytes[0], 1);
  EXPECT_EQ(bytes[3], 4);
}

TEST_P(Completion, WriteWithImmediateTakesAReceiveAndPlacesNothingThere) {
  PROVES(11, 50);
  Node sender(bed()), target(bed(), OnHost(1, {.receives = 2}));
  std::memset(target.slab, '.', 512);
  const Address to = target.address();
  ASSERT_EQ(sender.Post(to, {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                             .text = "written",
                             .remote_offset = Node::kFreeOffset,
                             .imm = 0xabcd}),
            0);
  ibv_wc wc = target.AwaitReceive();
  EXPECT_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(wc.byte_len, 7u);
  EXPECT_EQ(ntohl(wc.imm_data), 0xabcdu);
  EXPECT_EQ(Node::FlagsOf(wc), static_cast<unsigned>(IBV_WC_WITH_IMM));
  EXPECT_EQ(target.SlabText(Node::kFreeOffset, 7), "written");
  EXPECT_EQ(target.SlabText(wc.wr_id, 4), "....");
  // The next message gets the next receive.
  ASSERT_EQ(sender.Post(to, {.text = "x"}), 0);
  EXPECT_NE(target.AwaitReceive().wr_id, wc.wr_id);
}

TEST_P(Completion, WriteAndReadAreInvisibleAtTheTarget) {
  PROVES(50);
  Node sender(bed()), target(bed(), OnHost(1, {.receives = 1}));
  const Address to = target.address();
  ASSERT_EQ(
      sender.Post(
          to, {.opcode = IBV_WR_RDMA_WRITE, .text = "unseen", .remote_offset = Node::kFreeOffset}),
      0);
  EXPECT_EQ(sender.AwaitSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(target.SlabText(Node::kFreeOffset, 6), "unseen");
  ASSERT_EQ(sender.Post(to, {.opcode = IBV_WR_RDMA_READ,
                             .read_bytes = 6,
                             .local_offset = Node::kFreeOffset,
                             .remote_offset = Node::kFreeOffset}),
            0);
  EXPECT_EQ(sender.AwaitSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(sender.SlabText(Node::kFreeOffset, 6), "unseen");
  // The one receive is still there, and the send that takes it is the first that shows.
  ASSERT_EQ(sender.Post(to, {.text = "seen"}), 0);
  EXPECT_EQ(target.TextOf(target.AwaitReceive()), "seen");
}

TEST_P(Completion, OrderIsThatOfPostingAcrossStreams) {
  PROVES(9);
  Node sender(bed()), slow(bed(), OnHost(1, {.receives = 0})), fast(bed(), OnHost(2));
  ASSERT_EQ(sender.Post(slow.address(), {.wr_id = 1, .text = "first", .stream = 1}), 0);
  ASSERT_EQ(sender.Post(fast.address(), {.wr_id = 2, .text = "second", .stream = 2}), 0);
  EXPECT_EQ(fast.TextOf(fast.AwaitReceive()), "second");
  EXPECT_TRUE(sender.NoCompletion(sender.send_cq));
  slow.PostReceives(1);
  EXPECT_EQ(sender.AwaitSend().wr_id, 1u);
  EXPECT_EQ(sender.AwaitSend().wr_id, 2u);
}

TEST_P(Completion, ErrorCompletesUnsignalledToo) {
  PROVES(10);
  Node sender(bed()), target(bed(), OnHost(1));
  ASSERT_EQ(
      sender.Post(
          target.address(),
          {.opcode = IBV_WR_RDMA_WRITE, .wr_id = 9, .text = "x", .flags = 0, .rkey = 0xffffff01}),
      0);
  const ibv_wc wc = sender.AwaitSend();
  EXPECT_EQ(wc.wr_id, 9u);
  EXPECT_EQ(wc.qp_num, sender.dci->qp_num);
  EXPECT_EQ(wc.status, IBV_WC_REM_ACCESS_ERR);
}

TEST_P(Completion, PollTakesAtMostWhatWasAskedForAndDestroyingForgets) {
  PROVES(67);
  Node sender(bed()), target(bed(), OnHost(1));
  for (uint64_t i = 0; i < 5; ++i) {
    ASSERT_EQ(sender.Post(target.address(), {.wr_id = i, .text = "x"}), 0);
  }
  for (int i = 0; i < 5; ++i) target.AwaitReceive();
  ibv_wc wcs[8];
  uint64_t seen = 0;
  bed().Await("three completions", [&] {
    const int count = ibv_poll_cq(sender.send_cq, static_cast<int>(3 - seen), wcs + seen);
    EXPECT_GE(count, 0);
    seen += static_cast<uint64_t>(count);
    return seen == 3;
  });
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(wcs[i].wr_id, i);
  ASSERT_EQ(api().destroy_qp(sender.dci), 0);
  sender.dci = nullptr;
  if (bed().IsMlx5()) {
    EXPECT_TRUE(sender.NoCompletion(sender.send_cq));  // other drivers leave them there
  }
}

TEST_P(Completion, ManyMessagesOfManySizesArriveWhole) {
  PROVES(50);
  Node sender(bed()), target(bed(), OnHost(1, {.receives = 16, .receive_bytes = 4096}));
  const Address to = target.address();
  for (uint32_t size = 0; size <= 4096; size += size < 64 ? 1 : 61) {
    std::string text(size, '\0');
    for (uint32_t i = 0; i < size; ++i) text[i] = static_cast<char>(size + i * 7);
    ASSERT_EQ(sender.Post(to, {.text = text}), 0);
    EXPECT_EQ(sender.AwaitSend().status, IBV_WC_SUCCESS);
    const ibv_wc wc = target.AwaitReceive();
    EXPECT_EQ(target.TextOf(wc), text);
    target.PostReceives(1);
  }
}

}  // namespace
}  // namespace sluice::conformance
