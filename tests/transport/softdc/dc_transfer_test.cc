// SPDX-License-Identifier: Apache-2.0
//
// Transfers from a DCI to a DCT, beyond the conformance suite: the own target, many messages, private memory.
#include <arpa/inet.h>

#include <cstring>
#include <set>
#include <string>

#include "gtest/gtest.h"
#include "tests/transport/softdc/dc_node.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace dc_transfer_test {

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

TEST(DcTransfer, PrivateMemoryIsReachedAsWell) {
  DcNode a({.private_memory = true}), b({.private_memory = true});
  ASSERT_EQ(a.Send(b.Address(), "through the kernel", 1), 0);
  EXPECT_EQ(a.PollSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(b.ReceivedText(b.PollReceive()), "through the kernel");
  ASSERT_EQ(a.Read(b.Address(), 0, 7, DcNode::kSendAreaOffset + 64, 2), 0);
  EXPECT_EQ(a.PollSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(a.slab + DcNode::kSendAreaOffset + 64, "through", 7), 0);
}

TEST(DcTransfer, MessageAsLongAsTheReceiveBufferFits) {
  DcNode a, b({.receive_bytes = 16});
  ASSERT_EQ(a.Send(b.Address(), std::string(16, 'x'), 1), 0);
  EXPECT_EQ(a.PollSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(b.PollReceive().byte_len, 16u);
}

}  // namespace dc_transfer_test
}  // namespace sluice::softdc
