// SPDX-License-Identifier: Apache-2.0
//
// Order and contents of the events of a connection with external queue pairs, and what rides along.
#include <cstring>

#include "tests/transport/softdc/cm/cm_fixture.h"

namespace sluice::softdc::cm {
namespace cm_connect_test {

TEST_F(CmConnectTest, EventsComeInTheKernelsOrderAndCarryItsFields) {
  const uint16_t port = Listen();
  rdma_cm_id* id = Resolved(port);
  rdma_conn_param param{};
  param.qp_num = 0x1000005;  // cut to 24 bits
  param.private_data = "hello";
  param.private_data_len = 5;
  param.responder_resources = 4;
  param.initiator_depth = 3;
  param.retry_count = 6;
  param.rnr_retry_count = 5;
  ASSERT_EQ(connect(id, &param), 0);

  const Seen request = server->Next();
  EXPECT_EQ(request.type, RDMA_CM_EVENT_CONNECT_REQUEST);
  EXPECT_EQ(request.status, 0);
  EXPECT_EQ(request.listen_id, listener);
  EXPECT_NE(request.id, listener);
  EXPECT_EQ(request.id->context, listener->context);
  EXPECT_EQ(request.id->port_num, 1);
  EXPECT_EQ(request.conn.qp_num, 5u);
  EXPECT_EQ(request.conn.responder_resources, 3);
  EXPECT_EQ(request.conn.initiator_depth, 4);
  EXPECT_EQ(request.conn.retry_count, 6);
  EXPECT_EQ(request.conn.rnr_retry_count, 5);
  EXPECT_EQ(request.conn.flow_control, 0);
  EXPECT_EQ(request.data, std::string("hello") + std::string(51, '\0'));
  EXPECT_EQ(get_src_port(request.id), htons(port));
  EXPECT_EQ(get_dst_port(request.id), get_src_port(id));
  EXPECT_NE(get_src_port(id), 0);
  EXPECT_TRUE(client->Quiet());  // until the server answers

  ASSERT_EQ(AcceptAs(request.id, 77, "welcome"), 0);
  const Seen response = client->Next();
  EXPECT_EQ(response.type, RDMA_CM_EVENT_CONNECT_RESPONSE);
  EXPECT_EQ(response.id, id);
  EXPECT_EQ(response.conn.qp_num, 77u);
  EXPECT_EQ(response.conn.retry_count, 0);
  EXPECT_EQ(response.data, std::string("welcome") + std::string(189, '\0'));
  EXPECT_TRUE(server->Quiet());  // until the client answers

  ASSERT_EQ(establish(id), 0);
  const Seen established = server->Next();
  EXPECT_EQ(established.type, RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(established.id, request.id);
  EXPECT_EQ(established.conn.qp_num, 0u);
  EXPECT_EQ(established.conn.private_data_len, 0);
  EXPECT_TRUE(client->Quiet());  // the active side never gets ESTABLISHED
}

TEST_F(CmConnectTest, PrivateDataLimitsAreTheKernels) {
  const uint16_t port = Listen();
  rdma_cm_id* id = Resolved(port);
  EXPECT_EQ(ConnectAs(id, 1, std::string(57, 'x')), -1);
  EXPECT_EQ(errno, EINVAL);
  ASSERT_EQ(ConnectAs(id, 1, std::string(56, 'x')), 0);  // the failure has spoilt nothing
  const Seen request = server->Next();
  EXPECT_EQ(request.data, std::string(56, 'x'));
  ASSERT_EQ(AcceptAs(request.id, 2, std::string(196, 'y')), 0);
  EXPECT_EQ(client->Next().data, std::string(196, 'y'));
}

TEST_F(CmConnectTest, OversizeAcceptEndsTheAttempt) {
  const uint16_t port = Listen();
  rdma_cm_id* id = Resolved(port);
  ASSERT_EQ(ConnectAs(id, 1), 0);
  const Seen request = server->Next();
  EXPECT_EQ(AcceptAs(request.id, 2, std::string(197, 'y')), -1);
  EXPECT_EQ(errno, EINVAL);
  const Seen rejected = client->Next();
  EXPECT_EQ(rejected.type, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(rejected.status, 28);
  EXPECT_EQ(AcceptAs(request.id, 2), -1);
}

TEST_F(CmConnectTest, OversizeRejectIsRefusedAndTheRequestStaysOpen) {
  const uint16_t port = Listen();
  rdma_cm_id* id = Resolved(port);
  ASSERT_EQ(ConnectAs(id, 1), 0);
  const Seen request = server->Next();
  const std::string data(149, 'z');
  EXPECT_EQ(reject(request.id, data.data(), 149), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_TRUE(client->Quiet());
  ASSERT_EQ(reject(request.id, data.data(), 148), 0);
  const Seen rejected = client->Next();
  EXPECT_EQ(rejected.status, 28);
  EXPECT_EQ(rejected.data, std::string(148, 'z'));
}

struct EceRow {
  ibv_ece client_sets, server_sets, server_reads, client_reads;
};

// The table of reference facts, row by row: the REP carries the requester's vendor, 24 bits.
TEST_F(CmConnectTest, EceIsEchoedAsTheKernelEchoesIt) {
  const EceRow rows[] = {
      {{0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}},
      {{0x15b3, 1, 0}, {0, 0, 0}, {0x15b3, 1, 0}, {0x15b3, 0, 0}},
      {{0, 0, 0}, {0x15b3, 2, 0}, {0, 0, 0}, {0, 2, 0}},
      {{0x15b3, 0xffffffff, 0},
       {0x15b3, 0x80000001, 0},
       {0x15b3, 0xffffffff, 0},
       {0x15b3, 0x80000001, 0}},
      {{0x1ffffff, 5, 0}, {0xff000001, 6, 0}, {0xffffff, 5, 0}, {0xffffff, 6, 0}},
      {{0x15b3, 0, 0}, {0x15b3, 0, 0}, {0x15b3, 0, 0}, {0x15b3, 0, 0}},
  };
  const uint16_t port = Listen();
  uint32_t qpn = 100;
  for (EceRow row : rows) {
    rdma_cm_id* id = Resolved(port);
    if (row.client_sets.vendor_id != 0) {
      ASSERT_EQ(set_local_ece(id, &row.client_sets), 0);
    }
    ASSERT_EQ(ConnectAs(id, qpn++), 0);
    rdma_cm_id* passive = server->Next().id;
    ibv_ece got{9, 9, 9};
    EXPECT_EQ(get_remote_ece(passive, &got), 0);
    EXPECT_EQ(got.vendor_id, row.server_reads.vendor_id);
    EXPECT_EQ(got.options, row.server_reads.options);
    EXPECT_EQ(got.comp_mask, 0u);
    if (row.server_sets.vendor_id != 0) {
      ASSERT_EQ(set_local_ece(passive, &row.server_sets), 0);
    }
    ASSERT_EQ(AcceptAs(passive, qpn++), 0);
    EXPECT_EQ(client->Next().type, RDMA_CM_EVENT_CONNECT_RESPONSE);
    EXPECT_EQ(get_remote_ece(id, &got), 0);
    EXPECT_EQ(got.vendor_id, row.client_reads.vendor_id);
    EXPECT_EQ(got.options, row.client_reads.options);
  }
}

TEST_F(CmConnectTest, EceNeedsAVendorAndNoMask) {
  rdma_cm_id* id = client->NewId();
  ibv_ece no_vendor{0, 7, 0}, mask{0x15b3, 7, 1};
  EXPECT_EQ(set_local_ece(id, &no_vendor), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(set_local_ece(id, &mask), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(CmConnectTest, RejectEceSaysWhy) {
  const uint16_t port = Listen();
  rdma_cm_id* id = Resolved(port);
  ASSERT_EQ(ConnectAs(id, 1), 0);
  ASSERT_EQ(reject_ece(server->Next().id, "no", 2), 0);
  const Seen rejected = client->Next();
  EXPECT_EQ(rejected.type, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(rejected.status, 35);
  EXPECT_EQ(rejected.data.substr(0, 2), "no");
}

TEST_F(CmConnectTest, QpAttributesAreThoseOfAnRcConnection) {
  const uint16_t port = Listen();
  rdma_cm_id* id = Resolved(port);
  ibv_qp_attr attr{};
  int mask = 0;
  attr.qp_state = IBV_QPS_RTR;
  EXPECT_EQ(init_qp_attr(id, &attr, &mask),
            0);  // INIT's, whatever the state: there is no connection
  EXPECT_EQ(mask, 0x39);

  rdma_conn_param param{};
  param.qp_num = 11;
  param.responder_resources = 4;
  param.initiator_depth = 2;
  param.retry_count = 7;
  param.rnr_retry_count = 6;
  ASSERT_EQ(connect(id, &param), 0);
  attr.qp_state = IBV_QPS_INIT;
  EXPECT_EQ(init_qp_attr(id, &attr, &mask), 0);
  EXPECT_EQ(mask, 0x39);
  EXPECT_EQ(attr.port_num, 1);
  attr.qp_state = IBV_QPS_RTR;
  EXPECT_EQ(init_qp_attr(id, &attr, &mask), -1);  // not before CONNECT_RESPONSE
  EXPECT_EQ(errno, EINVAL);

  rdma_cm_id* passive = server->Next().id;
  ibv_qp_attr server_rtr{}, server_rts{};
  server_rtr.qp_state = IBV_QPS_RTR;
  server_rts.qp_state = IBV_QPS_RTS;
  ASSERT_EQ(init_qp_attr(passive, &server_rtr, &mask), 0);
  EXPECT_EQ(mask, 0x129181);
  ASSERT_EQ(init_qp_attr(passive, &server_rts, &mask), 0);
  EXPECT_EQ(mask, 0x12e01);
  EXPECT_EQ(server_rtr.dest_qp_num, 11u);
  EXPECT_EQ(server_rtr.max_dest_rd_atomic, 2);
  EXPECT_EQ(server_rts.max_rd_atomic, 4);

  param.qp_num = 22;
  ASSERT_EQ(accept(passive, &param), 0);
  EXPECT_EQ(client->Next().type, RDMA_CM_EVENT_CONNECT_RESPONSE);
  ibv_qp_attr rtr{}, rts{};
  rtr.qp_state = IBV_QPS_RTR;
  rts.qp_state = IBV_QPS_RTS;
  ASSERT_EQ(init_qp_attr(id, &rtr, &mask), 0);
  ASSERT_EQ(init_qp_attr(id, &rts, &mask), 0);
  EXPECT_EQ(rtr.dest_qp_num, 22u);
  EXPECT_EQ(rtr.path_mtu, IBV_MTU_4096);
  EXPECT_EQ(rtr.rq_psn, server_rts.sq_psn);
  EXPECT_EQ(rts.sq_psn, server_rtr.rq_psn);
  EXPECT_EQ(rtr.ah_attr.is_global, 1);
  EXPECT_EQ(rtr.ah_attr.port_num, 1);
  EXPECT_EQ(rtr.ah_attr.grh.hop_limit, 64);
  EXPECT_EQ(rtr.ah_attr.grh.sgid_index, 0);
  EXPECT_TRUE(SameGid(rtr.ah_attr.grh.dgid, LocalGids()[0]));
  EXPECT_EQ(rts.retry_cnt, 7);
  EXPECT_EQ(rts.rnr_retry, 6);
  EXPECT_EQ(rts.timeout, AckTimeout(kCaAckDelay, kRocePacketLifetime));
  attr.qp_state = IBV_QPS_ERR;
  EXPECT_EQ(init_qp_attr(id, &attr, &mask), -1);
}

TEST_F(CmConnectTest, AckTimeoutOptionReachesTheQueuePair) {
  const uint16_t port = Listen();
  rdma_cm_id* id = client->NewId();
  uint8_t timeout = 8;
  ASSERT_EQ(set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1), 0);
  sockaddr_in to = Ipv4("127.0.0.1", port);
  ASSERT_EQ(resolve_addr(id, nullptr, Generic(&to), 1000), 0);
  client->Next();
  ASSERT_EQ(resolve_route(id, 1000), 0);
  client->Next();
  ASSERT_EQ(ConnectAs(id, 1), 0);
  rdma_cm_id* passive = server->Next().id;
  ASSERT_EQ(AcceptAs(passive, 2), 0);
  client->Next();
  ibv_qp_attr attr{};
  int mask;
  attr.qp_state = IBV_QPS_RTS;
  ASSERT_EQ(init_qp_attr(id, &attr, &mask), 0);
  EXPECT_EQ(attr.timeout, 8);
  ASSERT_EQ(init_qp_attr(passive, &attr, &mask), 0);
  EXPECT_EQ(attr.timeout, AckTimeout(kCaAckDelay, 7));
}

TEST_F(CmConnectTest, NotifyBeforeTheRtuEstablishesOnce) {
  const uint16_t port = Listen();
  rdma_cm_id* id = Resolved(port);
  ASSERT_EQ(ConnectAs(id, 1), 0);
  rdma_cm_id* passive = server->Next().id;
  ASSERT_EQ(AcceptAs(passive, 2), 0);
  client->Next();
  EXPECT_EQ(notify(passive, IBV_EVENT_PATH_MIG), -1);
  EXPECT_EQ(errno, EINVAL);
  ASSERT_EQ(notify(passive, IBV_EVENT_COMM_EST), 0);
  EXPECT_EQ(server->Next().type, RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(establish(id), 0);
  EXPECT_TRUE(server->Quiet());
}

TEST_F(CmConnectTest, ClientMayRejectTheResponse) {
  const uint16_t port = Listen();
  rdma_cm_id* id = Resolved(port);
  ASSERT_EQ(ConnectAs(id, 1), 0);
  rdma_cm_id* passive = server->Next().id;
  ASSERT_EQ(AcceptAs(passive, 2), 0);
  client->Next();
  ASSERT_EQ(reject(id, "bye", 3), 0);
  const Seen rejected = server->Next();
  EXPECT_EQ(rejected.type, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(rejected.status, 28);
  EXPECT_EQ(rejected.data.substr(0, 3), "bye");
}

TEST_F(CmConnectTest, VanishedClientShowsOnlyWhenAcceptFails) {
  const uint16_t port = Listen();
  rdma_cm_id* id = Resolved(port);
  ASSERT_EQ(ConnectAs(id, 1), 0);
  const Seen request = server->Next();
  client->Destroy(id);
  EXPECT_TRUE(server->Quiet());
  EXPECT_EQ(AcceptAs(request.id, 2), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(CmConnectTest, ServerThatDestroysTheRequestRejectsIt) {
  const uint16_t port = Listen();
  rdma_cm_id* id = Resolved(port);
  ASSERT_EQ(ConnectAs(id, 1), 0);
  server->Destroy(server->Next().id);
  const Seen rejected = client->Next();
  EXPECT_EQ(rejected.type, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(rejected.status, 28);
}

TEST_F(CmConnectTest, ListenerDestroyedWithUnreadRequestsRejectsThem) {
  const uint16_t port = Listen();
  rdma_cm_id* id = Resolved(port);
  ASSERT_EQ(ConnectAs(id, 1), 0);
  pollfd readable{.fd = server->channel->fd, .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&readable, 1, 20'000), 1);
  server->Destroy(listener);
  EXPECT_EQ(poll(&readable, 1, 0), 0);
  const Seen rejected = client->Next();
  EXPECT_EQ(rejected.status, 28);
}

TEST_F(CmConnectTest, NeverAnsweredRequestStaysOpenAndSoDoesTheResponse) {
  const uint16_t port = Listen();
  rdma_cm_id* id = Resolved(port);
  ASSERT_EQ(ConnectAs(id, 1), 0);
  const Seen request = server->Next();
  Settle();
  AdvanceBoth(500 * kSecond);
  EXPECT_TRUE(client->Quiet());
  ASSERT_EQ(AcceptAs(request.id, 2), 0);
  EXPECT_EQ(client->Next().type, RDMA_CM_EVENT_CONNECT_RESPONSE);
  AdvanceBoth(500 * kSecond);
  EXPECT_TRUE(server->Quiet());
  ASSERT_EQ(establish(id), 0);
  EXPECT_EQ(server->Next().type, RDMA_CM_EVENT_ESTABLISHED);
}

TEST_F(CmConnectTest, BacklogLimitsUnreadRequestsAndTheRestComeWithTheRepeats) {
  const uint16_t port = Listen(/*backlog=*/4);
  for (uint32_t i = 0; i < 20; ++i) ASSERT_EQ(ConnectAs(Resolved(port), 100 + i), 0);
  Settle();
  EXPECT_EQ(server->engine.counters().backlog_drops, 16u);
  EXPECT_TRUE(client->Quiet());  // neither rejected nor reported
  int requests = 0;
  for (int round = 0; round < 5; ++round) {
    for (; !server->Quiet(); ++requests) {
      EXPECT_EQ(server->Next().type, RDMA_CM_EVENT_CONNECT_REQUEST);
    }
    EXPECT_EQ(requests, 4 * (round + 1));
    client->timers.Advance(kRetryNs);
  }
}

TEST_F(CmConnectTest, BacklogFullForGoodEndsUnreachable) {
  const uint16_t port = Listen(/*backlog=*/1);
  ASSERT_EQ(ConnectAs(Resolved(port), 1), 0);
  ASSERT_EQ(ConnectAs(Resolved(port), 2), 0);
  Settle();
  for (uint32_t i = 0; i + 1 < kMaxAttempts; ++i) {
    client->timers.Advance(kRetryNs);
    Settle();
  }
  EXPECT_TRUE(client->Quiet());
  client->timers.Advance(kRetryNs);  // 16 times 6.4 s
  const Seen unreachable = client->Next();
  EXPECT_EQ(unreachable.type, RDMA_CM_EVENT_UNREACHABLE);
  EXPECT_EQ(unreachable.status, -ETIMEDOUT);
}

TEST_F(CmConnectTest, HundredsAtOnceWithNumbersOfTheirOwn) {
  const uint16_t port = Listen();
  constexpr uint32_t kCount = 300;
  std::map<rdma_cm_id*, uint32_t> expected;
  for (uint32_t i = 0; i < kCount; ++i) {
    rdma_cm_id* id = Resolved(port);
    expected[id] = 0x20000 + i;
    ASSERT_EQ(ConnectAs(id, 0x10000 + i), 0);
  }
  for (uint32_t i = 0; i < kCount; ++i) {
    const Seen request = server->Next();
    ASSERT_EQ(request.type, RDMA_CM_EVENT_CONNECT_REQUEST);
    ASSERT_EQ(AcceptAs(request.id, request.conn.qp_num + 0x10000), 0);
  }
  for (uint32_t i = 0; i < kCount; ++i) {
    const Seen response = client->Next();
    ASSERT_EQ(response.type, RDMA_CM_EVENT_CONNECT_RESPONSE);
    EXPECT_EQ(response.conn.qp_num, expected[response.id]);
    ASSERT_EQ(establish(response.id), 0);
  }
  for (uint32_t i = 0; i < kCount; ++i) {
    EXPECT_EQ(server->Next().type, RDMA_CM_EVENT_ESTABLISHED);
  }
}

}  // namespace cm_connect_test
}  // namespace sluice::softdc::cm
