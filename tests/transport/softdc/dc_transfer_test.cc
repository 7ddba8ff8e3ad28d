// SPDX-License-Identifier: Apache-2.0
//
// What a DCI and a DCT do to each other: transfers, completions, and every way to fail that user
// space can see.
#include <arpa/inet.h>

#include <cstring>
#include <set>
#include <string>

#include "gtest/gtest.h"
#include "tests/transport/softdc/dc_node.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace dc_transfer_test {

TEST(DcTransfer, SendArrivesWithLengthNumbersAndBytes) {
  DcNode a, b;
  ASSERT_EQ(a.Send(b.Address(), "hello", 7, 3), 0);
  const ibv_wc sent = a.PollSend();
  EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
  EXPECT_EQ(sent.wr_id, 7u);
  EXPECT_EQ(sent.opcode, IBV_WC_SEND);
  EXPECT_EQ(sent.qp_num, a.dci->qp_num);
  const ibv_wc received = b.PollReceive();
  EXPECT_EQ(received.status, IBV_WC_SUCCESS);
  EXPECT_EQ(received.opcode, IBV_WC_RECV);
  EXPECT_EQ(received.byte_len, 5u);
  EXPECT_EQ(received.qp_num, b.dct->qp_num);
  EXPECT_EQ(received.src_qp, a.dci->qp_num);
  EXPECT_EQ(b.ReceivedText(received), "hello");
}

TEST(DcTransfer, SendToOwnTarget) {
  DcNode a;
  ASSERT_EQ(a.Send(a.Address(), "to myself", 1), 0);
  EXPECT_EQ(a.PollSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(a.ReceivedText(a.PollReceive()), "to myself");
}

TEST(DcTransfer, ManySendsArriveInOrderOfAStream) {
  DcNode a({.send_wr = 32}), b;
  const DcAddress to = b.Address();
  for (int i = 0; i < 5000; ++i) {
    ASSERT_EQ(a.Send(to, std::to_string(i), static_cast<uint64_t>(i), 5), 0);
    ASSERT_EQ(a.PollSend().wr_id, static_cast<uint64_t>(i));
    const ibv_wc received = b.PollReceive();
    ASSERT_EQ(b.ReceivedText(received), std::to_string(i));
    b.PostReceives(1);
  }
}

TEST(DcTransfer, OneDoorbellCarriesManySends) {
  DcNode a, b;
  const DcAddress to = b.Address();
  ibv_wr_start(a.dci_ex);
  for (uint64_t i = 0; i < 48; ++i) {
    a.dci_ex->wr_id = i;
    a.dci_ex->wr_flags = i == 47 ? IBV_SEND_SIGNALED : 0;
    ibv_wr_send_imm(a.dci_ex, htonl(static_cast<uint32_t>(i)));
    ibv_wr_set_inline_data(a.dci_ex, &i, sizeof(i));
    mlx5dv_wr_set_dc_addr_stream(a.dci_dv, a.ah, to.dctn, to.dc_key, i % 8);
  }
  ASSERT_EQ(ibv_wr_complete(a.dci_ex), 0);
  EXPECT_EQ(a.PollSend().wr_id, 47u);
  std::set<uint32_t> seen;
  for (int i = 0; i < 48; ++i) {
    const ibv_wc wc = b.PollReceive();
    EXPECT_EQ(wc.wc_flags, static_cast<unsigned>(IBV_WC_WITH_IMM));
    EXPECT_TRUE(seen.insert(ntohl(wc.imm_data)).second);
  }
  EXPECT_EQ(seen.size(), 48u);
}

TEST(DcTransfer, WriteIsInvisibleAtTheTargetAndLands) {
  DcNode a, b;
  ASSERT_EQ(a.Write(b.Address(), DcNode::kSendAreaOffset + 100, "written", 2), 0);
  const ibv_wc wc = a.PollSend();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_RDMA_WRITE);
  EXPECT_EQ(std::memcmp(b.slab + DcNode::kSendAreaOffset + 100, "written", 7), 0);
  ibv_wc none;
  EXPECT_EQ(ibv_poll_cq(b.receive_cq, 1, &none), 0);
}

TEST(DcTransfer, WriteImmTakesAReceiveAndSaysTheLength) {
  DcNode a, b;
  ASSERT_EQ(a.WriteImm(b.Address(), DcNode::kSendAreaOffset, "with imm", 0xabcd, 3), 0);
  EXPECT_EQ(a.PollSend().status, IBV_WC_SUCCESS);
  const ibv_wc wc = b.PollReceive();
  EXPECT_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(ntohl(wc.imm_data), 0xabcdu);
  EXPECT_EQ(wc.byte_len, 8u);
  EXPECT_EQ(std::memcmp(b.slab + DcNode::kSendAreaOffset, "with imm", 8), 0);
}

