// SPDX-License-Identifier: Apache-2.0
//
// Endpoints on a device without DC: each peer has an RC queue pair.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <mutex>
#include <set>
#include <string>
#include <thread>
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
  EXPECT_GT(client.endpoint->Counts().lane_sent, 0u)
      << "softdc promises order for an RC queue pair";
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

// As WithoutDc(), and counts the RC queue pairs of the process that are in use.
std::atomic<int> queue_pairs{0};
std::atomic<int> most_queue_pairs{0};
std::set<ibv_qp*>& CountedQueuePairs() {
  static auto* const counted = new std::set<ibv_qp*>;
  return *counted;
}
std::mutex counting;
const verbs::VerbsApi& Counted() {
  static const verbs::VerbsApi table = [] {
    verbs::VerbsApi api = WithoutDc();
    api.create_qp = [](ibv_pd* pd, ibv_qp_init_attr* attr) {
      ibv_qp* const made = softdc::Verbs().create_qp(pd, attr);
      if (made == nullptr || attr->qp_type != IBV_QPT_RC || attr->srq == nullptr) return made;
      std::lock_guard lock(counting);
      CountedQueuePairs().insert(made);
      most_queue_pairs = std::max<int>(most_queue_pairs, ++queue_pairs);
      return made;
    };
    // Slow, so that clients come while a queue pair ends.
    api.modify_qp = [](ibv_qp* qp, ibv_qp_attr* attr, int mask) {
      if ((mask & IBV_QP_STATE) != 0 && attr->qp_state == IBV_QPS_ERR) {
        std::this_thread::sleep_for(std::chrono::milliseconds(250));
      }
      return softdc::Verbs().modify_qp(qp, attr, mask);
    };
    api.destroy_qp = [](ibv_qp* qp) {
      {
        std::lock_guard lock(counting);
        if (CountedQueuePairs().erase(qp) != 0) --queue_pairs;
      }
      return softdc::Verbs().destroy_qp(qp);
    };
    return api;
  }();
  return table;
}

// Tells the recorder of a node, and counts what it does not.
struct PlaceHandler final : Handler {
  void OnPeerUp(PeerId peer, const PeerInfo& info) override { to->OnPeerUp(peer, info); }
  void OnPeerDown(PeerId peer, const absl::Status& why) override { to->OnPeerDown(peer, why); }
  bool OnMessage(PeerId peer, std::span<const std::byte> bytes) override {
    return to->OnMessage(peer, bytes);
  }
  void OnWritable(PeerId peer) override { to->OnWritable(peer); }
  void OnNoPlace(bool was_refused) override { ++(was_refused ? refused : taken); }

  Recorder* to = nullptr;
  int refused = 0;
  int taken = 0;
};

// A server whose handler counts OnNoPlace(), and a client.
struct Crowd {
  Crowd(const Options& options, const verbs::VerbsApi& api)
      : server(options, &api, nullptr, &handler) {
    handler.to = &server.recorder;
    const auto listening = server.endpoint->Listen("127.0.0.1", 0);
    EXPECT_TRUE(listening.ok()) << listening.status();
    port = listening.value_or(0);
  }
  PlaceHandler handler;
  Node server;
  RcNode client;
  uint16_t port = 0;
};

