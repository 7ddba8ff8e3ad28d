// SPDX-License-Identifier: Apache-2.0
//
// ibv_wr_post(3) on a DCI: batches, setters, errors and the slots of the queue.
#include <arpa/inet.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/transport/softdc/conformance/conformance_test.h"

namespace sluice::conformance {
namespace {

class Posting : public ConformanceTest {
 protected:
  // For more than fits: rxe's provider has another word for it than mlx5's.
  int NoRoom() { return bed().IsMlx5() ? ENOMEM : ENOSPC; }
};
ON_EVERY_DEVICE(Posting);

TEST_P(Posting, NothingRunsBeforeComplete) {
  PROVES(6);
  Node sender(bed()), target(bed(), OnHost(1));
  const Address to = target.address();
  ibv_wr_start(sender.dci_ex);
  sender.Add(to, {.wr_id = 1, .text = "one"});
  sender.Add(to, {.wr_id = 2, .text = "two"});
  EXPECT_TRUE(sender.NoCompletion(sender.send_cq));
  EXPECT_TRUE(target.NoCompletion(target.receive_cq));
  ASSERT_EQ(ibv_wr_complete(sender.dci_ex), 0);
  EXPECT_EQ(sender.AwaitSend().wr_id, 1u);
  EXPECT_EQ(sender.AwaitSend().wr_id, 2u);
  EXPECT_EQ(target.TextOf(target.AwaitReceive()), "one");
  EXPECT_EQ(target.TextOf(target.AwaitReceive()), "two");
}

TEST_P(Posting, AbortPostsNothing) {
  PROVES(6);
  Node sender(bed()), target(bed(), OnHost(1));
  const Address to = target.address();
  ibv_wr_start(sender.dci_ex);
  sender.Add(to, {.wr_id = 1, .text = "aborted"});
  ibv_wr_abort(sender.dci_ex);
  ASSERT_EQ(sender.Post(to, {.wr_id = 2, .text = "after"}), 0);
  EXPECT_EQ(sender.AwaitSend().wr_id, 2u);
  EXPECT_EQ(target.TextOf(target.AwaitReceive()), "after");
}

TEST_P(Posting, BatchWithAnErrorIsThrownAwayWhole) {
  PROVES(6, 7);
  Node sender(bed()), target(bed(), OnHost(1));
  const Address to = target.address();
  const std::string too_big(sender.options.inline_bytes + 4096, 'x');
  ibv_wr_start(sender.dci_ex);
  sender.Add(to, {.wr_id = 1, .text = "good"});
  sender.Add(to, {.wr_id = 2, .text = too_big, .inlined = true});
  sender.Add(to, {.wr_id = 3, .text = "good again"});
  EXPECT_EQ(ibv_wr_complete(sender.dci_ex), NoRoom());
  // What comes next is the first thing that either side sees.
  ASSERT_EQ(sender.Post(to, {.wr_id = 4, .text = "next"}), 0);
  EXPECT_EQ(sender.AwaitSend().wr_id, 4u);
  EXPECT_EQ(target.TextOf(target.AwaitReceive()), "next");
}

TEST_P(Posting, TooManyPiecesOrTooMuchInlineIsNoMemory) {
  PROVES(7);
  Node sender(bed()), target(bed(), OnHost(1));
  const Address to = target.address();
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(api().query_qp(sender.dci, &attr, IBV_QP_CAP, &init), 0);
  std::vector<ibv_sge> pieces(
      init.cap.max_send_sge + 100,
      {.addr = reinterpret_cast<uint64_t>(sender.slab), .length = 1, .lkey = sender.mr->lkey});
  ibv_wr_start(sender.dci_ex);
  ibv_wr_send(sender.dci_ex);
  ibv_wr_set_sge_list(sender.dci_ex, pieces.size(), pieces.data());
  mlx5dv_wr_set_dc_addr(sender.dci_dv, sender.AhTo(to), to.dctn, to.dc_key);
  EXPECT_EQ(ibv_wr_complete(sender.dci_ex), NoRoom());
  // At the limit it works.
  pieces.resize(4);
  ibv_wr_start(sender.dci_ex);
  sender.dci_ex->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send(sender.dci_ex);
  ibv_wr_set_sge_list(sender.dci_ex, pieces.size(), pieces.data());
  mlx5dv_wr_set_dc_addr(sender.dci_dv, sender.AhTo(to), to.dctn, to.dc_key);
  ASSERT_EQ(ibv_wr_complete(sender.dci_ex), 0);
  EXPECT_EQ(sender.AwaitSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(target.AwaitReceive().byte_len, 4u);
}

TEST_P(Posting, FirstErrorOfABatchIsTheOneReported) {
  PROVES(42);
  Node sender(bed()), target(bed(), OnHost(1));
  const Address to = target.address();
  ASSERT_EQ(sender.Modify(sender.dci, IBV_QPS_RESET, IBV_QP_STATE), 0);
  // Not in RTS and too much inline: the state is judged before the data is given.
  const std::string too_big(sender.options.inline_bytes + 4096, 'x');
  ibv_wr_start(sender.dci_ex);
  sender.Add(to, {.text = too_big, .inlined = true});
  const int error = ibv_wr_complete(sender.dci_ex);
  EXPECT_TRUE(error == EINVAL || error == NoRoom()) << error;
  sender.ToReadyToSend();
  ASSERT_EQ(sender.Post(to, {.wr_id = 7, .text = "fine"}), 0);
  EXPECT_EQ(sender.AwaitSend().wr_id, 7u);
}

TEST_P(Posting, SettersComeInEitherOrder) {
  PROVES(40);
  Node sender(bed()), target(bed(), OnHost(1));
  const Address to = target.address();
  for (const bool address_first : {false, true}) {
    for (const bool inlined : {false, true}) {
      ASSERT_EQ(
          sender.Post(
              to, {.text = "in either order", .inlined = inlined, .address_first = address_first}),
          0);
      EXPECT_EQ(sender.AwaitSend().status, IBV_WC_SUCCESS);
      EXPECT_EQ(target.TextOf(target.AwaitReceive()), "in either order");
    }
  }
}

TEST_P(Posting, EmptyMessageNeedsItsDataSetterAllTheSame) {
  PROVES(40);
  Node sender(bed()), target(bed(), OnHost(1));
  const Address to = target.address();
  for (const bool inlined : {false, true}) {
    ASSERT_EQ(sender.Post(to, {.wr_id = 1, .text = "", .inlined = inlined}), 0);
    EXPECT_EQ(sender.AwaitSend().status, IBV_WC_SUCCESS);
    EXPECT_EQ(target.AwaitReceive().byte_len, 0u);
  }
  if (!bed().IsSoftware()) return;  // a driver's queue is undefined then
  ibv_wr_start(sender.dci_ex);
  sender.dci_ex->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send(sender.dci_ex);
  mlx5dv_wr_set_dc_addr(sender.dci_dv, sender.AhTo(to), to.dctn, to.dc_key);
  EXPECT_NE(ibv_wr_complete(sender.dci_ex), 0);
  ibv_wr_start(sender.dci_ex);
  ibv_wr_send(sender.dci_ex);
  ibv_wr_set_sge(sender.dci_ex, sender.mr->lkey, reinterpret_cast<uint64_t>(sender.slab), 1);
  EXPECT_NE(ibv_wr_complete(sender.dci_ex), 0);
}

TEST_P(Posting, GatherListAndInlineListAreOneMessage) {
  PROVES(40);
  Node sender(bed()), target(bed(), OnHost(1));
  const Address to = target.address();
  std::memcpy(sender.slab + Node::kFreeOffset, "abcdefghij", 10);
  const auto piece = [&](size_t offset, uint32_t length) {
    return ibv_sge{.addr = reinterpret_cast<uint64_t>(sender.slab + Node::kFreeOffset + offset),
                   .length = length,
                   .lkey = sender.mr->lkey};
  };
  const ibv_sge pieces[] = {piece(7, 3), piece(0, 0), piece(0, 2), piece(4, 1)};
  ibv_wr_start(sender.dci_ex);
  sender.dci_ex->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send(sender.dci_ex);
  ibv_wr_set_sge_list(sender.dci_ex, 4, pieces);
  mlx5dv_wr_set_dc_addr(sender.dci_dv, sender.AhTo(to), to.dctn, to.dc_key);
  char first[] = "in", second[] = "line";
  const ibv_data_buf buffers[] = {{first, 2}, {second, 4}};
  ibv_wr_send(sender.dci_ex);
  ibv_wr_set_inline_data_list(sender.dci_ex, 2, buffers);
  mlx5dv_wr_set_dc_addr(sender.dci_dv, sender.AhTo(to), to.dctn, to.dc_key);
  ASSERT_EQ(ibv_wr_complete(sender.dci_ex), 0);
  std::memset(first, '?', 2);  // inline data was taken when it was given
  EXPECT_EQ(target.TextOf(target.AwaitReceive()), "hijabe");
  EXPECT_EQ(target.TextOf(target.AwaitReceive()), "inline");
}

TEST_P(Posting, IdAndFlagsAreReadByTheBuilder) {
  PROVES(41);
  Node sender(bed()), target(bed(), OnHost(1));
  const Address to = target.address();
  ibv_wr_start(sender.dci_ex);
  sender.dci_ex->wr_id = 1;
  sender.dci_ex->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send(sender.dci_ex);
  sender.dci_ex->wr_id = 2;  // too late for the first, in time for the second
  sender.dci_ex->wr_flags = 0;
  ibv_wr_set_sge(sender.dci_ex, sender.mr->lkey, reinterpret_cast<uint64_t>(sender.slab), 1);
  mlx5dv_wr_set_dc_addr(sender.dci_dv, sender.AhTo(to), to.dctn, to.dc_key);
  ibv_wr_send(sender.dci_ex);
  ibv_wr_set_sge(sender.dci_ex, sender.mr->lkey, reinterpret_cast<uint64_t>(sender.slab), 1);
  mlx5dv_wr_set_dc_addr(sender.dci_dv, sender.AhTo(to), to.dctn, to.dc_key);
  ASSERT_EQ(ibv_wr_complete(sender.dci_ex), 0);
  ASSERT_EQ(sender.Post(to, {.wr_id = 3, .text = "x"}), 0);
  EXPECT_EQ(sender.AwaitSend().wr_id, 1u);
  EXPECT_EQ(sender.AwaitSend().wr_id, 3u);
}

TEST_P(Posting, SignalAllSignalsAll) {
  PROVES(41);
  Node sender(bed(), {.signal_all = true}), target(bed(), OnHost(1));
  ASSERT_EQ(sender.Post(target.address(), {.wr_id = 5, .text = "x", .flags = 0}), 0);
  EXPECT_EQ(sender.AwaitSend().wr_id, 5u);
}

TEST_P(Posting, StateDecidesBetweenRefusedRunAndFlushed) {
  PROVES(43);
  Node sender(bed()), target(bed(), OnHost(1));
  const Address to = target.address();
  const auto post = [&](uint64_t wr_id) {
    return sender.Post(to, {.wr_id = wr_id, .text = "x", .inlined = true});
  };
  ASSERT_EQ(sender.Modify(sender.dci, IBV_QPS_RESET, IBV_QP_STATE), 0);
  EXPECT_EQ(post(1), EINVAL);
  ASSERT_EQ(sender.Modify(sender.dci, IBV_QPS_INIT, kDciInit), 0);
  EXPECT_EQ(post(2), EINVAL);
  ASSERT_EQ(sender.Modify(sender.dci, IBV_QPS_RTR, kDciRtr), 0);
  EXPECT_EQ(post(3), EINVAL);
  ASSERT_EQ(sender.Modify(sender.dci, IBV_QPS_RTS, kDciRts), 0);
  EXPECT_EQ(post(4), 0);
  EXPECT_EQ(sender.AwaitSend().status, IBV_WC_SUCCESS);
  ASSERT_EQ(sender.Modify(sender.dci, IBV_QPS_ERR, IBV_QP_STATE), 0);
  EXPECT_EQ(post(5), 0);
  const ibv_wc flushed = sender.AwaitSend();
  EXPECT_EQ(flushed.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(flushed.wr_id, 5u);
  ASSERT_EQ(sender.Modify(sender.dci, IBV_QPS_RESET, IBV_QP_STATE), 0);
  EXPECT_EQ(post(6), EINVAL);
}

TEST_P(Posting, QueueIsFullUntilACompletionIsPolled) {
  PROVES(7, 8);
  Node sender(bed(), {.send_wr = 8}), target(bed(), OnHost(1));
  const Address to = target.address();
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(api().query_qp(sender.dci, &attr, IBV_QP_CAP, &init), 0);
  const uint64_t depth = init.cap.max_send_wr;
  uint64_t posted = 0;
  // Only the last is signalled: its completion frees them all. A driver may have a little more room
  // than it says.
  while (posted < 4 * depth) {
    const unsigned flags = posted + 1 == depth ? IBV_SEND_SIGNALED : 0;
    const int error = sender.Post(to, {.wr_id = ++posted, .text = "x", .flags = flags});
    if (error == 0) {
      target.AwaitReceive();
      target.PostReceives(1);
      continue;
    }
    EXPECT_EQ(error, ENOMEM);
    --posted;
    break;
  }
  EXPECT_GE(posted, depth);
  EXPECT_LT(posted, 4 * depth);
  // Still full, although everything in it was executed long ago.
  EXPECT_EQ(sender.Post(to, {.wr_id = 99, .text = "x"}), ENOMEM);
  EXPECT_EQ(sender.AwaitSend().wr_id, depth);
  for (uint64_t i = 0; i < depth; ++i) {
    EXPECT_EQ(sender.Post(to, {.wr_id = 100 + i, .text = "x"}), 0) << i;
  }
  for (uint64_t i = 0; i < depth; ++i) EXPECT_EQ(sender.AwaitSend().wr_id, 100 + i);
}

TEST_P(Posting, AddressHandleMayGoOnceItWasNamed) {
  PROVES(44);
  Node sender(bed()), target(bed(), OnHost(1));
  const Address to = target.address();
  ibv_ah_attr path = to.path;
  ibv_ah* ah = api().create_ah(sender.pd, &path);
  ASSERT_NE(ah, nullptr);
  ibv_wr_start(sender.dci_ex);
  sender.dci_ex->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send(sender.dci_ex);
  char text[] = "without its handle";
  ibv_wr_set_inline_data(sender.dci_ex, text, sizeof(text) - 1);
  mlx5dv_wr_set_dc_addr(sender.dci_dv, ah, to.dctn, to.dc_key);
  ASSERT_EQ(api().destroy_ah(ah), 0);
  ASSERT_EQ(ibv_wr_complete(sender.dci_ex), 0);
  EXPECT_EQ(sender.AwaitSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(target.TextOf(target.AwaitReceive()), text);
}

TEST_P(Posting, StreamIdIsAnyLabelOf16Bits) {
  PROVES(45);
  Node target(bed(), OnHost(1));
  const Address to = target.address();
  for (const bool streams : {true, false}) {
    Node sender(bed(), {.streams = streams});
    for (const uint16_t stream : {0, 1, 8, 9, 4711, 0xffff}) {
      ASSERT_EQ(sender.Post(to, {.wr_id = stream, .text = "x", .stream = stream}), 0);
      const ibv_wc wc = sender.AwaitSend();
      EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << stream;
      EXPECT_EQ(wc.wr_id, stream);
      EXPECT_EQ(target.TextOf(target.AwaitReceive()), "x");
    }
  }
}

TEST_P(Posting, RequestsOfOneStreamArriveInOrder) {
  PROVES(45);
  Node sender(bed()), target(bed(), OnHost(1, {.receives = 200}));
  const Address to = target.address();
  constexpr uint32_t kEach = 16;
  for (uint32_t i = 0; i < kEach; ++i) {
    for (const uint16_t stream : {1, 2, 3}) {
      ASSERT_EQ(sender.Post(to, {.opcode = IBV_WR_SEND_WITH_IMM,
                                 .text = "x",
                                 .imm = stream * 1000u + i,
                                 .stream = stream}),
                0);
    }
  }
  uint32_t next[4] = {};
  for (uint32_t i = 0; i < 3 * kEach; ++i) {
    const uint32_t imm = ntohl(target.AwaitReceive().imm_data);
    EXPECT_EQ(imm % 1000, next[imm / 1000]++);
  }
}

TEST_P(Posting, FenceWaitsForTheReadBeforeIt) {
  PROVES(46);
  Node sender(bed()), target(bed(), OnHost(1));
  const Address to = target.address();
  // What the read fetched is what the fenced send carries.
  for (char c = 'a'; c < 'k'; ++c) {
    std::memset(target.slab + Node::kFreeOffset, c, 64);
    ibv_wr_start(sender.dci_ex);
    sender.Add(to, {.opcode = IBV_WR_RDMA_READ,
                    .read_bytes = 64,
                    .local_offset = Node::kFreeOffset,
                    .remote_offset = Node::kFreeOffset,
                    .flags = 0});
    sender.dci_ex->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE;
    ibv_wr_send(sender.dci_ex);
    ibv_wr_set_sge(sender.dci_ex, sender.mr->lkey,
                   reinterpret_cast<uint64_t>(sender.slab + Node::kFreeOffset), 64);
    mlx5dv_wr_set_dc_addr(sender.dci_dv, sender.AhTo(to), to.dctn, to.dc_key);
    ASSERT_EQ(ibv_wr_complete(sender.dci_ex), 0);
    EXPECT_EQ(sender.AwaitSend().status, IBV_WC_SUCCESS);
    EXPECT_EQ(target.TextOf(target.AwaitReceive()), std::string(64, c));
  }
}

TEST_P(Posting, OldInterfaceIsNotForADci) {
  PROVES(47);
  Node node(bed());
  if (!bed().IsSoftware()) GTEST_SKIP() << "what a driver does with it is not written down";
  ibv_send_wr wr{};
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(node.dci, &wr, &bad), EINVAL);
  EXPECT_EQ(bad, &wr);
}

}  // namespace
}  // namespace sluice::conformance
