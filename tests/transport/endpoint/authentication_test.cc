// SPDX-License-Identifier: Apache-2.0
//
// Endpoints that share secrets, do not, or change them.

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/kept_log.h"
#include "tests/transport/endpoint/endpoint_pair.h"
#include "transport/base/error.h"
#include "transport/peer/secrets.h"

namespace sluice::endpoint {
namespace authentication_test {

using Texts = std::vector<std::string>;

constexpr char kOld[] = "the old secret, used so far";
constexpr char kNew[] = "the new secret, used from now";

// Secrets that a test changes. The source runs on the endpoint's helper thread, never while the
// test writes: a change is made between handshakes.
struct Changing {
  explicit Changing(Texts first) : texts(std::move(first)) {}
  Options With() {
    Options options;
    options.secrets = [this]() -> absl::StatusOr<Texts> {
      ++asked;
      if (!why.ok()) return why;
      return texts;
    };
    options.failed_handshakes_per_second = 1'000'000;
    return options;
  }
  Texts texts;
  absl::Status why;
  std::atomic<int> asked{0};
};

uint16_t ListenOn(Node& server) {
  const auto port = server.endpoint->Listen("127.0.0.1", 0);
  EXPECT_TRUE(port.ok()) << port.status();
  return port.ok() ? *port : 0;
}

// OK: connected, and disconnected again.
absl::Status TryOnce(Node& client, Node& server, uint16_t port) {
  auto peer = client.endpoint->Connect("127.0.0.1", port, client.clock.NowNs() + 20'000'000'000);
  if (!peer.ok()) return peer.status();
  const size_t ups = client.recorder.ups.size(), downs = client.recorder.downs.size();
  PollUntil({&client, &server}, [&] {
    return client.recorder.ups.size() > ups || client.recorder.downs.size() > downs;
  });
  if (client.recorder.downs.size() > downs) return client.recorder.downs.back().why;
  const size_t server_downs = server.recorder.downs.size();
  client.endpoint->Disconnect(*peer);
  PollUntil({&client, &server}, [&] {
    return client.recorder.downs.size() > downs && server.recorder.downs.size() > server_downs;
  });
  return absl::OkStatus();
}

TEST(EndpointAuthentication, SharedSecretConnectsAndBothReportsSaySo) {
  Changing both({kOld});
  Node server(both.With()), client(both.With());
  const PeerId peer = ConnectPair(client, server, ListenOn(server));
  ASSERT_EQ(server.recorder.ups.size(), 1u);
  const auto at_client = client.endpoint->Report(peer);
  const auto at_server = server.endpoint->Report(server.recorder.ups[0].id);
  ASSERT_TRUE(at_client.ok() && at_server.ok());
  EXPECT_TRUE(at_client->authenticated && at_server->authenticated);
  EXPECT_EQ(at_client->peer_epoch, at_server->own_epoch);
  EXPECT_EQ(at_client->mtu_bytes, Options().path_mtu_bytes);
  EXPECT_EQ(at_client->max_message_bytes, Options().max_message_bytes);
  EXPECT_GE(at_client->reads_in_flight, 1u);
  ASSERT_TRUE(client.Send(peer, "hello").ok());
  PollUntil({&client, &server}, [&] { return !server.recorder.messages.empty(); });
  EXPECT_EQ(server.recorder.messages[0], "hello");
}

TEST(EndpointAuthentication, WithoutSecretsTheReportSaysUnauthenticated) {
  Node server, client;
  const PeerId peer = ConnectPair(client, server, ListenOn(server));
  EXPECT_FALSE(client.endpoint->Report(peer)->authenticated);
  EXPECT_FALSE(server.endpoint->Report(server.recorder.ups[0].id)->authenticated);
}

TEST(EndpointAuthentication, EachMismatchIsUnauthenticatedWithATextThatTeaches) {
  Changing old_only({kOld}), new_only({kNew});
  Node server(old_only.With()), open_server;
  Node stranger(new_only.With()), open_client;
  const uint16_t port = ListenOn(server), open_port = ListenOn(open_server);
  const absl::Status wrong = TryOnce(stranger, server, port);
  EXPECT_EQ(wrong.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(std::string(wrong.message()),
            "connection refused by the server (peer 127.0.0.1:" + std::to_string(port) +
                "): the server says: not authenticated: the server does not know the client's "
                "secret; give both the same; give both sides the same secret (secret_file)");
  EXPECT_TRUE(base::DetailOf(wrong)->retry_safe());
  const absl::Status missing = TryOnce(open_client, server, port);
  EXPECT_EQ(missing.code(), absl::StatusCode::kUnauthenticated) << missing;
  EXPECT_NE(missing.message().find("the server demands a secret"), absl::string_view::npos);
  const absl::Status useless = TryOnce(stranger, open_server, open_port);
  EXPECT_EQ(useless.code(), absl::StatusCode::kUnauthenticated) << useless;
  EXPECT_NE(useless.message().find("the server has none"), absl::string_view::npos);
  EXPECT_TRUE(server.recorder.ups.empty() && server.recorder.downs.empty());
  EXPECT_EQ(server.endpoint->Handshakes().unauthenticated, 2u);
}

TEST(EndpointAuthentication, ServerLogsWhomItRefusedAndWhy) {
  Changing old_only({kOld}), new_only({kNew});
  testing_support::KeptLog log;
  Options options = old_only.With();
  options.log = &log;
  Node server(options), stranger(new_only.With());
  const uint16_t port = ListenOn(server);
  EXPECT_EQ(TryOnce(stranger, server, port).code(), absl::StatusCode::kUnauthenticated);
  ASSERT_EQ(log.size(), 1u) << log.Lines();
  EXPECT_EQ(log[0].event, "caller refused");
  EXPECT_EQ(log[0].severity, base::Severity::kWarning);
  EXPECT_NE(log[0].message.find("does not know the client's secret"), std::string::npos)
      << log[0].message;
  log.Clear();
  old_only.why = absl::UnavailableError("the vault is closed");
  EXPECT_FALSE(TryOnce(stranger, server, port).ok());
  ASSERT_EQ(log.size(), 1u) << log.Lines();
  EXPECT_EQ(log[0].event, "no secrets");
  EXPECT_EQ(log[0].severity, base::Severity::kError) << "the server's own fault";
  EXPECT_NE(log[0].message.find("the vault is closed"), std::string::npos) << log[0].message;
}

TEST(EndpointAuthentication, RotationInThreeStepsNeverRefusesAndThenTheOldOneIsGone) {
  Changing at_server({kOld}), at_client({kOld});
  Node server(at_server.With()), client(at_client.With());
  const uint16_t port = ListenOn(server);
  const auto connects = [&] {
    const absl::Status status = TryOnce(client, server, port);
    EXPECT_TRUE(status.ok()) << status;
  };
  connects();
  at_server.texts = {kOld, kNew};
  connects();
  at_client.texts = {kOld, kNew};
  connects();
  at_client.texts = {kNew, kOld};
  connects();
  at_server.texts = {kNew, kOld};
  connects();
  at_server.texts = {kNew};
  connects();
  at_client.texts = {kOld};  // one that was forgotten
  EXPECT_EQ(TryOnce(client, server, port).code(), absl::StatusCode::kUnauthenticated);
}

TEST(EndpointAuthentication, SourceThatFailsIsHeardOfAtOnceAndForEachHandshake) {
  Changing broken({kOld});
  broken.why = absl::NotFoundError("the vault is closed");
  {
    Changing fine({kOld});
    Node spare(fine.With());
    const auto created = CreateEndpoint(broken.With(), *spare.device, spare.clock, spare.random,
                                        spare.commands, &spare.recorder);
    EXPECT_EQ(created.status().code(), absl::StatusCode::kNotFound) << created.status();
    EXPECT_NE(created.status().message().find("the vault is closed"), absl::string_view::npos);
  }
  Changing at_server({kOld}), at_client({kOld});
  Node server(at_server.With()), client(at_client.With());
  const uint16_t port = ListenOn(server);
  at_client.why = broken.why;
  const absl::Status own = TryOnce(client, server, port);
  EXPECT_EQ(own.code(), absl::StatusCode::kNotFound) << own;
  EXPECT_NE(own.message().find("connect to 127.0.0.1"), absl::string_view::npos) << own;
  at_client.why = absl::OkStatus();
  at_server.why = broken.why;
  const absl::Status other = TryOnce(client, server, port);
  EXPECT_EQ(other.code(), absl::StatusCode::kUnavailable) << other;
  EXPECT_NE(other.message().find("the server can't read its secrets"), absl::string_view::npos);
  EXPECT_EQ(other.message().find("vault"), absl::string_view::npos) << "not the client's business";
  EXPECT_EQ(server.endpoint->Handshakes().no_secrets, 1u);
  at_server.why = absl::OkStatus();
  EXPECT_TRUE(TryOnce(client, server, port).ok());
}

// A file system that hangs holds up handshakes and nothing else: streams are reset on the thread for commands.
TEST(EndpointAuthentication, SourceThatHangsHoldsUpNoCommand) {
  std::atomic<bool> hangs{false};
  std::atomic<int> asked{0};
  Options options;
  options.failed_handshakes_per_second = 1'000'000;
  options.secrets = [&]() -> absl::StatusOr<Texts> {
    ++asked;
    hangs.wait(true);
    return Texts{kOld};
  };
  Changing fine({kOld});
  Node server(options), client(fine.With());
  const uint16_t port = ListenOn(server);
  ASSERT_TRUE(TryOnce(client, server, port).ok());
  const int before = asked;
  hangs = true;
  for (int i = 0; i < 8; ++i) {
    ASSERT_TRUE(
        client.endpoint->Connect("127.0.0.1", port, client.clock.NowNs() + 20'000'000'000).ok());
  }
  while (asked == before) {
    client.endpoint->Poll();
    server.endpoint->Poll();
  }
  bool done = false;
  server.commands.Submit([] {}, [&done] { done = true; });
  PollUntil({&client, &server}, [&] { return done; });
  hangs = false;
  hangs.notify_all();
  PollUntil({&client, &server}, [&] { return client.recorder.ups.size() == 9; });
}

TEST(EndpointAuthentication, SecretThatIsTooShortIsRefusedWhenTheEndpointIsMade) {
  Changing weak({"short"}), fine({kOld});
  Node spare(fine.With());
  const auto created = CreateEndpoint(weak.With(), *spare.device, spare.clock, spare.random,
                                      spare.commands, &spare.recorder);
  EXPECT_EQ(created.status().code(), absl::StatusCode::kInvalidArgument) << created.status();
}

TEST(EndpointAuthentication, DisconnectWhileTheSecretsAreReadLeavesNothing) {
  Changing both({kOld});
  Node server(both.With()), client(both.With());
  const uint16_t port = ListenOn(server);
  auto peer = client.endpoint->Connect("127.0.0.1", port, client.clock.NowNs() + 20'000'000'000);
  ASSERT_TRUE(peer.ok());
  client.endpoint->Disconnect(*peer);
  PollUntil({&client}, [&] { return !client.recorder.downs.empty(); });
  EXPECT_EQ(client.recorder.downs[0].why.code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(TryOnce(client, server, port).ok());
  EXPECT_EQ(client.recorder.ups.size(), 1u);
}

// A server that comes back at its address is another incarnation: other epoch, other DC keys.
TEST(EndpointAuthentication, RestartedServerHasAnotherEpochAndTheOldConnectionEnds) {
  Changing both({kOld});
  Node client(both.With());
  auto server = std::make_unique<Node>(both.With());
  const uint16_t port = ListenOn(*server);
  const PeerId first = ConnectPair(client, *server, port);
  const uint64_t first_epoch = client.endpoint->Report(first)->peer_epoch;
  server = std::make_unique<Node>(both.With());
  PollUntil({&client}, [&] { return !client.recorder.downs.empty(); });
  EXPECT_EQ(client.recorder.downs[0].id, first);
  const PeerId second = ConnectPair(client, *server, ListenOn(*server));
  EXPECT_NE(client.endpoint->Report(second)->peer_epoch, first_epoch);
  EXPECT_FALSE(client.Send(first, "to nobody").ok());
}

TEST(EndpointAuthentication, ManyConnectsAtOnceAllEndUp) {
  Changing both({kOld});
  Options options = both.With();
  options.max_peers = 64;
  options.srq_size = 1024;
  options.credits_per_peer = 8;
  Node server(options), client(options);
  const uint16_t port = ListenOn(server);
  for (int i = 0; i < 64; ++i) {
    ASSERT_TRUE(
        client.endpoint->Connect("127.0.0.1", port, client.clock.NowNs() + 20'000'000'000).ok());
  }
  PollUntil({&client, &server}, [&] {
    return client.recorder.ups.size() + client.recorder.downs.size() == 64 &&
           server.recorder.ups.size() == client.recorder.ups.size();
  });
  EXPECT_EQ(client.recorder.ups.size(), 64u)
      << (client.recorder.downs.empty() ? absl::OkStatus() : client.recorder.downs[0].why);
  EXPECT_EQ(server.endpoint->Handshakes().completed, 64u);
  EXPECT_EQ(server.endpoint->Handshakes().under_way, 0u);
}

}  // namespace authentication_test
}  // namespace sluice::endpoint
