// SPDX-License-Identifier: Apache-2.0
//
// Tenants of one endpoint: who belongs to which, and what none of them can do to the others.
#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/endpoint/raw_peer.h"
#include "transport/lane/words.h"

namespace sluice::endpoint {
namespace tenants_test {

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
  EXPECT_EQ(connected, 8) << why;  // the last of them without a window
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

// ---- Memory

// A raw peer that is up, knows its tenant's DCT for data, and posts there what it likes: each request through a DCI of its
// own, since the DCI is of no use after an error.
struct Prober {
  Prober(Node& server, uint16_t port, const char* secret) : raw(Shared(secret)), server(server) {
    raw.Connect(port, raw.Hello());
    Drive(server, raw, [&] { return raw.up || raw.down; });
    EXPECT_TRUE(raw.up && raw.welcomed) << raw.why;
    raw.Send(raw.Proof());
    Drive(server, raw, [&] { return !raw.received.empty(); });
    terms = raw.TakeAnswer();
    memory = std::move(
        *memory::Slab::Create(raw.device->api(), raw.device->pd(), 4096, IBV_ACCESS_LOCAL_WRITE));
    cq = std::move(*verbs::CreateCq(raw.device->api(), raw.device->context(), 16, nullptr));
  }

  // The first `bytes` of `memory`, to or from there.
  ibv_wc_status Try(ibv_wr_opcode opcode, uint32_t bytes, uint64_t address = 0, uint32_t key = 0) {
    const verbs::VerbsApi& api = raw.device->api();
    auto dci = verbs::CreateDci(api, raw.device->context(), raw.device->pd(), cq.get(), {});
    EXPECT_TRUE(dci.ok() && verbs::ActivateDci(api, dci->get(), raw.device->path()).ok());
    ibv_wr_start(dci->ex);
    dci->ex->wr_flags = IBV_SEND_SIGNALED;
    if (opcode == IBV_WR_SEND) ibv_wr_send(dci->ex);
    if (opcode == IBV_WR_RDMA_READ) ibv_wr_rdma_read(dci->ex, key, address);
    if (opcode == IBV_WR_RDMA_WRITE) ibv_wr_rdma_write(dci->ex, key, address);
    mlx5dv_wr_set_dc_addr(dci->dv, raw.target.ah, terms.data_dctn, terms.data_key);
    ibv_wr_set_sge(dci->ex, memory.lkey(), reinterpret_cast<uint64_t>(memory.data()), bytes);
    EXPECT_EQ(ibv_wr_complete(dci->ex), 0);
    ibv_wc wc = {};
    Drive(server, raw, [&] { return ibv_poll_cq(cq.get(), 1, &wc) > 0; });
    return wc.status;
  }
  void Fill(std::string_view text) { std::memcpy(memory.data(), text.data(), text.size()); }
  std::string Text(size_t bytes) const {
    return {reinterpret_cast<const char*>(memory.data()), bytes};
  }

