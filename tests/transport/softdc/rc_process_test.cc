// SPDX-License-Identifier: Apache-2.0
//
// RC between two processes: every operation, and what is left when one of them dies.
#include <cstring>
#include <string>

#include "gtest/gtest.h"
#include "tests/transport/softdc/dc_child.h"
#include "tests/transport/softdc/plain_node.h"

namespace sluice::softdc {
namespace rc_process_test {

constexpr size_t kArea = PlainNode::kSendArea + (64 << 10);  // behind what Send uses

struct PeerAddress {
  uint32_t number = 0;
  uint32_t rkey = 0;
  uint64_t slab = 0;
};

PeerAddress AddressOf(const PlainNode& node) {
  return {.number = node.qp->qp_num, .rkey = node.mr->rkey, .slab = node.Address(0)};
}

// Connects, then sends back what it receives, for ever.
void Echo(int down, int up) {
  PlainNode node;
  const PeerAddress own = AddressOf(node);
  PeerAddress peer;
  if (write(up, &own, sizeof(own)) < 0) return;
  if (read(down, &peer, sizeof(peer)) != sizeof(peer)) return;
  node.ToReady(peer.number);
  const char ready = 1;
  if (write(up, &ready, 1) < 0) return;
  for (uint64_t i = 0;; ++i) {
    const ibv_wc got = node.PollReceive();
    node.Send(node.Text(got.wr_id, 0, got.byte_len), i);
    node.PostReceive(got.wr_id);
    node.PollSend();
  }
}

TEST(RcProcess, EveryOperationReachesAnotherProcessUntilItDies) {
  Child child(Echo);
  PlainNode node;
  const auto peer = child.Get<PeerAddress>();
  child.Put(AddressOf(node));
  node.ToReady(peer.number);
  child.Get<char>();
  for (uint64_t i = 0; i < 50; ++i) {
    const std::string text = "ping " + std::to_string(i);
    ASSERT_EQ(node.Send(text, i), 0);
    EXPECT_EQ(node.PollSend().status, IBV_WC_SUCCESS);
    const ibv_wc got = node.PollReceive();
    EXPECT_EQ(node.Text(got.wr_id, 0, got.byte_len), text);
    ASSERT_EQ(node.PostReceive(got.wr_id), 0);
  }

  std::memcpy(node.slab + kArea, "one-sided", 9);
  ibv_send_wr wr = node.Wr(IBV_WR_RDMA_WRITE, kArea, 9);
  wr.wr.rdma = {.remote_addr = peer.slab + kArea + 64, .rkey = peer.rkey};
  ASSERT_EQ(node.Post(wr), 0);
  EXPECT_EQ(node.PollSend().status, IBV_WC_SUCCESS);
  wr = node.Wr(IBV_WR_RDMA_READ, kArea + 128, 9);
  wr.wr.rdma = {.remote_addr = peer.slab + kArea + 64, .rkey = peer.rkey};
  ASSERT_EQ(node.Post(wr), 0);
  EXPECT_EQ(node.PollSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(node.slab + kArea + 128, "one-sided", 9), 0);

  for (uint64_t i = 0; i < 3; ++i) {
    wr = node.Wr(IBV_WR_ATOMIC_FETCH_AND_ADD, kArea + 256, 8);
    wr.wr.atomic = {
        .remote_addr = peer.slab + kArea + 1024, .compare_add = 5, .swap = 0, .rkey = peer.rkey};
    ASSERT_EQ(node.Post(wr), 0);
    EXPECT_EQ(node.PollSend().status, IBV_WC_SUCCESS);
    uint64_t before = 0;
    std::memcpy(&before, node.slab + kArea + 256, sizeof(before));
    EXPECT_EQ(before, 5 * i);
  }

  child.Kill();
  // What arrives before its death is known here still lands.
  ibv_wc wc{};
  do {
    ASSERT_EQ(node.Send("nobody", 1), 0);
    wc = node.PollSend();
  } while (wc.status == IBV_WC_SUCCESS);
  EXPECT_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(wc.vendor_err, 0x81u);
  EXPECT_EQ(node.State(), IBV_QPS_ERR);
}

}  // namespace rc_process_test
}  // namespace sluice::softdc
