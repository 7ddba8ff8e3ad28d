// SPDX-License-Identifier: Apache-2.0
//
// Wrong hosts, wrong ports, wrong calls: what an application is told, and when.
#include <cstring>

#include "tests/transport/softdc/cm/cm_fixture.h"

namespace sluice::softdc::cm {
namespace cm_error_test {

TEST_F(CmErrorTest, NobodyListensIsRejectedWithReason8) {
  rdma_cm_id* id = Resolved(4791);
  ASSERT_EQ(ConnectAs(id, 1), 0);
  const Seen rejected = client->Next();
  EXPECT_EQ(rejected.type, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(rejected.status, 8);
  EXPECT_EQ(rejected.data, std::string(148, '\0'));
}

TEST_F(CmErrorTest, BoundButNotListeningIsNobodyToo) {
  rdma_cm_id* bound = server->NewId();
  sockaddr_in any = Ipv4("0.0.0.0", 0);
  ASSERT_EQ(bind_addr(bound, Generic(&any)), 0);
  ASSERT_NE(get_src_port(bound), 0);
  rdma_cm_id* id = Resolved(ntohs(get_src_port(bound)));
  ASSERT_EQ(ConnectAs(id, 1), 0);
  EXPECT_EQ(client->Next().status, 8);
}

TEST_F(CmErrorTest, HostThatIsNotHereIsAnAddrErrorAndTheIdCanTryAnother) {
  rdma_cm_id* id = client->NewId();
  sockaddr_in elsewhere = Ipv4("192.0.2.7", 1);
  ASSERT_EQ(resolve_addr(id, nullptr, Generic(&elsewhere), 1000), 0);
  const Seen error = client->Next();
  EXPECT_EQ(error.type, RDMA_CM_EVENT_ADDR_ERROR);
  EXPECT_EQ(error.status, -EHOSTUNREACH);
  EXPECT_EQ(error.id, id);
  EXPECT_EQ(resolve_route(id, 1000), -1);
  EXPECT_EQ(errno, EINVAL);
  sockaddr_in here = Ipv4("127.0.0.1", 1);
  ASSERT_EQ(resolve_addr(id, nullptr, Generic(&here), 1000), 0);
  EXPECT_EQ(client->Next().type, RDMA_CM_EVENT_ADDR_RESOLVED);
}

TEST_F(CmErrorTest, PortInUseAcrossProcessesUntilItIsDestroyed) {
  const uint16_t port = Listen();
  sockaddr_in same = Ipv4("0.0.0.0", port);
  rdma_cm_id* id = client->NewId();
  EXPECT_EQ(bind_addr(id, Generic(&same)), -1);
  EXPECT_EQ(errno, EADDRINUSE);
  server->Destroy(listener);
  EXPECT_EQ(bind_addr(id, Generic(&same)), 0);
  EXPECT_EQ(get_src_port(id), htons(port));
  EXPECT_EQ(listen(id, 1), 0);
}

TEST_F(CmErrorTest, ForeignOrOddSourceAddresses) {
  rdma_cm_id* id = client->NewId();
  sockaddr_in elsewhere = Ipv4("192.0.2.7", 0);
  EXPECT_EQ(bind_addr(id, Generic(&elsewhere)), -1);
  EXPECT_EQ(errno, EADDRNOTAVAIL);
  sockaddr_in here = Ipv4("127.0.0.1", 9);
  EXPECT_EQ(resolve_addr(id, Generic(&elsewhere), Generic(&here), 1000), -1);
  EXPECT_EQ(errno, EADDRNOTAVAIL);
  sockaddr unix_address{};
  unix_address.sa_family = AF_UNIX;
  EXPECT_EQ(bind_addr(id, &unix_address), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(resolve_addr(id, nullptr, &unix_address, 1000), -1);
  EXPECT_EQ(errno, EINVAL);
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  EXPECT_EQ(resolve_addr(id, reinterpret_cast<sockaddr*>(&six), Generic(&here), 1000), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(bind_addr(id, Generic(&here)), 0);  // nothing of the above stuck
}

TEST_F(CmErrorTest, CallsOutOfOrderAreInvalid) {
  rdma_cm_id* id = client->NewId();
  const auto invalid = [](int result) { return result == -1 && errno == EINVAL; };
  EXPECT_TRUE(invalid(resolve_route(id, 1)));
  EXPECT_TRUE(invalid(ConnectAs(id, 1)));
  EXPECT_TRUE(invalid(AcceptAs(id, 1)));
  EXPECT_TRUE(invalid(reject(id, nullptr, 0)));
  EXPECT_TRUE(invalid(establish(id)));
  EXPECT_TRUE(invalid(notify(id, IBV_EVENT_COMM_EST)));
  ibv_qp_attr attr{};
  int mask;
  attr.qp_state = IBV_QPS_INIT;
  EXPECT_TRUE(invalid(init_qp_attr(id, &attr, &mask)));
  const uint16_t port = Listen();
  EXPECT_TRUE(invalid(listen(listener, 1)));
  sockaddr_in to = Ipv4("127.0.0.1", port);
  EXPECT_TRUE(invalid(resolve_addr(listener, nullptr, Generic(&to), 1)));
  rdma_cm_id* connecting = Resolved(port);
  ASSERT_EQ(ConnectAs(connecting, 1), 0);
  EXPECT_TRUE(invalid(ConnectAs(connecting, 1)));
  const Seen request = server->Next();
  ASSERT_EQ(AcceptAs(request.id, 2), 0);
  EXPECT_TRUE(invalid(AcceptAs(request.id, 2)));
}

TEST_F(CmErrorTest, EstablishOnThePassiveSideFailsAndRejectsTheRequest) {
  rdma_cm_id* id = Resolved(Listen());
  ASSERT_EQ(ConnectAs(id, 1), 0);
  const Seen request = server->Next();
  EXPECT_EQ(establish(request.id), -1);
  EXPECT_EQ(errno, EINVAL);
  const Seen rejected = client->Next();
  EXPECT_EQ(rejected.type, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(rejected.status, 28);
}

TEST_F(CmErrorTest, ConnectionParametersAreChecked) {
  rdma_cm_id* id = Resolved(Listen());
  EXPECT_EQ(connect(id, nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  rdma_conn_param param{};
  param.responder_resources = kMaxRdAtomic + 1;
  EXPECT_EQ(connect(id, &param), -1);
  EXPECT_EQ(errno, EINVAL);
  param.responder_resources = RDMA_MAX_RESP_RES;
  param.initiator_depth = kMaxRdAtomic + 1;
  EXPECT_EQ(connect(id, &param), -1);
  param.initiator_depth = RDMA_MAX_INIT_DEPTH;
  param.retry_count = 200;
  ASSERT_EQ(connect(id, &param), 0);
  const Seen request = server->Next();
  EXPECT_EQ(request.conn.initiator_depth, kMaxRdAtomic);
  EXPECT_EQ(request.conn.retry_count, 7);
}

TEST_F(CmErrorTest, WhatThisSliceLeavesOutSaysSo) {
  rdma_cm_id* id = nullptr;
  EXPECT_EQ(create_id(nullptr, &id, nullptr, RDMA_PS_TCP), -1);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(create_id(client->channel, &id, nullptr, static_cast<rdma_port_space>(7)), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(destroy_id(nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ack_cm_event(nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(CmErrorTest, OptionsAreCheckedAsTheKernelChecksThem) {
  rdma_cm_id* id = client->NewId();
  uint8_t byte = 14;
  int number = 1;
  EXPECT_EQ(set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, 1), 0);
  EXPECT_EQ(set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &number, sizeof(int)), 0);
  EXPECT_EQ(set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &number, sizeof(int)), 0);
  EXPECT_EQ(set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &number, sizeof(int)), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(set_option(id, RDMA_OPTION_ID, 77, &byte, 1), -1);
  EXPECT_EQ(errno, ENOSYS);
  EXPECT_EQ(set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &byte, 1), -1);
  EXPECT_EQ(errno, ENOSYS);
}

TEST_F(CmErrorTest, ListenerOfOneAddressDoesNotTakeAnother) {
  listener = server->NewId();
  sockaddr_in bound = Ipv4("127.0.0.2", 0);
  ASSERT_EQ(bind_addr(listener, Generic(&bound)), 0);
  EXPECT_EQ(listener->port_num, 1);
  ASSERT_EQ(listen(listener, 1), 0);
  const uint16_t port = ntohs(get_src_port(listener));
  ASSERT_EQ(ConnectAs(Resolved(port), 1), 0);  // to 127.0.0.1
  EXPECT_EQ(client->Next().status, 8);
  rdma_cm_id* right = client->NewId();
  sockaddr_in to = Ipv4("127.0.0.2", port);
  ASSERT_EQ(resolve_addr(right, nullptr, Generic(&to), 1), 0);
  client->Next();
  ASSERT_EQ(resolve_route(right, 1), 0);
  client->Next();
  ASSERT_EQ(ConnectAs(right, 1), 0);
  EXPECT_EQ(server->Next().type, RDMA_CM_EVENT_CONNECT_REQUEST);
}

TEST_F(CmErrorTest, Ipv6LoopbackConnectsWhereTheHostHasIt) {
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_addr = in6addr_loopback;
  auto* const generic = reinterpret_cast<sockaddr*>(&six);
  if (!IsLocalAddress(generic)) GTEST_SKIP() << "this host has no ::1";
  listener = server->NewId();
  ASSERT_EQ(bind_addr(listener, generic), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  six.sin6_port = get_src_port(listener);
  rdma_cm_id* id = client->NewId();
  ASSERT_EQ(resolve_addr(id, nullptr, generic, 1), 0);
  ASSERT_EQ(client->Next().type, RDMA_CM_EVENT_ADDR_RESOLVED);
  ASSERT_EQ(resolve_route(id, 1), 0);
  client->Next();
  ASSERT_EQ(ConnectAs(id, 1), 0);
  const Seen request = server->Next();
  ASSERT_EQ(request.type, RDMA_CM_EVENT_CONNECT_REQUEST);
  EXPECT_EQ(request.id->route.addr.dst_addr.sa_family, AF_INET6);
  ibv_qp_attr attr{};
  int mask;
  attr.qp_state = IBV_QPS_RTR;
  ASSERT_EQ(init_qp_attr(request.id, &attr, &mask), 0);
  EXPECT_EQ(std::memcmp(attr.ah_attr.grh.dgid.raw, &in6addr_loopback, 16), 0);
}

}  // namespace cm_error_test
}  // namespace sluice::softdc::cm