TEST(RcPeers, AtTheCapClientsAreRefusedByNameAndAPlaceIsFreeWhenItsQueuePairIsGone) {
  Options options;
  options.max_rc_queue_pairs = 2;
  Crowd crowd(options, Counted());
  Node& server = crowd.server;
  RcNode& client = crowd.client;
  PlaceHandler& handler = crowd.handler;
  most_queue_pairs = queue_pairs.load();  // without those of probes
  std::vector<PeerId> peers = {ConnectPair(client, server, crowd.port)};
  EXPECT_EQ(handler.taken, 0);
  peers.push_back(ConnectPair(client, server, crowd.port));
  EXPECT_EQ(handler.taken, 1) << "this was the last place";
  const auto connect = [&] {
    client.recorder.ups.clear();
    client.recorder.downs.clear();
    return TryConnect(client, server, crowd.port);
  };
  for (int attempt = 1; attempt <= 3; ++attempt) {
    (void)connect();
    ASSERT_EQ(client.recorder.downs.size(), 1u);
    const absl::Status& why = client.recorder.downs[0].why;
    EXPECT_EQ(why.code(), absl::StatusCode::kResourceExhausted) << why;
    EXPECT_NE(why.message().find("all 2 RC queue pairs are taken"), absl::string_view::npos) << why;
    EXPECT_NE(why.message().find("max_rc_queue_pairs"), absl::string_view::npos) << why;
    EXPECT_EQ(handler.refused, attempt) << "once for each attempt, though it needed a cookie";
  }
  // Clients come and go more often than a connection is in timewait.
  for (int round = 0; round < 12; ++round) {
    client.recorder.downs.clear();
    client.endpoint->Disconnect(peers[round % 2]);
    PollUntil({&client, &server}, [&] { return !client.recorder.downs.empty(); });
    for (int attempt = 0;; ++attempt) {
      ASSERT_LT(attempt, 1000) << client.recorder.downs.back().why;
      const PeerId peer = connect();
      if (client.recorder.ups.empty()) {
        const absl::Status& why = client.recorder.downs.back().why;
        EXPECT_NE(why.message().find("RC queue pairs"), absl::string_view::npos) << why;
        continue;
      }
      peers[round % 2] = peer;
      break;
    }
  }
  ASSERT_TRUE(client.Send(peers[0], "one").ok());
  ASSERT_TRUE(client.Send(peers[1], "two").ok());
  PollUntil({&client, &server}, [&] { return server.recorder.messages.size() == 2; });
  EXPECT_EQ(most_queue_pairs, 2);
}

std::atomic<bool> device_full{false};
const verbs::VerbsApi& FullDevice() {
  static const verbs::VerbsApi table = [] {
    verbs::VerbsApi api = WithoutDc();
    api.create_qp = [](ibv_pd* pd, ibv_qp_init_attr* attr) -> ibv_qp* {
      if (!device_full || attr->qp_type != IBV_QPT_RC || attr->srq == nullptr) {
        return softdc::Verbs().create_qp(pd, attr);
      }
      errno = ENOMEM;
      return nullptr;
    };
    return api;
  }();
  return table;
}

TEST(RcPeers, WhenTheDeviceHasNoQueuePairTheClientIsRefusedAsAtTheCap) {
  Crowd crowd(Options(), FullDevice());
  Node& server = crowd.server;
  RcNode& client = crowd.client;
  PlaceHandler& handler = crowd.handler;
  device_full = true;
  TryConnect(client, server, crowd.port);
  device_full = false;
  ASSERT_EQ(client.recorder.downs.size(), 1u);
  const absl::Status& why = client.recorder.downs[0].why;
  EXPECT_EQ(why.code(), absl::StatusCode::kResourceExhausted) << why;
  const HandshakeCounts counts = server.endpoint->Handshakes();
  EXPECT_EQ(counts.asked_again, 1u) << "a recorded hello must send no other client away";
  EXPECT_EQ(counts.full, 1u);
  EXPECT_EQ(handler.refused, 1);
  client.recorder.downs.clear();
  (void)ConnectPair(client, server, crowd.port);
}

TEST(RcPeers, WhenPlacesForPeersRunOutTheErrorNamesThem) {
  Options options;
  options.max_peers = 1;
  options.max_rc_queue_pairs = 50;
  Crowd crowd(options, Counted());
  Node& server = crowd.server;
  RcNode& client = crowd.client;
  PlaceHandler& handler = crowd.handler;
  (void)ConnectPair(client, server, crowd.port);
  client.recorder.ups.clear();
  TryConnect(client, server, crowd.port);
  ASSERT_EQ(client.recorder.downs.size(), 1u);
  const std::string why(client.recorder.downs[0].why.message());
  EXPECT_NE(why.find("raise max_peers"), std::string::npos) << why;
  EXPECT_EQ(handler.refused + handler.taken, 0) << "another queue pair would not help";
}

TEST(RcPeers, TheCapHasNoEffectWithDc) {
  Options options;
  options.max_rc_queue_pairs = 1;
  Node server(options), client;
  const auto port = server.endpoint->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok()) << port.status();
  for (int i = 0; i < 3; ++i) (void)ConnectPair(client, server, *port);
  EXPECT_EQ(server.recorder.ups.size(), 3u);
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