TEST(DcTransfer, ReadFetchesAndSaysTheLength) {
  DcNode a, b;
  std::memcpy(b.slab + DcNode::kSendAreaOffset, "remote bytes", 12);
  ASSERT_EQ(a.Read(b.Address(), DcNode::kSendAreaOffset, 12, DcNode::kSendAreaOffset + 64, 4), 0);
  const ibv_wc wc = a.PollSend();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_RDMA_READ);
  EXPECT_EQ(wc.byte_len, 12u);
  EXPECT_EQ(std::memcmp(a.slab + DcNode::kSendAreaOffset + 64, "remote bytes", 12), 0);
}

TEST(DcTransfer, PrivateMemoryIsReachedAsWell) {
  DcNode a({.private_memory = true}), b({.private_memory = true});
  ASSERT_EQ(a.Send(b.Address(), "through the kernel", 1), 0);
  EXPECT_EQ(a.PollSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(b.ReceivedText(b.PollReceive()), "through the kernel");
  ASSERT_EQ(a.Read(b.Address(), 0, 7, DcNode::kSendAreaOffset + 64, 2), 0);
  EXPECT_EQ(a.PollSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(a.slab + DcNode::kSendAreaOffset + 64, "through", 7), 0);
}

TEST(DcTransfer, UnsignalledSendsGiveSlotsBackWithALaterCompletion) {
  DcNode a({.send_wr = 8}), b;
  const DcAddress to = b.Address();
  for (int i = 0; i < 8; ++i) {
    ASSERT_EQ(a.Send(to, "x", i, 0, i == 7 ? IBV_SEND_SIGNALED : 0), 0);
  }
  EXPECT_EQ(a.Send(to, "x", 8), ENOMEM);
  EXPECT_EQ(a.PollSend().wr_id, 7u);
  EXPECT_EQ(a.Send(to, "x", 8), 0);
}

TEST(DcTransfer, UnknownTargetIsRetriedThenFails) {
  DcNode a, b;
  DcAddress nowhere = b.Address();
  nowhere.dctn = 0xfffff0;
  ASSERT_EQ(a.Send(nowhere, "x", 1, 4), 0);
  const ibv_wc wc = a.PollSend();
  EXPECT_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(wc.vendor_err, 0x81u);
  // Other streams go on.
  ASSERT_EQ(a.Send(b.Address(), "fine", 2, 5), 0);
  EXPECT_EQ(a.PollSend().status, IBV_WC_SUCCESS);
}

TEST(DcTransfer, WrongKeyGetsNoResponse) {
  DcNode a, b;
  DcAddress to = b.Address();
  to.dc_key ^= 1;
  ASSERT_EQ(a.Send(to, "x", 1), 0);
  EXPECT_EQ(a.PollSend().status, IBV_WC_RETRY_EXC_ERR);
  ibv_wc none;
  EXPECT_EQ(ibv_poll_cq(b.receive_cq, 1, &none), 0);
}

TEST(DcTransfer, MessageLongerThanTheReceiveBufferFailsAtBothEnds) {
  DcNode a, b({.receive_bytes = 16});
  ASSERT_EQ(a.Send(b.Address(), std::string(17, 'x'), 1), 0);
  const ibv_wc wc = a.PollSend();
  EXPECT_EQ(wc.status, IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(wc.vendor_err, 0x8au);
  EXPECT_EQ(b.PollReceive().status, IBV_WC_LOC_LEN_ERR);
}

TEST(DcTransfer, MessageAsLongAsTheReceiveBufferFits) {
  DcNode a, b({.receive_bytes = 16});
  ASSERT_EQ(a.Send(b.Address(), std::string(16, 'x'), 1), 0);
  EXPECT_EQ(a.PollSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(b.PollReceive().byte_len, 16u);
}

TEST(DcTransfer, WriteWithWrongKeyOrOutsideTheRegionIsDenied) {
  DcNode a, b;
  ASSERT_EQ(a.Write(b.Address(), 0, "x", 1, 1, b.mr->rkey + 1), 0);
  EXPECT_EQ(a.PollSend().status, IBV_WC_REM_ACCESS_ERR);
  ASSERT_EQ(a.Write(b.Address(), DcNode::kSlabBytes - 1, "xy", 2, 2), 0);
  EXPECT_EQ(a.PollSend().status, IBV_WC_REM_ACCESS_ERR);
  // The target is undisturbed.
  ASSERT_EQ(a.Write(b.Address(), DcNode::kSlabBytes - 2, "xy", 3, 3), 0);
  EXPECT_EQ(a.PollSend().status, IBV_WC_SUCCESS);
}

TEST(DcTransfer, LocalKeyThatCoversNothingIsALocalError) {
  DcNode a, b;
  const DcAddress to = b.Address();
  ibv_wr_start(a.dci_ex);
  a.dci_ex->wr_flags = 0;  // an error completes even when nobody asked
  a.dci_ex->wr_id = 9;
  ibv_wr_send(a.dci_ex);
  ibv_wr_set_sge(a.dci_ex, a.mr->lkey + 1, reinterpret_cast<uint64_t>(a.slab), 8);
  mlx5dv_wr_set_dc_addr(a.dci_dv, a.ah, to.dctn, to.dc_key);
  ASSERT_EQ(ibv_wr_complete(a.dci_ex), 0);
  const ibv_wc wc = a.PollSend();
  EXPECT_EQ(wc.status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(wc.wr_id, 9u);
}

TEST(DcTransfer, EmptySrqIsWaitedForForEverWithRnrRetry7) {
  DcNode a, b({.receives = 0});
  ASSERT_EQ(a.Send(b.Address(), "late", 1), 0);
  ibv_wc none;
  EXPECT_EQ(ibv_poll_cq(a.send_cq, 1, &none), 0);
  b.PostReceives(1);
  EXPECT_EQ(a.PollSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(b.ReceivedText(b.PollReceive()), "late");
}

TEST(DcTransfer, EmptySrqFailsWhenRnrRetriesEnd) {
  DcNode a({.rnr_retry = 2}), b({.receives = 0});
  ASSERT_EQ(a.Send(b.Address(), "x", 1), 0);
  const ibv_wc wc = a.PollSend();
  EXPECT_EQ(wc.status, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_EQ(wc.vendor_err, 0x87u);
}

TEST(DcTransfer, CompletionsComeInPostingOrderAcrossStreams) {
  DcNode a, slow({.receives = 0}), fast;
  ASSERT_EQ(a.Send(slow.Address(), "first", 1, 1), 0);
  ASSERT_EQ(a.Send(fast.Address(), "second", 2, 2), 0);
  // The second is delivered, its completion stands behind the first one's.
  EXPECT_EQ(fast.ReceivedText(fast.PollReceive()), "second");
  ibv_wc none;
  EXPECT_EQ(ibv_poll_cq(a.send_cq, 1, &none), 0);
  slow.PostReceives(1);
  EXPECT_EQ(a.PollSend().wr_id, 1u);
  EXPECT_EQ(a.PollSend().wr_id, 2u);
}

TEST(DcTransfer, BatchWithAnErrorIsThrownAwayWhole) {
  DcNode a, b;
  const DcAddress to = b.Address();
  char big[65] = {};
  ibv_wr_start(a.dci_ex);
  for (size_t length : {8, 65}) {
    a.dci_ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send(a.dci_ex);
    ibv_wr_set_inline_data(a.dci_ex, big, length);
    mlx5dv_wr_set_dc_addr(a.dci_dv, a.ah, to.dctn, to.dc_key);
  }
  EXPECT_EQ(ibv_wr_complete(a.dci_ex), ENOMEM);
  ibv_wc none;
  EXPECT_EQ(ibv_poll_cq(b.receive_cq, 1, &none), 0);
  EXPECT_EQ(ibv_poll_cq(a.send_cq, 1, &none), 0);
}

TEST(DcTransfer, AbortPostsNothing) {
  DcNode a, b;
  ibv_wr_start(a.dci_ex);
  ibv_wr_send(a.dci_ex);
  ibv_wr_abort(a.dci_ex);
  ASSERT_EQ(a.Send(b.Address(), "after", 1), 0);
  EXPECT_EQ(a.PollSend().wr_id, 1u);
  EXPECT_EQ(b.ReceivedText(b.PollReceive()), "after");
}

TEST(DcTransfer, DestroyedTargetLooksUnknown) {
  DcNode a;
  DcAddress to;
  {
    DcNode b;
    to = b.Address();
    ASSERT_EQ(a.Send(to, "x", 1, 1), 0);
    EXPECT_EQ(a.PollSend().status, IBV_WC_SUCCESS);
  }
  ASSERT_EQ(a.Send(to, "x", 2, 2), 0);
  EXPECT_EQ(a.PollSend().status, IBV_WC_RETRY_EXC_ERR);
}

}  // namespace dc_transfer_test
}  // namespace sluice::softdc
