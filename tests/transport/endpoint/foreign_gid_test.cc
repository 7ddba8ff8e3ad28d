// SPDX-License-Identifier: Apache-2.0
//
// A NIC whose table has each address in both RoCE versions, version 1 last, and whose DCTs are reached under their own GID only.
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/transport/endpoint/endpoint_pair.h"

namespace sluice::endpoint {
namespace foreign_gid_test {

using ::testing::HasSubstr;

TEST(ForeignGid, QueuesStandWhereRdmaCmMakesConnections) {
  Node server, client;
  const auto port = server.endpoint->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok()) << port.status();
  const PeerId peer = ConnectPair(client, server, *port);
  ASSERT_TRUE(client.recorder.downs.empty());
  ASSERT_TRUE(client.Send(peer, "hello").ok());
  PollUntil({&client, &server},
            [&] { return !server.recorder.messages.empty() || !client.recorder.downs.empty(); });
  EXPECT_TRUE(client.recorder.downs.empty()) << client.recorder.downs[0].why;
}

// RDMA_CM makes connections at another address of the port than the queues have.
const verbs::VerbsApi& AtAnotherGid() {
  static const verbs::VerbsApi table = [] {
    verbs::VerbsApi api = softdc::Verbs();
    api.cm_init_qp_attr = [](rdma_cm_id* id, ibv_qp_attr* attr, int* mask) {
      const int result = softdc::Verbs().cm_init_qp_attr(id, attr, mask);
      attr->ah_attr.grh.sgid_index = 1;
      return result;
    };
    return api;
  }();
  return table;
}

TEST(ForeignGid, ServerRefusesAConnectionAtAnotherAddressThanItsQueues) {
  Node server({}, &AtAnotherGid()), client;
  const auto port = server.endpoint->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok()) << port.status();
  TryConnect(client, server, *port);
  ASSERT_FALSE(client.recorder.downs.empty());
  const absl::Status why = client.recorder.downs[0].why;
  EXPECT_EQ(why.code(), absl::StatusCode::kFailedPrecondition) << why;
  EXPECT_THAT(std::string(why.message()),
              HasSubstr("connection at 127.0.0.1 (GID 1, RoCE v1) of softdc0, queues at "
                        "127.0.0.1 (GID 0)"));
}

TEST(ForeignGid, ClientDoesNotConnectFromAnotherAddressThanItsQueues) {
  Node server, client({}, &AtAnotherGid());
  const auto port = server.endpoint->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok()) << port.status();
  TryConnect(client, server, *port);
  ASSERT_FALSE(client.recorder.downs.empty());
  EXPECT_THAT(std::string(client.recorder.downs[0].why.message()),
              HasSubstr("queues at 127.0.0.1 (GID 0)"));
}

}  // namespace foreign_gid_test
}  // namespace sluice::endpoint
