// SPDX-License-Identifier: Apache-2.0
//
// Traffic class, service level, partition and retries of an endpoint: in its queue pairs, its address handles and its connections. The
// software NIC has a second partition.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/transport/endpoint/endpoint_pair.h"

namespace sluice::endpoint {
namespace path_options_test {

using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr device::PathSettings kPath = {
    .traffic_class = 106, .service_level = 3, .pkey = 0x8001, .retry_count = 2, .rnr_retry = 5};

struct Seen {
  std::vector<ibv_qp_attr> init, ready_to_receive, ready_to_send;
  std::vector<ibv_ah_attr> handles;
  std::vector<uint8_t> types_of_service;
};
Seen g_seen;

// The software NIC, and a record of what was asked of it.
const verbs::VerbsApi& Recording() {
  static const verbs::VerbsApi table = [] {
    verbs::VerbsApi api = softdc::Verbs();
    api.modify_qp = [](ibv_qp* qp, ibv_qp_attr* attr, int mask) {
      if (attr->qp_state == IBV_QPS_INIT) g_seen.init.push_back(*attr);
      if (attr->qp_state == IBV_QPS_RTR) g_seen.ready_to_receive.push_back(*attr);
      if (attr->qp_state == IBV_QPS_RTS) g_seen.ready_to_send.push_back(*attr);
      return softdc::Verbs().modify_qp(qp, attr, mask);
    };
    api.create_ah = [](ibv_pd* pd, ibv_ah_attr* attr) {
      g_seen.handles.push_back(*attr);
      return softdc::Verbs().create_ah(pd, attr);
    };
    api.cm_set_option = [](rdma_cm_id* id, int level, int name, void* value, size_t size) {
      if (level == RDMA_OPTION_ID && name == RDMA_OPTION_ID_TOS) {
        g_seen.types_of_service.push_back(*static_cast<uint8_t*>(value));
      }
      return softdc::Verbs().cm_set_option(id, level, name, value, size);
    };
    return api;
  }();
  return table;
}

// Everything after the trial of the device, which has no options yet.
TEST(PathOptions, ReachQueuePairsAddressHandlesAndConnections) {
  auto device = device::Device::Open("softdc0", {&Recording()}).value();
  ASSERT_TRUE(device->UsePath(kPath).ok());
  g_seen = {};
  Node server({}, &softdc::Verbs(), nullptr, nullptr, kPath);
  Recorder recorder;
  base::RealClock clock;
  base::SystemRandom random;
  {
    poller::ThreadCommands commands;
    auto client = CreateEndpoint({}, *device, clock, random, commands, &recorder).value();
    const auto port = server.endpoint->Listen("127.0.0.1", 0);
    ASSERT_TRUE(port.ok()) << port.status();
    const auto peer = client->Connect("127.0.0.1", *port, clock.NowNs() + 600'000'000'000);
    ASSERT_TRUE(peer.ok()) << peer.status();
    while (recorder.ups.empty() && recorder.downs.empty()) {
      client->Poll();
      server.endpoint->Poll();
    }
    ASSERT_THAT(recorder.downs, IsEmpty()) << recorder.downs[0].why;
    EXPECT_EQ(client->Report(*peer)->service_level, 3u);
  }
  EXPECT_THAT(g_seen.init, Not(IsEmpty()));
  EXPECT_THAT(g_seen.init, Each(Field(&ibv_qp_attr::pkey_index, 1)));
  EXPECT_THAT(g_seen.ready_to_receive, Not(IsEmpty()));
  for (const ibv_qp_attr& attr : g_seen.ready_to_receive) g_seen.handles.push_back(attr.ah_attr);
  EXPECT_THAT(g_seen.handles, Each(Field(&ibv_ah_attr::sl, 3)));
  for (const ibv_ah_attr& vector : g_seen.handles) EXPECT_EQ(vector.grh.traffic_class, 106);
  EXPECT_THAT(g_seen.ready_to_send, Not(IsEmpty()));
  EXPECT_THAT(g_seen.ready_to_send, Each(Field(&ibv_qp_attr::retry_cnt, 2)));
  EXPECT_THAT(g_seen.ready_to_send, Each(Field(&ibv_qp_attr::rnr_retry, 5)));
  EXPECT_THAT(g_seen.types_of_service, testing::ElementsAre(106));
}

TEST(PathOptions, PeersOfOnePartitionTalk) {
  Node server({}, &softdc::Verbs(), nullptr, nullptr, kPath);
  Node client({}, &softdc::Verbs(), nullptr, nullptr, kPath);
  const auto port = server.endpoint->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok()) << port.status();
  const PeerId peer = ConnectPair(client, server, *port);
  ASSERT_TRUE(client.Send(peer, "hello").ok());
  PollUntil({&client, &server},
            [&] { return !server.recorder.messages.empty() || !client.recorder.downs.empty(); });
  EXPECT_THAT(client.recorder.downs, IsEmpty());
}

TEST(PathOptions, PeerOfAnotherPartitionDoesNotAnswerAndTheErrorSaysSo) {
  Node server;
  Node client({.dead_peer_ns = 100'000'000}, &softdc::Verbs(), nullptr, nullptr, kPath);
  const auto port = server.endpoint->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok()) << port.status();
  const PeerId peer = TryConnect(client, server, *port);
  if (client.recorder.downs.empty()) {
    ASSERT_TRUE(client.Send(peer, "hello").ok());
    PollUntil({&client, &server}, [&] { return !client.recorder.downs.empty(); });
  }
  const absl::Status why = client.recorder.downs[0].why;
  EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable) << why;
  EXPECT_THAT(std::string(why.message()), HasSubstr("partition")) << why;
  EXPECT_THAT(server.recorder.messages, IsEmpty());
}

}  // namespace path_options_test
}  // namespace sluice::endpoint
