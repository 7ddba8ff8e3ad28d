// SPDX-License-Identifier: Apache-2.0
//
// Endpoints on a device without DC: each peer has an RC queue pair.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/endpoint/endpoint_pair.h"

namespace sluice::endpoint {
namespace rc_peers_test {

// softdc as another vendor's device.
const verbs::VerbsApi& WithoutDc() {
  static const verbs::VerbsApi table = [] {
    verbs::VerbsApi api = softdc::Verbs();
    api.dv_is_supported = [](ibv_device*) { return false; };
    return api;
  }();
  return table;
}

struct RcNode : Node {
  explicit RcNode(const Options& options = {}) : Node(options, &WithoutDc()) {}
};

TEST(RcPeers, TheDeviceSaysWhichItUsesAndWhy) {
  RcNode node;
  EXPECT_TRUE(node.device->rc());
  EXPECT_EQ(node.device->choice(),
            "softdc0: asked for by name; RC queue pairs instead of DC: not an mlx5 device: no DC "
            "transport");
  const auto asked = device::Device::Open("softdc0/rc", {&softdc::Verbs()});
  ASSERT_TRUE(asked.ok()) << asked.status();
  EXPECT_EQ((*asked)->choice(),
            "softdc0: asked for by name; RC queue pairs instead of DC: "
            "RC was asked for (/rc)");
}

TEST(RcPeers, ManyMessagesEachWayArriveOnceAndInOrder) {
  RcNode server, client;
  const auto port = server.endpoint->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok()) << port.status();
  const PeerId peer = ConnectPair(client, server, *port);
  ASSERT_EQ(server.recorder.ups.size(), 1u);
  const PeerId back = server.recorder.ups[0].id;
  ExchangeMany(client, peer, server, back);
  EXPECT_EQ(client.endpoint->Counts().lane_sent, 0u);
  EXPECT_EQ(client.endpoint->Queues().size(), 1u);
}

TEST(RcPeers, AGoodbyeFollowsTheMessagesAndTheQueuePairIsUsedNoMore) {
  RcNode server, client;
  const auto port = server.endpoint->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok()) << port.status();
  for (int round = 1; round <= 3; ++round) {
    const PeerId peer = ConnectPair(client, server, *port);
    ASSERT_TRUE(client.Send(peer, "last words").ok());
    client.endpoint->Disconnect(peer);
    PollUntil({&client, &server},
              [&] { return server.recorder.downs.size() == static_cast<size_t>(round); });
    EXPECT_EQ(server.recorder.messages.size(), static_cast<size_t>(round));
    EXPECT_EQ(std::string(server.recorder.downs.back().why.message()).substr(0, 26),
              "peer closed the connection");
  }
  PollUntil({&client, &server},
            [&] { return client.endpoint->Queues().empty() && server.endpoint->Queues().empty(); });
}

TEST(RcPeers, EachOfTwentyPeersHasAQueuePair) {
  constexpr size_t kPeers = 20;
  Options options;
  options.credits_per_peer = 4;
  RcNode server(options), client(options);
  const auto port = server.endpoint->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok()) << port.status();
  std::vector<PeerId> peers;
  for (size_t i = 0; i < kPeers; ++i) peers.push_back(ConnectPair(client, server, *port));
  for (size_t i = 0; i < kPeers; ++i) {
    ASSERT_TRUE(client.Send(peers[i], "from " + std::to_string(i)).ok());
  }
  PollUntil({&client, &server}, [&] { return server.recorder.messages.size() == kPeers; });
  EXPECT_EQ(server.endpoint->Queues().size(), kPeers);
}

TEST(RcPeers, AServerWithDcRefusesByNameAndTheOtherWayRound) {
  Node dc;
  RcNode rc;
  const auto dc_port = dc.endpoint->Listen("127.0.0.1", 0);
  const auto rc_port = rc.endpoint->Listen("127.0.0.1", 0);
  ASSERT_TRUE(dc_port.ok() && rc_port.ok());
  TryConnect(rc, dc, *dc_port);
  ASSERT_EQ(rc.recorder.downs.size(), 1u);
  EXPECT_EQ(rc.recorder.downs[0].why.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(std::string(rc.recorder.downs[0].why.message())
                .find("the server has DC, the client RC queue pairs; start the side with DC with"),
            std::string::npos)
      << rc.recorder.downs[0].why;
  TryConnect(dc, rc, *rc_port);
  ASSERT_EQ(dc.recorder.downs.size(), 1u);
  EXPECT_NE(std::string(dc.recorder.downs[0].why.message())
                .find("the server has RC queue pairs, the client DC"),
            std::string::npos)
      << dc.recorder.downs[0].why;
}

TEST(RcPeers, SeveralTenantsAreRefusedSinceNothingWouldKeepThemApart) {
  RcNode node;
  Options options;
  const std::vector<std::string> one = {"the secret of one"}, two = {"the secret of two"};
  options.tenants = {{.name = "one", .secrets = [one] { return one; }},
                     {.name = "two", .secrets = [two] { return two; }}};
  const auto created =
      CreateEndpoint(options, *node.device, node.clock, node.random, node.commands, &node.recorder);
  EXPECT_EQ(created.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(created.status().message()).find("tenants would not be kept apart"),
            std::string::npos)
      << created.status();
}

}  // namespace rc_peers_test
}  // namespace sluice::endpoint
