// SPDX-License-Identifier: Apache-2.0
//
// How connections end, and that the next one is a new one: nothing of the older reaches it.
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/endpoint/raw_peer.h"

namespace sluice::endpoint {
namespace reconnect_test {

uint16_t ListenOn(Node& server) { return *server.endpoint->Listen("127.0.0.1", 0); }

// Both directions of a new connection work, and nothing else comes.
void ExpectWorks(Node& client, Node& server, PeerId peer) {
  const size_t before = server.recorder.messages.size();
  ASSERT_TRUE(client.Send(peer, "there").ok());
  PollUntil({&client, &server}, [&] { return server.recorder.messages.size() > before; });
  const size_t answers = client.recorder.messages.size();
  ASSERT_TRUE(server.Send(server.recorder.ups.back().id, "and back").ok());
  PollUntil({&client, &server}, [&] { return client.recorder.messages.size() > answers; });
  EXPECT_EQ(server.recorder.messages.size(), before + 1);
  EXPECT_EQ(server.recorder.messages.back(), "there");
  EXPECT_EQ(client.recorder.messages.back(), "and back");
}

TEST(EndpointDisconnect, EverythingCommittedBeforeItArrivesBeforeTheEnd) {
  Options options;
  options.credits_per_peer = 200;
  Node server(options), client(options);
  const PeerId peer = ConnectPair(client, server, ListenOn(server));
  size_t at_the_end = 0;
  std::vector<std::string> got;
  server.recorder.on_message = [&](PeerId, std::span<const std::byte> bytes) {
    got.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (server.recorder.downs.empty()) at_the_end = got.size();
  };
  // More than one doorbell takes, and more than are signalled together.
  constexpr int kMessages = 100;
  for (int i = 0; i < kMessages; ++i) ASSERT_TRUE(client.Send(peer, std::to_string(i)).ok());
  client.endpoint->Disconnect(peer);
  PollUntil({&client, &server}, [&] { return !server.recorder.downs.empty(); });
  EXPECT_EQ(at_the_end, static_cast<size_t>(kMessages));
  ASSERT_EQ(got.size(), static_cast<size_t>(kMessages));
  for (int i = 0; i < kMessages; ++i) EXPECT_EQ(got[static_cast<size_t>(i)], std::to_string(i));
  EXPECT_EQ(server.recorder.downs[0].why.code(), absl::StatusCode::kUnavailable);
  PollUntil({&client, &server}, [&] { return !client.recorder.downs.empty(); });
  EXPECT_EQ(client.recorder.downs[0].why.code(), absl::StatusCode::kCancelled);
}

TEST(EndpointReconnect, AfterAGoodbyeOfEitherSideIsANewPeer) {
  Node server, client;
  const uint16_t port = ListenOn(server);
  std::vector<PeerId> clients_peers, servers_peers;
  for (int round = 0; round < 4; ++round) {
    const PeerId peer = ConnectPair(client, server, port);
    for (const PeerId older : clients_peers) EXPECT_NE(peer, older);
    for (const PeerId older : servers_peers) EXPECT_NE(server.recorder.ups.back().id, older);
    clients_peers.push_back(peer);
    servers_peers.push_back(server.recorder.ups.back().id);
    ExpectWorks(client, server, peer);
    const size_t downs = clients_peers.size();
    if (round % 2 == 0) {
      client.endpoint->Disconnect(peer);
    } else {
      server.endpoint->Disconnect(servers_peers.back());
    }
    PollUntil({&client, &server}, [&] {
      return client.recorder.downs.size() >= downs && server.recorder.downs.size() >= downs;
    });
    // The names of those who have gone name nobody.
    EXPECT_EQ(client.Send(peer, "late").code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(server.Send(servers_peers.back(), "late").code(), absl::StatusCode::kUnavailable);
  }
}

TEST(EndpointReconnect, RestartedServerHasAnotherEpochAndIsReachedAgain) {
  Node client;
  auto server = std::make_unique<Node>();
  const uint16_t port = ListenOn(*server);
  const PeerId first = ConnectPair(client, *server, port);
  const auto before = client.endpoint->Report(first);
  ASSERT_TRUE(before.ok());
  server = nullptr;
  PollUntil({&client}, [&] { return !client.recorder.downs.empty(); });
  client.recorder.downs.clear();
  server = std::make_unique<Node>();
  const auto bound = server->endpoint->Listen("127.0.0.1", port);
  ASSERT_TRUE(bound.ok()) << bound.status();
  const PeerId second = ConnectPair(client, *server, port);
  EXPECT_NE(first, second);
  const auto after = client.endpoint->Report(second);
  ASSERT_TRUE(after.ok());
  EXPECT_NE(after->peer_epoch, before->peer_epoch);
  ExpectWorks(client, *server, second);
}

// A peer made by hand, up at the server, that can send data as well.
struct DataPeer {
  DataPeer(Node& server, uint16_t port) {
    const size_t ups = server.recorder.ups.size();
    Knock(server, port, raw);
    EXPECT_TRUE(raw.welcomed && raw.up) << raw.why;
    raw.Send(raw.Proof());
    Drive(server, raw, [&] { return server.recorder.ups.size() > ups && !raw.received.empty(); });
    const peer::Terms terms = raw.TakeAnswer();
    // All of its sends go where target.dctn[1] says.
    raw.target.dctn[1] = terms.data_dctn;
    raw.target.key[1] = terms.data_key;
  }
  void SendData(Node& server) {
    raw.Send(raw.Prefix(peer::Kind::kData));
    Drive(server, raw, [&] { return raw.under_way == 0; });
  }

  RawPeer raw;
};

TEST(EndpointReconnect, DataOfAnOlderConnectionIsDroppedAndCounted) {
  Options options;
  options.max_peers = 1;  // the next one takes the same place
  Node server(options);
  const uint16_t port = ListenOn(server);
  DataPeer older(server, port);
  older.SendData(server);
  Drive(server, older.raw, [&] { return server.recorder.messages.size() == 1; });

  // The connection ends; what was under way, or is sent by a program that has not noticed, has the
  // right key still.
  server.endpoint->Disconnect(server.recorder.ups[0].id);
  Drive(server, older.raw, [&] { return older.raw.down; });
  DataPeer newer(server, port);
  ASSERT_EQ(newer.raw.remote_index, older.raw.remote_index);
  ASSERT_NE(newer.raw.remote_token, older.raw.remote_token);
  for (uint64_t late = 1; late <= 5; ++late) {
    older.SendData(server);
    Drive(server, older.raw, [&] { return server.endpoint->Counts().dropped_unknown == late; });
  }
  EXPECT_FALSE(older.raw.failed);
  EXPECT_EQ(server.recorder.messages.size(), 1u);
  newer.SendData(server);
  Drive(server, newer.raw, [&] { return server.recorder.messages.size() == 2; });
  EXPECT_EQ(server.endpoint->Counts().dropped_unknown, 5u);
}

TEST(EndpointReconnect, DataForAServerBeforeItsRestartReachesNobody) {
  auto server = std::make_unique<Node>();
  auto older = std::make_unique<DataPeer>(*server, ListenOn(*server));
  server = nullptr;
  Node next;
  older->raw.Send(older->raw.Prefix(peer::Kind::kData));
  Drive(next, older->raw, [&] { return older->raw.failed; });
  EXPECT_TRUE(next.recorder.messages.empty());
  EXPECT_EQ(next.endpoint->Counts().messages_received, 0u);
}

}  // namespace reconnect_test
}  // namespace sluice::endpoint
