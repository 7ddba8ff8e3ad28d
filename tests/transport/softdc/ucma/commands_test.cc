// SPDX-License-Identifier: Apache-2.0
//
// What each command does, and the errno where the kernel refuses it.
#include "transport/softdc/ucma/commands.h"

#include <infiniband/ib.h>

#include "tests/transport/softdc/ucma/ucma_fixture.h"

namespace sluice::softdc::ucma {
namespace commands_test {

constexpr uint64_t kBadAddress = 4096;

TEST_F(CommandsTest, ConnectionAsLibrdmacmMakesOne) {
  const uint16_t port = Listen();
  const uint32_t id = Resolved(port);
  abi::rdma_ucm_connect connect{};
  connect.conn_param = Descriptor::Param(0x1000005, "hello");
  connect.conn_param.responder_resources = 3;
  connect.conn_param.initiator_depth = 4;
  connect.id = id;
  connect.ece = {0x15b3, 0x80000001};
  ASSERT_EQ(client->Call(abi::RDMA_USER_CM_CMD_CONNECT, connect), 0);

  const abi::rdma_ucm_event_resp request = server->Next();
  EXPECT_EQ(request.event, RDMA_CM_EVENT_CONNECT_REQUEST);
  EXPECT_EQ(request.uid, kListenerUid);  // the listener's, with the number of a new id
  EXPECT_NE(request.id, listener);
  EXPECT_NE(request.id, id);
  const abi::rdma_ucm_conn_param& conn = request.param.conn;
  EXPECT_EQ(conn.qp_num, 5u);  // 24 bits
  EXPECT_EQ(conn.responder_resources, 4);
  EXPECT_EQ(conn.initiator_depth, 3);
  EXPECT_EQ(conn.retry_count, 7);
  EXPECT_EQ(conn.private_data_len, 56);
  EXPECT_STREQ(reinterpret_cast<const char*>(conn.private_data), "hello");
  EXPECT_EQ(request.ece.vendor_id, 0x15b3u);
  EXPECT_EQ(request.ece.attr_mod, 0x80000001u);

  abi::rdma_ucm_accept accept{};
  accept.uid = kServerUid;
  accept.conn_param = Descriptor::Param(22, "welcome");
  accept.id = request.id;
  accept.ece = {0x15b3, 7};
  ASSERT_EQ(server->Call(abi::RDMA_USER_CM_CMD_ACCEPT, accept), 0);
  const abi::rdma_ucm_event_resp response = client->Next();
  EXPECT_EQ(response.event, RDMA_CM_EVENT_CONNECT_RESPONSE);
  EXPECT_EQ(response.uid, kClientUid);
  EXPECT_EQ(response.id, id);
  EXPECT_EQ(response.param.conn.qp_num, 22u);
  EXPECT_EQ(response.param.conn.private_data_len, 196);
  EXPECT_EQ(response.ece.attr_mod, 7u);
  ASSERT_EQ(client->Establish(id), 0);
  const abi::rdma_ucm_event_resp established = server->Next();
  EXPECT_EQ(established.event, RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(established.uid, kServerUid);

  ASSERT_EQ(client->Disconnect(id), 0);
  EXPECT_EQ(server->Next().event, RDMA_CM_EVENT_DISCONNECTED);
  ASSERT_EQ(server->Disconnect(request.id), 0);
  EXPECT_EQ(client->Next().event, RDMA_CM_EVENT_DISCONNECTED);
  timers.Advance(2 * cm::kSecond);
  EXPECT_EQ(client->Next().event, RDMA_CM_EVENT_TIMEWAIT_EXIT);
  uint32_t reported = 0;
  ASSERT_EQ(client->Destroy(id, &reported), 0);
  EXPECT_EQ(reported, 5u);  // address, route, response, disconnected, exit
}

TEST_F(CommandsTest, OlderCommandsDoTheSame) {
  listener = server->Create(kListenerUid);
  abi::rdma_ucm_bind_ip bind{};
  const sockaddr_in any = Ipv4("0.0.0.0", 0);
  std::memcpy(&bind.addr, &any, sizeof(any));
  bind.id = listener;
  ASSERT_EQ(server->Call(abi::RDMA_USER_CM_CMD_BIND_IP, bind), 0);
  ASSERT_EQ(server->Listen(listener, 0), 0);
  abi::rdma_ucm_query query{};
  abi::rdma_ucm_query_route_resp route{};
  query.response = reinterpret_cast<uintptr_t>(&route);
  query.id = listener;
  ASSERT_EQ(server->Call(abi::RDMA_USER_CM_CMD_QUERY_ROUTE, query, sizeof(route)), 0);

  const uint32_t id = client->Create(kClientUid);
  abi::rdma_ucm_resolve_ip resolve{};
  sockaddr_in to = Ipv4("127.0.0.1", 0);
  std::memcpy(&to.sin_port, reinterpret_cast<const char*>(&route.src_addr) + 2, 2);
  std::memcpy(&resolve.dst_addr, &to, sizeof(to));
  resolve.id = id;
  ASSERT_EQ(client->Call(abi::RDMA_USER_CM_CMD_RESOLVE_IP, resolve), 0);
  EXPECT_EQ(client->Next().event, RDMA_CM_EVENT_ADDR_RESOLVED);
  ASSERT_EQ(client->ResolveRoute(id), 0);
  EXPECT_EQ(client->Next().event, RDMA_CM_EVENT_ROUTE_RESOLVED);
  ASSERT_EQ(client->Connect(id, 1), 0);
  EXPECT_EQ(server->Next().event, RDMA_CM_EVENT_CONNECT_REQUEST);
}

TEST_F(CommandsTest, ProbeForInfinibandAddressesIsAnswered) {
  const uint32_t id = server->Create(1, abi::RDMA_PS_IB);
  abi::rdma_ucm_bind bind{};
  sockaddr_ib probe{};
  probe.sib_family = AF_IB;
  probe.sib_sid = htobe64(RDMA_IB_IP_PS_TCP);
  probe.sib_sid_mask = htobe64(RDMA_IB_IP_PS_MASK);
  std::memcpy(&bind.addr, &probe, sizeof(probe));
  bind.addr_size = sizeof(probe);
  bind.id = id;
  EXPECT_EQ(server->Call(abi::RDMA_USER_CM_CMD_BIND, bind), 0);
  EXPECT_EQ(server->Destroy(id), 0);
}

TEST_F(CommandsTest, NumbersOfIdsAreSmallAndUsedAgain) {
  const uint32_t first = client->Create(1);
  const uint32_t second = client->Create(2);
  EXPECT_NE(first, second);
  ASSERT_EQ(client->Destroy(first), 0);
  EXPECT_EQ(client->Create(3), first);
}

TEST_F(CommandsTest, HeadersAreChecked) {
  abi::rdma_ucm_cmd_hdr header{abi::RDMA_USER_CM_CMD_DISCONNECT, 4, 0};
  EXPECT_EQ(client->Raw(&header, sizeof(header) - 1), EINVAL);
  EXPECT_EQ(client->Raw(&header, sizeof(header)), EINVAL);  // says 4 more bytes than there are
  header.cmd = abi::RDMA_USER_CM_CMD_JOIN_MCAST + 1;
  header.in = 0;
  EXPECT_EQ(client->Raw(&header, sizeof(header)), EINVAL);
  header.cmd = abi::RDMA_USER_CM_CMD_GET_OPTION;
  EXPECT_EQ(client->Raw(&header, sizeof(header)), ENOSYS);
  header.cmd = ~0u;
  EXPECT_EQ(client->Raw(&header, sizeof(header)), EINVAL);
  EXPECT_EQ(client->Raw(reinterpret_cast<void*>(kBadAddress), 64), EFAULT);
  EXPECT_EQ(client->Raw(nullptr, 64), EFAULT);
}

TEST_F(CommandsTest, IdsThatAreNotThereOrAnothersAreTold) {
  const uint32_t mine = client->Create(1);
  EXPECT_EQ(client->Destroy(mine + 1000), ENOENT);
  EXPECT_EQ(server->Destroy(mine), EINVAL);
  EXPECT_EQ(server->Listen(mine, 1), EINVAL);
  EXPECT_EQ(client->Disconnect(mine + 1000), ENOENT);
  EXPECT_EQ(client->Destroy(mine), 0);
  EXPECT_EQ(client->Destroy(mine), ENOENT);
}

TEST_F(CommandsTest, ResponsesNeedRoomAndAnAddress) {
  abi::rdma_ucm_create_id create{};
  abi::rdma_ucm_create_id_resp created{};
  create.ps = abi::RDMA_PS_TCP;
  create.response = reinterpret_cast<uintptr_t>(&created);
  EXPECT_EQ(client->Call(abi::RDMA_USER_CM_CMD_CREATE_ID, create, 3), ENOSPC);
  create.response = kBadAddress;
  EXPECT_EQ(client->Call(abi::RDMA_USER_CM_CMD_CREATE_ID, create, sizeof(created)), EFAULT);
  EXPECT_EQ(client->Create(1), 0u);  // and nothing is left of it
  create.response = reinterpret_cast<uintptr_t>(&created);
  create.ps = 99;
  EXPECT_EQ(client->Call(abi::RDMA_USER_CM_CMD_CREATE_ID, create, sizeof(created)), EINVAL);

  abi::rdma_ucm_destroy_id destroy{};
  EXPECT_EQ(client->Call(abi::RDMA_USER_CM_CMD_DESTROY_ID, destroy, 3), ENOSPC);
  abi::rdma_ucm_init_qp_attr init{};
  EXPECT_EQ(client->Call(abi::RDMA_USER_CM_CMD_INIT_QP_ATTR, init, 8), ENOSPC);
  abi::rdma_ucm_query query{};
  EXPECT_EQ(client->Call(abi::RDMA_USER_CM_CMD_QUERY_ROUTE, query, 8), ENOSPC);
  EXPECT_EQ(client->Call(abi::RDMA_USER_CM_CMD_QUERY, query, 8), ENOSPC);
  query.option = abi::RDMA_USER_CM_QUERY_PATH;
  EXPECT_EQ(client->Call(abi::RDMA_USER_CM_CMD_QUERY, query, 7), ENOSPC);
  query.option = 3;
  EXPECT_EQ(client->Call(abi::RDMA_USER_CM_CMD_QUERY, query, 1000), ENOSYS);
}

TEST_F(CommandsTest, EventStaysUntilItCouldBeWritten) {
  const uint32_t id = client->Create(7);
  ASSERT_EQ(client->ResolveAddr(id, Ipv4("127.0.0.1", 1)), 0);
  EXPECT_EQ(client->GetEvent(reinterpret_cast<abi::rdma_ucm_event_resp*>(kBadAddress)), EFAULT);
  abi::rdma_ucm_event_resp response{};
  EXPECT_EQ(client->GetEvent(&response, 100), ENOSPC);
  EXPECT_TRUE(client->Readable());
  // Callers that know nothing of ECE have less room, and get no more than that.
  response.ece.attr_mod = 0x5a5a5a5a;
  EXPECT_EQ(client->GetEvent(&response, offsetof(abi::rdma_ucm_event_resp, reserved)), 0);
  EXPECT_EQ(response.event, RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_EQ(response.uid, 7u);
  EXPECT_EQ(response.ece.attr_mod, 0x5a5a5a5au);
  EXPECT_FALSE(client->Readable());
}

TEST_F(CommandsTest, AddressesMustHaveTheSizeOfTheirFamily) {
  const uint32_t id = client->Create(1);
  abi::rdma_ucm_bind bind{};
  bind.id = id;
  EXPECT_EQ(client->Call(abi::RDMA_USER_CM_CMD_BIND, bind), EINVAL);
  const sockaddr_in any = Ipv4("0.0.0.0", 0);
  std::memcpy(&bind.addr, &any, sizeof(any));
  bind.addr_size = sizeof(any) + 1;
  EXPECT_EQ(client->Call(abi::RDMA_USER_CM_CMD_BIND, bind), EINVAL);
  bind.addr_size = sizeof(any);
  bind.reserved = 1;
  EXPECT_EQ(client->Call(abi::RDMA_USER_CM_CMD_BIND, bind), EINVAL);
  bind.reserved = 0;
  EXPECT_EQ(client->Call(abi::RDMA_USER_CM_CMD_BIND, bind), 0);
  abi::rdma_ucm_resolve_addr resolve{};
  resolve.id = id;
  EXPECT_EQ(client->Call(abi::RDMA_USER_CM_CMD_RESOLVE_ADDR, resolve), EINVAL);
  abi::rdma_ucm_resolve_ip ip{};
  ip.id = id;
  EXPECT_EQ(client->Call(abi::RDMA_USER_CM_CMD_RESOLVE_IP, ip), EINVAL);
  EXPECT_EQ(client->Call(abi::RDMA_USER_CM_CMD_BIND_IP, abi::rdma_ucm_bind_ip{}), EINVAL);
}

TEST_F(CommandsTest, ConnectNeedsADeviceParametersAndRoomInTheRequest) {
  const uint32_t id = client->Create(1);
  EXPECT_EQ(client->Connect(id, 1), EINVAL);  // no device yet
  EXPECT_EQ(client->ResolveRoute(id), EINVAL);
  EXPECT_EQ(client->Accept(id, 1, 1), EINVAL);
  EXPECT_EQ(client->Disconnect(id), EINVAL);
  const uint32_t resolved = Resolved(Listen());
  abi::rdma_ucm_connect connect{};
  connect.id = resolved;
  EXPECT_EQ(client->Call(abi::RDMA_USER_CM_CMD_CONNECT, connect), EINVAL);  // not `valid`
  EXPECT_EQ(client->Connect(resolved, 1, std::string(57, 'x')), EINVAL);
  abi::rdma_ucm_cmd_hdr header{abi::RDMA_USER_CM_CMD_CONNECT, 16, 0};
  char shorter[sizeof(header) + 16] = {};
  std::memcpy(shorter, &header, sizeof(header));
  EXPECT_EQ(client->Raw(shorter, sizeof(shorter)), EINVAL);
  EXPECT_EQ(client->Connect(resolved, 1, std::string(56, 'x')), 0);
}

TEST_F(CommandsTest, RejectTakesTwoReasons) {
  const uint16_t port = Listen();
  for (const int reason : {0, 28, 35}) {
    const uint32_t id = Resolved(port);
    ASSERT_EQ(client->Connect(id, 100 + static_cast<uint32_t>(reason)), 0);
    abi::rdma_ucm_reject reject{};
    reject.id = server->Next().id;
    reject.reason = 10;
    EXPECT_EQ(server->Call(abi::RDMA_USER_CM_CMD_REJECT, reject), EINVAL);
    reject.reason = static_cast<uint8_t>(reason);
    reject.private_data_len = 149;
    EXPECT_EQ(server->Call(abi::RDMA_USER_CM_CMD_REJECT, reject), EINVAL);
    reject.private_data_len = 2;
    reject.private_data[0] = 'n';
    ASSERT_EQ(server->Call(abi::RDMA_USER_CM_CMD_REJECT, reject), 0);
    const abi::rdma_ucm_event_resp rejected = client->Next();
    EXPECT_EQ(rejected.event, RDMA_CM_EVENT_REJECTED);
    EXPECT_EQ(rejected.status, reason == 0 ? 28u : static_cast<uint32_t>(reason));
    EXPECT_EQ(rejected.param.conn.private_data_len, 148);
    EXPECT_EQ(rejected.param.conn.private_data[0], 'n');
  }
}

TEST_F(CommandsTest, QueuePairAttributesComeInTheKernelsLayout) {
  const uint32_t id = Resolved(Listen());
  ib_uverbs_qp_attr attr{};
  abi::rdma_ucm_init_qp_attr init{};
  init.response = reinterpret_cast<uintptr_t>(&attr);
  init.id = id;
  init.qp_state = IBV_QPS_INIT;
  ASSERT_EQ(client->Call(abi::RDMA_USER_CM_CMD_INIT_QP_ATTR, init, sizeof(attr)), 0);
  EXPECT_EQ(attr.qp_attr_mask, 0x39u);
  EXPECT_EQ(attr.port_num, 1);
  init.qp_state = IBV_QPS_RTR;  // INIT's again: there is no connection
  ASSERT_EQ(client->Call(abi::RDMA_USER_CM_CMD_INIT_QP_ATTR, init, sizeof(attr)), 0);
  EXPECT_EQ(attr.qp_attr_mask, 0x39u);
  init.qp_state = IBV_QPS_ERR + 1;
  EXPECT_EQ(client->Call(abi::RDMA_USER_CM_CMD_INIT_QP_ATTR, init, sizeof(attr)), EINVAL);
  ASSERT_EQ(client->Connect(id, 11), 0);
  ASSERT_EQ(server->Accept(server->Next().id, kServerUid, 22), 0);
  EXPECT_EQ(client->Next().event, RDMA_CM_EVENT_CONNECT_RESPONSE);
  init.qp_state = IBV_QPS_RTR;
  ASSERT_EQ(client->Call(abi::RDMA_USER_CM_CMD_INIT_QP_ATTR, init, sizeof(attr)), 0);
  EXPECT_EQ(attr.qp_attr_mask, 0x129181u);
  EXPECT_EQ(attr.dest_qp_num, 22u);
  EXPECT_EQ(attr.ah_attr.is_global, 1);
  EXPECT_EQ(attr.ah_attr.grh.dgid[15], 1);  // ::ffff:127.0.0.1
}

TEST_F(CommandsTest, OptionsAndThePathOfAnApplication) {
  const uint32_t id = client->Create(kClientUid);
  uint8_t byte = 14;
  abi::rdma_ucm_set_option option{};
  option.id = id;
  option.level = abi::RDMA_OPTION_ID;
  option.optname = abi::RDMA_OPTION_ID_TOS;
  option.optval = reinterpret_cast<uintptr_t>(&byte);
  option.optlen = 1;
  EXPECT_EQ(client->Call(abi::RDMA_USER_CM_CMD_SET_OPTION, option), 0);
  option.optlen = 2;
  EXPECT_EQ(client->Call(abi::RDMA_USER_CM_CMD_SET_OPTION, option), EINVAL);
  option.optlen = 1;
  option.optval = kBadAddress;
  EXPECT_EQ(client->Call(abi::RDMA_USER_CM_CMD_SET_OPTION, option), EFAULT);
  option.optlen = ~0u;
  EXPECT_EQ(client->Call(abi::RDMA_USER_CM_CMD_SET_OPTION, option), EINVAL);

  ib_path_rec_data path{};
  path.flags = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;
  option.level = abi::RDMA_OPTION_IB;
  option.optname = abi::RDMA_OPTION_IB_PATH;
  option.optval = reinterpret_cast<uintptr_t>(&path);
  option.optlen = sizeof(path);
  EXPECT_EQ(client->Call(abi::RDMA_USER_CM_CMD_SET_OPTION, option), EINVAL);  // no address yet
  ASSERT_EQ(client->ResolveAddr(id, Ipv4("127.0.0.1", 1)), 0);
  client->Next();
  ASSERT_EQ(client->Call(abi::RDMA_USER_CM_CMD_SET_OPTION, option), 0);
  EXPECT_EQ(client->Next().event, RDMA_CM_EVENT_ROUTE_RESOLVED);
  option.optlen -= 1;
  EXPECT_EQ(client->Call(abi::RDMA_USER_CM_CMD_SET_OPTION, option), EINVAL);
}

TEST_F(CommandsTest, MigrationNamesTheOldDescriptor) {
  const uint32_t id = client->Create(kClientUid);
  ASSERT_EQ(client->ResolveAddr(id, Ipv4("127.0.0.1", 1)), 0);
  client->Next();
  ASSERT_EQ(client->ResolveRoute(id), 0);  // its event waits
  abi::rdma_ucm_migrate_id migrate{};
  abi::rdma_ucm_migrate_resp response{};
  migrate.response = reinterpret_cast<uintptr_t>(&response);
  migrate.id = id;
  migrate.fd = static_cast<uint32_t>(server->fd());
  EXPECT_EQ(server->Call(abi::RDMA_USER_CM_CMD_MIGRATE_ID, migrate, sizeof(response)), EINVAL);
  migrate.fd = STDERR_FILENO;
  EXPECT_EQ(server->Call(abi::RDMA_USER_CM_CMD_MIGRATE_ID, migrate, sizeof(response)), EINVAL);
  migrate.fd = 987654;
  EXPECT_EQ(server->Call(abi::RDMA_USER_CM_CMD_MIGRATE_ID, migrate, sizeof(response)), ENOENT);
  migrate.fd = static_cast<uint32_t>(client->fd());
  ASSERT_EQ(server->Call(abi::RDMA_USER_CM_CMD_MIGRATE_ID, migrate, sizeof(response)), 0);
  EXPECT_EQ(response.events_reported, 1u);
  EXPECT_FALSE(client->Readable());
  EXPECT_EQ(server->Next().event, RDMA_CM_EVENT_ROUTE_RESOLVED);
  EXPECT_EQ(client->Destroy(id), EINVAL);
  EXPECT_EQ(server->Destroy(id), 0);
}

TEST_F(CommandsTest, NobodyIsToldBeforeTheAcceptNorWithoutAUid) {
  const uint16_t port = Listen();
  const uint32_t id = Resolved(port);
  ASSERT_EQ(client->Connect(id, 1), 0);
  const uint32_t request = server->Next().id;
  ASSERT_EQ(client->Destroy(id), 0);
  cm::Settle();
  EXPECT_FALSE(server->Readable());
  EXPECT_EQ(server->Accept(request, kServerUid, 2), EINVAL);
  const uint32_t nameless = client->Create(0);
  ASSERT_EQ(client->ResolveAddr(nameless, Ipv4("127.0.0.1", 1)), 0);
  EXPECT_FALSE(client->Readable());
}

TEST_F(CommandsTest, DatagramPeersAskAndAnswer) {
  const uint16_t port = Listen(8, abi::RDMA_PS_UDP);
  const uint32_t id = Resolved(port, kClientUid, abi::RDMA_PS_UDP);
  ASSERT_EQ(client->Connect(id, 0, "who"), 0);
  const abi::rdma_ucm_event_resp request = server->Next();
  EXPECT_EQ(request.event, RDMA_CM_EVENT_CONNECT_REQUEST);
  EXPECT_EQ(request.param.ud.private_data_len, 180);
  EXPECT_STREQ(reinterpret_cast<const char*>(request.param.ud.private_data), "who");
  ASSERT_EQ(server->Accept(request.id, kServerUid, 77, "me"), 0);
  const abi::rdma_ucm_event_resp established = client->Next();
  EXPECT_EQ(established.event, RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(established.param.ud.qp_num, 77u);
  EXPECT_EQ(established.param.ud.qkey, 0x01234567u);
  EXPECT_EQ(established.param.ud.ah_attr.is_global, 1);
  EXPECT_EQ(established.param.ud.private_data_len, 136);
  EXPECT_STREQ(reinterpret_cast<const char*>(established.param.ud.private_data), "me");
  EXPECT_FALSE(server->Readable());  // the passive side hears no more
}

TEST_F(CommandsTest, MulticastIsNotSupported) {
  EXPECT_EQ(client->Call(abi::RDMA_USER_CM_CMD_JOIN_MCAST, abi::rdma_ucm_join_mcast{}, 64),
            EOPNOTSUPP);
}

}  // namespace commands_test
}  // namespace sluice::softdc::ucma
