// SPDX-License-Identifier: Apache-2.0
//
// Tenants of one endpoint: who belongs to which, and what none of them can do to the others.
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/endpoint/raw_peer.h"

namespace sluice::endpoint {
namespace {

using Texts = std::vector<std::string>;

constexpr char kRed[] = "the secret of the red ones";
constexpr char kBlue[] = "the secret of the blue ones";

peer::SecretSource Of(Texts texts) {
  return [texts = std::move(texts)] { return texts; };
}

Options TwoTenants() {
  Options options;
  options.tenants = {{.name = "red", .secrets = Of({kRed}), .srq_size = 128, .max_peers = 2},
                     {.name = "blue", .secrets = Of({kBlue}), .srq_size = 128, .max_peers = 2}};
  options.failed_handshakes_per_second = 1'000'000;
  options.accept_timeout_ns = 600'000'000'000;
  return options;
}

Options With(const char* secret) {
  Options options;
  options.secrets = Of({secret});
  return options;
}

uint16_t ListenOn(Node& server) {
  const auto port = server.endpoint->Listen("127.0.0.1", 0);
  EXPECT_TRUE(port.ok()) << port.status();
  return port.ok() ? *port : 0;
}

// Why a connection did not come about.
absl::Status Refusal(Node& client, Node& server, uint16_t port) {
  const size_t ups = client.recorder.ups.size(), downs = client.recorder.downs.size();
  auto peer = client.endpoint->Connect("127.0.0.1", port, client.clock.NowNs() + 20'000'000'000);
  if (!peer.ok()) return peer.status();
  PollUntil({&client, &server}, [&] {
    return client.recorder.ups.size() > ups || client.recorder.downs.size() > downs;
  });
  return client.recorder.downs.size() > downs ? client.recorder.downs.back().why : absl::OkStatus();
}

TEST(Tenants, ASecretMakesAPeerItsTenants) {
  Node server(TwoTenants()), red(With(kRed)), blue(With(kBlue));
  const uint16_t port = ListenOn(server);
  const PeerId from_red = ConnectPair(red, server, port);
  const PeerId from_blue = ConnectPair(blue, server, port);
  ASSERT_EQ(server.recorder.ups.size(), 2u);
  EXPECT_EQ(server.recorder.ups[0].info.tenant, "red");
  EXPECT_EQ(server.recorder.ups[1].info.tenant, "blue");
  EXPECT_EQ(server.endpoint->Report(server.recorder.ups[1].id)->tenant, "blue");
  EXPECT_EQ(red.endpoint->Report(from_red)->tenant, "");  // its own side has none
  ASSERT_TRUE(red.Send(from_red, "by red").ok());
  PollUntil({&red, &server}, [&] { return server.recorder.messages.size() == 1; });
  ASSERT_TRUE(blue.Send(from_blue, "by blue").ok());
  PollUntil({&blue, &server}, [&] { return server.recorder.messages.size() == 2; });
  EXPECT_EQ(server.recorder.messages, (Texts{"by red", "by blue"}));
  // And back: each by way of its own.
  for (const auto& up : server.recorder.ups) ASSERT_TRUE(server.Send(up.id, "hello").ok());
  PollUntil({&red, &blue, &server}, [&] {
    return red.recorder.messages.size() == 1 && blue.recorder.messages.size() == 1;
  });
}

TEST(Tenants, WhoIsNobodysStaysOutside) {
  Node server(TwoTenants()), stranger(With("a secret of nobody here")), open{};
  const uint16_t port = ListenOn(server);
  EXPECT_EQ(Refusal(stranger, server, port).code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(Refusal(open, server, port).code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(server.endpoint->Handshakes().unauthenticated, 2u);
}

TEST(Tenants, AFullTenantLeavesTheOthersTheirPlaces) {
  Node server(TwoTenants()), red(With(kRed)), blue(With(kBlue));
  const uint16_t port = ListenOn(server);
  ConnectPair(red, server, port);
  ConnectPair(red, server, port);
  const absl::Status full = Refusal(red, server, port);
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(full.message().find("tenant \"red\""), absl::string_view::npos) << full;
  EXPECT_TRUE(Refusal(blue, server, port).ok());
}

TEST(Tenants, SpentBuffersOfOneAreNotTakenFromOthers) {
  Options options = TwoTenants();
  options.credits_per_peer = 16;
  options.tenants[0].srq_size = 16;  // all of them are promised to the first peer
  options.tenants[0].max_peers = 8;
  Node server(options), red(With(kRed)), blue(With(kBlue));
  const uint16_t port = ListenOn(server);
  int connected = 0;
  absl::Status why;
  while (connected < 8 && (why = Refusal(red, server, port)).ok()) ++connected;
  EXPECT_GE(connected, 1);
  EXPECT_EQ(why.code(), absl::StatusCode::kResourceExhausted) << why;
  EXPECT_TRUE(Refusal(blue, server, port).ok());
}

// It knows where the other tenant's peers are addressed, down to index and token, as only the server
// and that peer do: at the wrong DCT they are nobody's.
TEST(Tenants, WhatComesToAnotherTenantsQueueIsDropped) {
  Node server(TwoTenants());
  const uint16_t port = ListenOn(server);
  RawPeer red(Shared(kRed)), blue(Shared(kBlue));
  for (RawPeer* raw : {&red, &blue}) {
    raw->Connect(port, raw->Hello());
    Drive(server, *raw, [&] { return raw->up || raw->down; });
    ASSERT_TRUE(raw->up && raw->welcomed) << raw->why;
    raw->Send(raw->Proof());
    Drive(server, *raw, [&] { return !raw->received.empty(); });
  }
  ASSERT_EQ(server.recorder.ups.size(), 2u);
  EXPECT_NE(red.target.dctn[1], blue.target.dctn[1]);
  EXPECT_NE(red.target.key[1], blue.target.key[1]);

  red.remote_index = blue.remote_index;
  red.remote_token = blue.remote_token;
  red.Send(red.Prefix(peer::Kind::kGoodbye));
  Drive(server, red, [&] { return red.under_way == 0; });
  server.endpoint->Poll();  // it was there before its sender heard that it is
  EXPECT_TRUE(server.recorder.downs.empty());
  // The other one's own is heard.
  blue.Send(blue.Prefix(peer::Kind::kGoodbye));
  Drive(server, blue, [&] { return !server.recorder.downs.empty(); });
  ASSERT_EQ(server.recorder.downs.size(), 1u);
  EXPECT_EQ(server.recorder.downs[0].id, server.recorder.ups[1].id);
}

TEST(Tenants, WhoseSecretsCannotBeReadKeepsNobodyElseOut) {
  absl::Status why;
  Options options = TwoTenants();
  options.tenants[0].secrets = [&why]() -> absl::StatusOr<Texts> {
    if (!why.ok()) return why;
    return Texts{kRed};
  };
  Node server(options), red(With(kRed)), blue(With(kBlue));
  const uint16_t port = ListenOn(server);
  EXPECT_TRUE(Refusal(red, server, port).ok());
  why = absl::NotFoundError("the file is gone");
  EXPECT_TRUE(Refusal(blue, server, port).ok());
  EXPECT_EQ(Refusal(red, server, port).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(server.endpoint->Handshakes().no_secrets, 1u);
}

TEST(Tenants, WrongOptionsAreNamed) {
  auto opened = device::Device::Open("softdc0", {&softdc::Verbs()});
  ASSERT_TRUE(opened.ok());
  base::RealClock clock;
  base::SystemRandom random;
  poller::ThreadCommands commands;
  Recorder recorder;
  const auto why_not = [&](const Options& options) {
    return CreateEndpoint(options, **opened, clock, random, commands, &recorder).status();
  };
  Options options = TwoTenants();
  options.tenants[1].name = "red";
  EXPECT_NE(why_not(options).message().find("called \"red\""), absl::string_view::npos);
  options = TwoTenants();
  options.secrets = Of({kRed});
  EXPECT_NE(why_not(options).message().find("beside tenants"), absl::string_view::npos);
  options = TwoTenants();
  options.tenants[0].secrets = nullptr;
  EXPECT_NE(why_not(options).message().find("has no secrets"), absl::string_view::npos);
  options = TwoTenants();
  options.tenants[0].secrets = Of({kRed, kBlue});
  EXPECT_NE(why_not(options).message().find("another tenant's"), absl::string_view::npos);
  options = TwoTenants();
  options.tenants[0].srq_size = 1;
  EXPECT_NE(why_not(options).message().find("srq_size of a tenant"), absl::string_view::npos);
}

}  // namespace
}  // namespace sluice::endpoint
