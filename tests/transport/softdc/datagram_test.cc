// SPDX-License-Identifier: Apache-2.0
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "gtest/gtest.h"
#include "tests/transport/softdc/plain_node.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace datagram_test {

constexpr uint32_t kQkey = 0x11111111;
constexpr uint32_t kGrhBytes = 40;

struct UdPair {
  UdPair() : UdPair(PlainNodeOptions{.type = IBV_QPT_UD}) {}
  explicit UdPair(const PlainNodeOptions& receiver) : a({.type = IBV_QPT_UD}), b(receiver) {
    a.ToReady(0);
    b.ToReady(0);
  }
  PlainNode a, b;
};

TEST(Ud, DatagramArrivesBehindFortyBytesOfHeader) {
  UdPair pair;
  ASSERT_EQ(pair.a.SendDatagram("datagram", pair.b.qp->qp_num, kQkey, 1), 0);
  EXPECT_EQ(pair.a.PollSend().status, IBV_WC_SUCCESS);
  const ibv_wc got = pair.b.PollReceive();
  EXPECT_EQ(got.byte_len, kGrhBytes + 8);
  EXPECT_EQ(got.src_qp, pair.a.qp->qp_num);
  EXPECT_EQ(got.wc_flags, static_cast<unsigned>(IBV_WC_GRH));
  EXPECT_EQ(pair.b.Text(got.wr_id, kGrhBytes, 8), "datagram");
}

// RoCE v2 over IPv4: the last 20 bytes are the IPv4 header, whose sum over all halfwords is all ones.
TEST(Ud, HeaderNamesTheSender) {
  UdPair pair;
  ASSERT_EQ(pair.a.SendDatagram("x", pair.b.qp->qp_num, kQkey, 1), 0);
  const ibv_wc got = pair.b.PollReceive();
  const auto* ip = reinterpret_cast<const uint8_t*>(pair.b.Buffer(got.wr_id)) + 20;
  EXPECT_EQ(ip[0], 0x45);
  const uint8_t localhost[4] = {127, 0, 0, 1};
  EXPECT_EQ(std::memcmp(ip + 12, localhost, 4), 0);
  uint32_t sum = 0;
  for (int i = 0; i < 20; i += 2) sum += static_cast<uint32_t>(ip[i] << 8 | ip[i + 1]);
  EXPECT_EQ((sum & 0xffff) + (sum >> 16), 0xffffu);
}

TEST(Ud, WrongQkeyIsDroppedWithoutAWord) {
  UdPair pair;
  ASSERT_EQ(pair.a.SendDatagram("dropped", pair.b.qp->qp_num, kQkey + 1, 1), 0);
  EXPECT_EQ(pair.a.PollSend().status, IBV_WC_SUCCESS);
  ASSERT_EQ(pair.a.SendDatagram("taken", pair.b.qp->qp_num, kQkey, 2), 0);
  const ibv_wc got = pair.b.PollReceive();
  EXPECT_EQ(pair.b.Text(got.wr_id, kGrhBytes, 5), "taken");
}

TEST(Ud, QkeyWithItsTopBitSetStandsForTheQueuesOwn) {
  UdPair pair;
  ASSERT_EQ(pair.a.SendDatagram("own", pair.b.qp->qp_num, 0x80000000, 1), 0);
  EXPECT_EQ(pair.b.PollReceive().byte_len, kGrhBytes + 3);
}

TEST(Ud, UnknownNumberSucceedsAtTheSender) {
  UdPair pair;
  ASSERT_EQ(pair.a.SendDatagram("nobody", 0xfffffe, kQkey, 1), 0);
  EXPECT_EQ(pair.a.PollSend().status, IBV_WC_SUCCESS);
}

TEST(Ud, NoReceiveOrTooSmallABufferLosesTheDatagram) {
  UdPair none({.type = IBV_QPT_UD, .receives = 0});
  ASSERT_EQ(none.a.SendDatagram("lost", none.b.qp->qp_num, kQkey, 1), 0);
  EXPECT_EQ(none.a.PollSend().status, IBV_WC_SUCCESS);
  UdPair small({.type = IBV_QPT_UD, .receives = 1, .receive_bytes = kGrhBytes + 4});
  ASSERT_EQ(small.a.SendDatagram("longer than four", small.b.qp->qp_num, kQkey, 1), 0);
  EXPECT_EQ(small.a.PollSend().status, IBV_WC_SUCCESS);
  // The receiver takes its buffer back when it polls.
  ibv_wc wc{};
  EXPECT_EQ(ibv_poll_cq(small.b.receive_cq, 1, &wc), 0);
  ASSERT_EQ(small.a.SendDatagram("fits", small.b.qp->qp_num, kQkey, 2), 0);
  const ibv_wc got = small.b.PollReceive();
  EXPECT_EQ(got.status, IBV_WC_SUCCESS);
  EXPECT_EQ(small.b.Text(got.wr_id, kGrhBytes, 4), "fits");
}

