// SPDX-License-Identifier: Apache-2.0
//
// What RDMA_CM fills into the address vector of a connection on older kernels and RoCE v2 reaches no address handle. The software NIC
// has the dials for it.
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/transport/endpoint/endpoint_pair.h"

namespace sluice::endpoint {
namespace address_vector_test {

using ::testing::SizeIs;

struct Seen {
  std::vector<ibv_ah_attr> from_cm;
  std::vector<ibv_ah_attr> handles;
};
Seen g_seen;

const verbs::VerbsApi& Recording() {
  static const verbs::VerbsApi table = [] {
    verbs::VerbsApi api = softdc::Verbs();
    api.cm_init_qp_attr = [](rdma_cm_id* id, ibv_qp_attr* attr, int* mask) {
      const bool vector = attr->qp_state == IBV_QPS_RTR;
      const int result = softdc::Verbs().cm_init_qp_attr(id, attr, mask);
      if (result == 0 && vector) g_seen.from_cm.push_back(attr->ah_attr);
      return result;
    };
    api.create_ah = [](ibv_pd* pd, ibv_ah_attr* attr) {
      g_seen.handles.push_back(*attr);
      return softdc::Verbs().create_ah(pd, attr);
    };
    return api;
  }();
  return table;
}

TEST(AddressVector, ConnectionsToAHostShareAHandleWithoutARate) {
  constexpr size_t kConnections = 4;
  Node server;
  Node client({}, &Recording());
  const auto port = server.endpoint->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok()) << port.status();
  g_seen = {};
  for (size_t i = 0; i < kConnections; ++i) ConnectPair(client, server, *port);
  ASSERT_THAT(client.recorder.ups, SizeIs(kConnections));

  std::set<uint32_t> labels;
  for (const ibv_ah_attr& vector : g_seen.from_cm) {
    EXPECT_EQ(vector.static_rate, IBV_RATE_40_GBPS);
    labels.insert(vector.grh.flow_label);
  }
  EXPECT_THAT(labels, SizeIs(kConnections));  // the dials are on

  ASSERT_THAT(g_seen.handles, SizeIs(1));
  EXPECT_EQ(g_seen.handles[0].static_rate, IBV_RATE_MAX);
  EXPECT_NE(g_seen.handles[0].grh.flow_label, 0u);
}

}  // namespace address_vector_test
}  // namespace sluice::endpoint
