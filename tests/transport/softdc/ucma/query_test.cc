// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/ucma/query.h"

#include <infiniband/ib.h>

#include "tests/transport/softdc/ucma/ucma_fixture.h"

namespace sluice::softdc::ucma {
namespace query_test {

TEST_F(QueryTest, DeviceIsToldOnceTheIdIsOnOne) {
  const uint32_t id = client->Create(1);
  abi::rdma_ucm_query_addr_resp addresses{};
  ASSERT_EQ(client->Query(id, abi::RDMA_USER_CM_QUERY_ADDR, &addresses), 0);
  EXPECT_EQ(addresses.node_guid, 0u);
  EXPECT_EQ(addresses.src_size, 0);
  ASSERT_EQ(client->Bind(id, Ipv4("0.0.0.0", 0)), 0);
  ASSERT_EQ(client->Query(id, abi::RDMA_USER_CM_QUERY_ADDR, &addresses), 0);
  EXPECT_EQ(addresses.node_guid, 0u);  // on none yet
  EXPECT_EQ(addresses.src_size, sizeof(sockaddr_in));
  ASSERT_EQ(client->ResolveAddr(id, Ipv4("127.0.0.1", 7)), 0);
  ASSERT_EQ(client->Query(id, abi::RDMA_USER_CM_QUERY_ADDR, &addresses), 0);
  EXPECT_EQ(addresses.node_guid, kGuid);
  EXPECT_EQ(addresses.port_num, 1);
  EXPECT_EQ(addresses.pkey, 0xffff);
  EXPECT_EQ(addresses.dst_size, sizeof(sockaddr_in));
  sockaddr_in to;
  std::memcpy(&to, &addresses.dst_addr, sizeof(to));
  EXPECT_EQ(to.sin_port, htons(7));
}

TEST_F(QueryTest, OlderCallersGetWhatTheyHaveRoomFor) {
  const uint32_t id = Resolved(1);
  abi::rdma_ucm_query_addr_resp addresses{};
  addresses.ibdev_index = 5;
  ASSERT_EQ(client->Query(id, abi::RDMA_USER_CM_QUERY_ADDR, &addresses,
                          offsetof(abi::rdma_ucm_query_addr_resp, ibdev_index)),
            0);
  EXPECT_EQ(addresses.node_guid, kGuid);
  EXPECT_EQ(addresses.ibdev_index, 5u);
}

TEST_F(QueryTest, GidsComeAsInfinibandAddresses) {
  const uint32_t id = Resolved(0x1234);
  abi::rdma_ucm_query_addr_resp gids{};
  ASSERT_EQ(client->Query(id, abi::RDMA_USER_CM_QUERY_GID, &gids), 0);
  sockaddr_ib to;
  ASSERT_EQ(gids.dst_size, sizeof(to));
  std::memcpy(&to, &gids.dst_addr, sizeof(to));
  EXPECT_EQ(to.sib_family, AF_IB);
  EXPECT_EQ(to.sib_pkey, 0xffff);
  EXPECT_EQ(be64toh(to.sib_sid), 0x1061234u);  // port space and port
  const Gid loopback = LocalGids()[0];
  EXPECT_EQ(std::memcmp(&to.sib_addr, loopback.raw, 16), 0);
}

TEST_F(QueryTest, PathIsPackedAsASubnetAdministratorWould) {
  const uint32_t id = Resolved(1);
  struct {
    uint32_t num_paths, reserved;
    ib_path_rec_data path;
    uint64_t room;
  } response{};
  ASSERT_EQ(client->Query(id, abi::RDMA_USER_CM_QUERY_PATH, &response), 0);
  EXPECT_EQ(response.num_paths, 1u);
  EXPECT_EQ(response.path.flags, 1u | 2u | 40u);  // GMP, primary, both directions
  const auto* const bytes = reinterpret_cast<const uint8_t*>(response.path.path_rec);
  EXPECT_EQ(bytes[8 + 15], 1);  // destination GID ::ffff:127.0.0.1
  EXPECT_EQ(bytes[47], 64);     // hop limit
  EXPECT_EQ(bytes[49], 0x80);   // reversible
  EXPECT_EQ(bytes[54] & 0x3f, IBV_MTU_4096);
  EXPECT_EQ(bytes[56] & 0x3f, 16);  // packet lifetime
  response = {};
  ASSERT_EQ(client->Query(id, abi::RDMA_USER_CM_QUERY_PATH, &response, 8), 0);
  EXPECT_EQ(response.num_paths, 1u);
  EXPECT_EQ(response.path.flags, 0u);
}

TEST_F(QueryTest, RouteOfAPassiveIdLeadsBack) {
  const uint16_t port = Listen();
  ASSERT_EQ(client->Connect(Resolved(port), 1), 0);
  abi::rdma_ucm_query given{};
  abi::rdma_ucm_query_route_resp route{};
  given.response = reinterpret_cast<uintptr_t>(&route);
  given.id = server->Next().id;
  ASSERT_EQ(server->Call(abi::RDMA_USER_CM_CMD_QUERY_ROUTE, given, sizeof(route)), 0);
  EXPECT_EQ(route.node_guid, kGuid);
  EXPECT_EQ(route.num_paths, 1u);
  sockaddr_in from;
  std::memcpy(&from, &route.src_addr, sizeof(from));
  EXPECT_EQ(from.sin_port, htons(port));
  EXPECT_EQ(route.ib_route[0].dgid[15], 1);
  EXPECT_EQ(route.ib_route[0].mtu, IBV_MTU_4096);
}

}  // namespace query_test
}  // namespace sluice::softdc::ucma