TEST(Ud, LongerThanThePortsMtuIsALocalError) {
  UdPair pair;
  ibv_send_wr wr = pair.a.Wr(IBV_WR_SEND, PlainNode::kSendArea, 4097);
  wr.wr.ud = {.ah = pair.a.ah, .remote_qpn = pair.b.qp->qp_num, .remote_qkey = kQkey};
  ASSERT_EQ(pair.a.Post(wr), 0);
  EXPECT_EQ(pair.a.PollSend().status, IBV_WC_LOC_LEN_ERR);
}

TEST(Ud, OnlySendsAreKnown) {
  UdPair pair;
  EXPECT_EQ(pair.a.Post(pair.a.Wr(IBV_WR_RDMA_WRITE, PlainNode::kSendArea, 4)), EINVAL);
}

TEST(Ud, BlockOfItsOwnMulticastIsTakenOtherCreateFlagsAreNot) {
  PlainNode node;
  ibv_qp_init_attr_ex attr{};
  attr.qp_type = IBV_QPT_UD;
  attr.send_cq = node.send_cq;
  attr.recv_cq = node.receive_cq;
  attr.pd = node.pd;
  attr.cap = {.max_send_wr = 4,
              .max_recv_wr = 4,
              .max_send_sge = 1,
              .max_recv_sge = 1,
              .max_inline_data = 0};
  attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
  attr.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
  ibv_qp* qp = CreateQpEx(node.context, &attr);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(DestroyQp(qp), 0);
  attr.create_flags = IBV_QP_CREATE_SCATTER_FCS;
  errno = 0;
  EXPECT_EQ(CreateQpEx(node.context, &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST(Uc, MessageArrivesAndALostOneIsNobodysError) {
  PlainPair pair(PlainNodeOptions{.type = IBV_QPT_UC, .receives = 1});
  ASSERT_EQ(pair.a.Send("first", 1), 0);
  ASSERT_EQ(pair.a.Send("lost", 2), 0);
  EXPECT_EQ(pair.a.PollSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.a.PollSend().status, IBV_WC_SUCCESS);
  const ibv_wc got = pair.b.PollReceive();
  EXPECT_EQ(pair.b.Text(got.wr_id, 0, got.byte_len), "first");
  ibv_wc none{};
  EXPECT_EQ(ibv_poll_cq(pair.b.receive_cq, 1, &none), 0);
  EXPECT_EQ(pair.b.State(), IBV_QPS_RTS);
}

TEST(Uc, WriteWithAWrongKeyIsDropped) {
  PlainPair pair(PlainNodeOptions{.type = IBV_QPT_UC});
  std::memcpy(pair.a.slab + PlainNode::kSendArea, "payload", 7);
  ibv_send_wr write = pair.a.Wr(IBV_WR_RDMA_WRITE, PlainNode::kSendArea, 7);
  write.wr.rdma = {.remote_addr = pair.b.Address(PlainNode::kSendArea),
                   .rkey = pair.b.mr->rkey + 1};
  ASSERT_EQ(pair.a.Post(write), 0);
  EXPECT_EQ(pair.a.PollSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.b.slab[PlainNode::kSendArea], std::byte{0});
  write.wr.rdma.rkey = pair.b.mr->rkey;
  ASSERT_EQ(pair.a.Post(write), 0);
  EXPECT_EQ(pair.a.PollSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(pair.b.slab + PlainNode::kSendArea, "payload", 7), 0);
}

TEST(Uc, ReadsAndAtomicsAreUnknown) {
  PlainPair pair(PlainNodeOptions{.type = IBV_QPT_UC});
  EXPECT_EQ(pair.a.Post(pair.a.Wr(IBV_WR_RDMA_READ, PlainNode::kSendArea, 8)), EINVAL);
  EXPECT_EQ(pair.a.Post(pair.a.Wr(IBV_WR_ATOMIC_FETCH_AND_ADD, PlainNode::kSendArea, 8)), EINVAL);
}

}  // namespace datagram_test
}  // namespace sluice::softdc
