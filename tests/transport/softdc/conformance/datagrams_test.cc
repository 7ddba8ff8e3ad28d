// SPDX-License-Identifier: Apache-2.0
//
// UD: the header before the payload, Q_Keys, and what is lost without a word.
#include <cstring>
#include <string>

#include "tests/transport/softdc/conformance/conformance_test.h"
#include "tests/transport/softdc/conformance/plain_node.h"

namespace sluice::conformance {
namespace {

constexpr uint32_t kGrhBytes = 40;
constexpr PlainOptions kUd{.type = IBV_QPT_UD};

CONFORMANCE_SUITE(Datagrams);

TEST_P(Datagrams, PayloadStandsBehindFortyBytesOfHeader) {
  PROVES(89);
  PlainPair pair(bed(), kUd);
  ASSERT_EQ(pair.a.SendDatagram(pair.b, "datagram", 1), 0);
  EXPECT_EQ(pair.a.AwaitSend().status, IBV_WC_SUCCESS);
  const ibv_wc got = pair.b.AwaitReceive();
  EXPECT_EQ(got.byte_len, kGrhBytes + 8);
  EXPECT_EQ(got.src_qp, pair.a.qp->qp_num);
  EXPECT_EQ(got.wc_flags, static_cast<unsigned>(IBV_WC_GRH));
  EXPECT_EQ(pair.b.Received(got, kGrhBytes), "datagram");
}

// RoCE v2 over IPv4: the sum over all halfwords of an IPv4 header is all ones.
TEST_P(Datagrams, HeaderNamesTheSender) {
  PROVES(89);
  PlainPair pair(bed(), kUd);
  ASSERT_EQ(pair.a.SendDatagram(pair.b, "x", 1), 0);
  const ibv_wc got = pair.b.AwaitReceive();
  const auto* ip =
      reinterpret_cast<const uint8_t*>(pair.b.slab + got.wr_id * pair.b.options.receive_bytes) + 20;
  // ::ffff:a.b.c.d
  const ibv_gid gid = pair.a.Path().grh.dgid;
  if (gid.raw[10] != 0xff || gid.raw[11] != 0xff) GTEST_SKIP() << "not an IPv4 address";
  EXPECT_EQ(ip[0], 0x45);
  EXPECT_EQ(std::memcmp(ip + 12, pair.a.Path().grh.dgid.raw + 12, 4), 0);
  EXPECT_EQ(std::memcmp(ip + 16, pair.b.Path().grh.dgid.raw + 12, 4), 0);
  uint32_t sum = 0;
  for (int i = 0; i < 20; i += 2) sum += static_cast<uint32_t>(ip[i] << 8 | ip[i + 1]);
  EXPECT_EQ((sum & 0xffff) + (sum >> 16), 0xffffu);
}

// By it programs find the destination in the header: the service level of RoCE is a packet's type.
TEST_P(Datagrams, ServiceLevelSaysHowThePacketWasAddressed) {
  PROVES(89);
  if (!bed().IsMlx5()) GTEST_SKIP() << "mlx5's own: RoCE has no service level";
  PlainPair pair(bed(), kUd);
  ASSERT_EQ(pair.a.SendDatagram(pair.b, "x", 1), 0);
  const ibv_wc got = pair.b.AwaitReceive();
  const ibv_gid gid = pair.a.Path().grh.dgid;
  constexpr uint8_t kUdpHeader = 8, kIpv6 = 1, kIpv4 = 2;
  const bool ipv4 = gid.raw[10] == 0xff && gid.raw[11] == 0xff;
  EXPECT_EQ(got.sl, kUdpHeader | (ipv4 ? kIpv4 : kIpv6));
}

TEST_P(Datagrams, AnotherQkeyIsLost) {
  PROVES(90);
  PlainPair pair(bed(), kUd);
  ASSERT_EQ(pair.a.SendDatagram(pair.b, "lost", 1, kQkey + 1), 0);
  EXPECT_EQ(pair.a.AwaitSend().status, IBV_WC_SUCCESS);
  ASSERT_EQ(pair.a.SendDatagram(pair.b, "taken", 2), 0);
  EXPECT_EQ(pair.b.Received(pair.b.AwaitReceive(), kGrhBytes), "taken");
}

TEST_P(Datagrams, TopBitOfTheQkeyStandsForTheQueuesOwn) {
  PROVES(90);
  PlainPair pair(bed(), kUd);
  ASSERT_EQ(pair.a.SendDatagram(pair.b, "own", 1, 0x80000000), 0);
  EXPECT_EQ(pair.b.Received(pair.b.AwaitReceive(), kGrhBytes), "own");
}

TEST_P(Datagrams, UnknownNumberSucceedsAtTheSender) {
  PROVES(90);
  PlainPair pair(bed(), kUd);
  ASSERT_EQ(pair.a.SendDatagramTo(0xfffffe, "nobody", 1, kQkey), 0);
  EXPECT_EQ(pair.a.AwaitSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.a.State(), IBV_QPS_RTS);
}

TEST_P(Datagrams, NoReceiveLosesTheDatagram) {
  PROVES(90);
  PlainPair pair(bed(), kUd, {.type = IBV_QPT_UD, .receives = 0});
  PlainNode beside(bed(), {.host = 1, .type = IBV_QPT_UD});
  beside.ConnectTo(pair.a);
  ASSERT_EQ(pair.a.SendDatagram(pair.b, "lost", 1), 0);
  EXPECT_EQ(pair.a.AwaitSend().status, IBV_WC_SUCCESS);
  // Once one has arrived that left later, the lost one has passed.
  ASSERT_EQ(pair.a.SendDatagram(beside, "marker", 2), 0);
  EXPECT_EQ(beside.Received(beside.AwaitReceive(), kGrhBytes), "marker");
  ASSERT_EQ(pair.b.PostReceive(0), 0);
  ASSERT_EQ(pair.a.SendDatagram(pair.b, "taken", 3), 0);
  EXPECT_EQ(pair.b.Received(pair.b.AwaitReceive(), kGrhBytes), "taken");
}

TEST_P(Datagrams, TooSmallABufferLosesTheDatagram) {
  PROVES(90);
  PlainPair pair(bed(), kUd, {.type = IBV_QPT_UD, .receives = 2, .receive_bytes = kGrhBytes + 4});
  ASSERT_EQ(pair.a.SendDatagram(pair.b, "longer than four", 1), 0);
  EXPECT_EQ(pair.a.AwaitSend().status, IBV_WC_SUCCESS);
  ASSERT_EQ(pair.a.SendDatagram(pair.b, "fits", 2), 0);
  const ibv_wc got = pair.b.AwaitReceive();
  EXPECT_EQ(got.status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.b.Received(got, kGrhBytes), "fits");
  EXPECT_EQ(pair.b.State(), IBV_QPS_RTS);
}

TEST_P(Datagrams, LongerThanAPacketOrNoSendIsTheSendersMistake) {
  PROVES(90);
  PlainPair pair(bed(), kUd);
  ibv_send_wr wr = pair.a.WrTo(pair.b, 0, IBV_WR_RDMA_WRITE, PlainNode::kFreeOffset, 4);
  EXPECT_EQ(pair.a.Post(wr), EINVAL);
  wr = pair.a.Wr(IBV_WR_SEND, PlainNode::kFreeOffset, 4097);
  wr.wr.ud = {.ah = pair.a.ah, .remote_qpn = pair.b.qp->qp_num, .remote_qkey = kQkey};
  ASSERT_EQ(pair.a.Post(wr), 0);
  EXPECT_EQ(pair.a.AwaitSend().status, IBV_WC_LOC_LEN_ERR);
}

}  // namespace
}  // namespace sluice::conformance