  RawPeer raw;
  Node& server;
  peer::Terms terms;  // the server's
  memory::Slab memory;
  verbs::Cq cq;
};

TEST(Tenants, LentMemoryIsOutOfReachOfAnotherTenantsPeer) {
  Options options = TwoTenants();
  options.max_large_bytes = options.large_memory_bytes = 1 << 20;
  Node server(options);
  const uint16_t port = ListenOn(server);
  Prober red(server, port, kRed), blue(server, port, kBlue);
  ASSERT_EQ(server.recorder.ups.size(), 2u);
  const std::string text = "for the blue ones only";
  const auto lent = server.endpoint->Lend(server.recorder.ups[1].id, text.size(), false);
  ASSERT_TRUE(lent.ok()) << lent.status();
  std::memcpy(lent->data, text.data(), text.size());
  std::optional<RemoteMemory> where;
  Drive(server, red.raw,
        [&] { return (where = server.endpoint->WhereLent(lent->number)).has_value(); });
  const auto bytes = static_cast<uint32_t>(text.size());
  // Red knows address and key, as blue does.
  red.Fill("the bytes of the red one");
  EXPECT_EQ(red.Try(IBV_WR_RDMA_READ, bytes, where->address, where->key), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(red.Text(bytes), std::string("the bytes of the red one").substr(0, bytes));
  EXPECT_EQ(red.Try(IBV_WR_RDMA_WRITE, bytes, where->address, where->key), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(lent->data), bytes), text);
  // What it knows is right.
  EXPECT_EQ(blue.Try(IBV_WR_RDMA_READ, bytes, where->address, where->key), IBV_WC_SUCCESS);
  EXPECT_EQ(blue.Text(bytes), text);
  EXPECT_TRUE(server.recorder.downs.empty());
  server.endpoint->EndLoan(lent->number);
}

TEST(Tenants, ALaneIsOutOfReachOfAnotherTenantsPeer) {
  Options options = TwoTenants();
  options.lane_after_messages = 1;
  options.lanes_without_order = true;
  Node server(options);
  const uint16_t port = ListenOn(server);
  Prober red(server, port, kRed), blue(server, port, kBlue);
  const std::vector<std::byte> message = blue.raw.Prefix(peer::Kind::kData);
  std::copy(message.begin(), message.end(), blue.memory.data());
  ASSERT_EQ(blue.Try(IBV_WR_SEND, static_cast<uint32_t>(message.size())), IBV_WC_SUCCESS);
  std::optional<lane::Ask> ask;
  Drive(server, blue.raw, [&] {
    for (const auto& bytes : blue.raw.received) {
      peer::Prefix prefix;
      if (!peer::LoadPrefix(bytes.data(), bytes.size(), &prefix)) continue;
      if (prefix.kind != peer::Kind::kLaneAsk) continue;
      ask = lane::LoadAsk(std::span(bytes).subspan(peer::kPrefixBytes));
    }
    return ask.has_value();
  });
  // It is this process's own memory.
  const auto* lane = reinterpret_cast<const char*>(ask->grant.address);
  const uint32_t bytes = ask->grant.slot_bytes;
  const std::string before(lane, bytes);
  red.Fill(std::string(bytes, 'r'));
  EXPECT_EQ(red.Try(IBV_WR_RDMA_WRITE, bytes, ask->grant.address, ask->grant.rkey),
            IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(std::string(lane, bytes), before);
  EXPECT_TRUE(server.recorder.downs.empty());
  // What it knows is right; only nothing is read there that has not the lane's stamp.
  blue.Fill(std::string(bytes, 0));
  EXPECT_EQ(blue.Try(IBV_WR_RDMA_WRITE, bytes, ask->grant.address, ask->grant.rkey),
            IBV_WC_SUCCESS);
}

// The same by the library itself: Fetch() of a place that another tenant's peer was told.
TEST(Tenants, AnotherTenantsLentMemoryCannotBeFetched) {
  struct Fetched : Recorder {
    void OnFetched(PeerId, const absl::StatusOr<LargeBuffer>& buffer, uint32_t) override {
      ended.push_back(buffer.status());
    }
    std::vector<absl::Status> ended;
  };
  const auto large = [](Options options) {
    options.max_large_bytes = options.large_memory_bytes = 1 << 20;
    return options;
  };
  Fetched red_saw, blue_saw;
  Node server(large(TwoTenants())), red(large(With(kRed)), &softdc::Verbs(), nullptr, &red_saw),
      blue(large(With(kBlue)), &softdc::Verbs(), nullptr, &blue_saw);
  const uint16_t port = ListenOn(server);
  const auto connect = [&](Node& client, Recorder& saw) {
    const auto peer =
        client.endpoint->Connect("127.0.0.1", port, client.clock.NowNs() + kPatienceNs);
    EXPECT_TRUE(peer.ok()) << peer.status();
    const size_t ups = server.recorder.ups.size() + 1;
    PollUntil({&client, &server},
              [&] { return saw.ups.size() == 1 && server.recorder.ups.size() == ups; });
    return *peer;
  };
  const PeerId from_red = connect(red, red_saw), from_blue = connect(blue, blue_saw);
  const auto lent = server.endpoint->Lend(server.recorder.ups[1].id, 4096, false);
  ASSERT_TRUE(lent.ok()) << lent.status();
  std::optional<RemoteMemory> where;
  PollUntil({&server},
            [&] { return (where = server.endpoint->WhereLent(lent->number)).has_value(); });
  where->bytes = 4096;
  ASSERT_TRUE(red.endpoint->Fetch(from_red, *where).ok());
  PollUntil({&red, &server}, [&] { return !red_saw.ended.empty(); });
  EXPECT_EQ(red_saw.ended[0].code(), absl::StatusCode::kPermissionDenied) << red_saw.ended[0];
  ASSERT_TRUE(blue.endpoint->Fetch(from_blue, *where).ok());
  PollUntil({&blue, &server}, [&] { return !blue_saw.ended.empty(); });
  EXPECT_TRUE(blue_saw.ended[0].ok()) << blue_saw.ended[0];
  server.endpoint->EndLoan(lent->number);
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
  options.tenants[0].secrets = {};
  EXPECT_NE(why_not(options).message().find("has no secrets"), absl::string_view::npos);
  options = TwoTenants();
  options.tenants[0].secrets = Of({kRed, kBlue});
  EXPECT_NE(why_not(options).message().find("another tenant's"), absl::string_view::npos);
  options = TwoTenants();
  options.tenants[0].srq_size = 1;
  EXPECT_NE(why_not(options).message().find("srq_size of a tenant"), absl::string_view::npos);
}

}  // namespace tenants_test
}  // namespace sluice::endpoint
