// SPDX-License-Identifier: Apache-2.0
//
// What happens to devices under endpoints that are at work: ports down and up, addresses that change,
// fatal errors, unplugged and replaced devices. In virtual time.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/endpoint/sim_endpoint.h"

namespace sluice::endpoint {
namespace device_life_test {

using softdc::sim::Simulation;
using testing::Test;

constexpr uint32_t kClient = 0;
constexpr uint32_t kServer = 1;
constexpr uint32_t kOther = 2;

class DeviceLifeTest : public Test {
 protected:
  void SetUp() override {
    softdc::sim::Options options;
    options.nodes = 3;
    simulation_ = Simulation::Create(options).value();
    client_ = std::make_unique<SimEndpoint>(*simulation_, kClient);
    server_ = std::make_unique<SimEndpoint>(*simulation_, kServer);
    server_->Listen();
  }

  bool Run(const std::function<bool()>& done) {
    return RunUntil(*simulation_, {client_.get(), server_.get()}, done);
  }
  // A peer that is up on both sides.
  PeerId ConnectUp(uint32_t to = kServer) {
    const size_t ups = client_->recorder.ups.size(), server_ups = server_->recorder.ups.size();
    const auto peer = client_->Connect(to);
    EXPECT_TRUE(peer.ok()) << peer.status();
    if (!peer.ok()) return {};
    EXPECT_TRUE(Run([&] {
      return client_->recorder.ups.size() > ups && server_->recorder.ups.size() > server_ups;
    })) << (client_->recorder.downs.empty() ? "no answer"
                                            : client_->recorder.downs.back().why.ToString());
    return *peer;
  }
  bool Arrives(PeerId peer, const std::string& text) {
    EXPECT_TRUE(client_->Send(peer, text).ok());
    return Run([&] { return std::ranges::count(server_->recorder.messages, text) != 0; });
  }
  static std::string Text(const absl::Status& status) { return std::string(status.message()); }

  std::unique_ptr<Simulation> simulation_;
  std::unique_ptr<SimEndpoint> client_;
  std::unique_ptr<SimEndpoint> server_;
};

TEST_F(DeviceLifeTest, PortDownFailsConnectsAtOnceAndPeersOutliveAShortOne) {
  const PeerId peer = ConnectUp();
  ASSERT_TRUE(client_->endpoint().Health().ok());
  simulation_->PortDown(kClient);
  client_->Poll();
  const absl::Status down = client_->endpoint().Health();
  EXPECT_EQ(down.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(Text(down).find("port 1 of softdc0 is down"), std::string::npos) << down;
  EXPECT_NE(Text(down).find("nothing here needs a restart"), std::string::npos) << down;
  const auto refused = client_->Connect(kServer);
  EXPECT_EQ(refused.status(), down);

  // Up again within the retries: what was sent meanwhile arrives, and nobody was told anything.
  ASSERT_TRUE(client_->Send(peer, "while it was down").ok());
  simulation_->After(1'000'000, [&] { simulation_->PortUp(kClient); });
  ASSERT_TRUE(Run([&] { return !server_->recorder.messages.empty(); }));
  EXPECT_EQ(server_->recorder.messages.back(), "while it was down");
  EXPECT_TRUE(client_->recorder.downs.empty());
  EXPECT_TRUE(client_->endpoint().Health().ok());
  EXPECT_TRUE(Arrives(ConnectUp(), "to a new peer"));
}

TEST_F(DeviceLifeTest, PortThatStaysDownEndsPeersByTheirTrafficAndComesBackWithoutARestart) {
  const PeerId peer = ConnectUp();
  simulation_->PortDown(kServer);
  ASSERT_TRUE(client_->Send(peer, "into the dark").ok());
  ASSERT_TRUE(Run([&] { return !client_->recorder.downs.empty(); }));
  EXPECT_EQ(client_->recorder.downs.back().why.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(server_->recorder.messages.empty());
  simulation_->PortUp(kServer);
  EXPECT_TRUE(Arrives(ConnectUp(), "back"));
}

TEST_F(DeviceLifeTest, AddressThatIsAddedTouchesNoPeerAndRenewsHandles) {
  const PeerId first = ConnectUp();
  const PeerId second = ConnectUp();
  EXPECT_TRUE(client_->endpoint().Report(first)->first_on_handle);
  EXPECT_FALSE(client_->endpoint().Report(second)->first_on_handle);

  ibv_gid more = Simulation::Gid(kClient);
  more.raw[13] = 0xaa;
  simulation_->SetGid(kClient, 1, more);
  const PeerId third = ConnectUp();
  EXPECT_TRUE(client_->endpoint().Report(third)->first_on_handle);
  for (const PeerId peer : {first, second, third}) {
    EXPECT_TRUE(Arrives(peer, "from " + std::to_string(peer.index)));
  }
  EXPECT_TRUE(client_->recorder.downs.empty());
  EXPECT_TRUE(server_->recorder.downs.empty());
}

TEST_F(DeviceLifeTest, OwnAddressThatMovesEndsPeersAndNewOnesGetItsNewPlace) {
  const PeerId peer = ConnectUp();
  ASSERT_TRUE(Arrives(peer, "before"));
  ASSERT_EQ(server_->device().path().sgid_index, 0);
  ibv_gid other = Simulation::Gid(kServer);
  other.raw[13] = 0xaa;
  simulation_->SetGid(kServer, 1, Simulation::Gid(kServer));
  simulation_->SetGid(kServer, 0, other);
  ASSERT_TRUE(Run([&] { return !server_->recorder.downs.empty(); }));
  const absl::Status why = server_->recorder.downs.back().why;
  EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(Text(why).find("the address of this host changed"), std::string::npos) << why;
  EXPECT_EQ(server_->device().path().sgid_index, 1);
  ASSERT_TRUE(Run([&] { return !client_->recorder.downs.empty(); }));  // it is told
  EXPECT_TRUE(server_->endpoint().Health().ok());
  EXPECT_TRUE(Arrives(ConnectUp(), "after"));
}

// A driver that can't read a completion has lost others: nobody knows what has arrived.
TEST_F(DeviceLifeTest, CompletionsThatCanNotBePolledAreADeviceFailure) {
  ConnectUp();
  ibv_context* context = server_->device().context();
  context->ops.poll_cq = [](ibv_cq*, int, ibv_wc*) { return -2; };
  server_->Poll();
  const absl::Status failed = server_->endpoint().Health();
  EXPECT_EQ(failed.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(Text(failed).find("can't be polled"), std::string::npos) << failed;
  ASSERT_TRUE(Run([&] { return !server_->recorder.downs.empty(); }));
  EXPECT_EQ(server_->recorder.downs.back().why, failed);
}

std::vector<uint64_t> g_keys;  // of all DCTs that were made

const verbs::VerbsApi& TableThatKeepsKeys() {
  static const verbs::VerbsApi table = [] {
    verbs::VerbsApi api = Simulation::Verbs();
    api.dv_create_qp = [](ibv_context* context, ibv_qp_init_attr_ex* attr,
                          mlx5dv_qp_init_attr* dv) -> ibv_qp* {
      if (dv != nullptr && dv->dc_init_attr.dc_type == MLX5DV_DCTYPE_DCT) {
        g_keys.push_back(dv->dc_init_attr.dct_access_key);
      }
      return Simulation::Verbs().dv_create_qp(context, attr, dv);
    };
    return api;
  }();
  return table;
}

// Somebody who was ended shortly before may know the ones of before.
TEST_F(DeviceLifeTest, TargetsThatAreMadeAnewHaveOtherKeys) {
  g_keys.clear();
  server_.reset();
  server_ = std::make_unique<SimEndpoint>(*simulation_, kServer, /*seed=*/2, SimEndpointOptions(),
                                          nullptr, &TableThatKeepsKeys());
  server_->Listen();
  ConnectUp();
  const size_t before = g_keys.size();
  ibv_gid other = Simulation::Gid(kServer);
  other.raw[13] = 0xaa;
  simulation_->SetGid(kServer, 1, Simulation::Gid(kServer));
  simulation_->SetGid(kServer, 0, other);
  ASSERT_TRUE(Run([&] { return !server_->recorder.downs.empty(); }));
  ASSERT_GT(g_keys.size(), before);
  std::sort(g_keys.begin(), g_keys.end());
  EXPECT_EQ(std::adjacent_find(g_keys.begin(), g_keys.end()), g_keys.end());
  EXPECT_TRUE(Arrives(ConnectUp(), "after"));
}

TEST_F(DeviceLifeTest, FatalDeviceEndsPeersTypedAndAnotherEndpointTakesOver) {
  const PeerId peer = ConnectUp();
  ASSERT_TRUE(Arrives(peer, "before"));
  simulation_->DeviceFatal(kServer);
  server_->Poll();
  ASSERT_EQ(server_->recorder.downs.size(), 1u);
  const absl::Status why = server_->recorder.downs.back().why;
  EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(Text(why).find("device softdc0 has failed"), std::string::npos) << why;
  EXPECT_NE(Text(why).find("\"device fatal\""), std::string::npos) << why;
  EXPECT_EQ(server_->endpoint().Health(), why);
  EXPECT_EQ(server_->Connect(kClient).status(), why);

  // All of it can be closed and freed, and the same host goes on with a new endpoint.
  server_->endpoint().Close();
  server_ = std::make_unique<SimEndpoint>(*simulation_, kServer, /*seed=*/2);
  server_->Listen();
  (void)client_->Send(peer, "to nobody");
  ASSERT_TRUE(Run([&] { return !client_->recorder.downs.empty(); }));
  EXPECT_TRUE(Arrives(ConnectUp(), "after"));
}

TEST_F(DeviceLifeTest, EndpointFreedWithRequestsUnderWayOnADeadDevice) {
  const PeerId peer = ConnectUp();
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(client_->Send(peer, "never answered").ok());
  client_->endpoint().Flush();
  simulation_->DeviceFatal(kClient);
  client_->Poll();
  EXPECT_EQ(client_->recorder.downs.size(), 1u);
  client_.reset();
  client_ = std::make_unique<SimEndpoint>(*simulation_, kClient, /*seed=*/2);
  EXPECT_TRUE(Arrives(ConnectUp(), "after"));
}

TEST_F(DeviceLifeTest, UnpluggedDeviceEndsPeersAndAnEndpointOnAnotherDeviceGoesOn) {
  const PeerId peer = ConnectUp();
  ASSERT_TRUE(Arrives(peer, "before"));
  simulation_->RunFor(1'000'000);  // the acknowledgement too
  simulation_->Unplug(kServer);
  server_->Poll();
  ASSERT_EQ(server_->recorder.downs.size(), 1u);
  EXPECT_EQ(server_->recorder.downs.back().why.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(server_->endpoint().Health().code(), absl::StatusCode::kUnavailable);
  {
    const Simulation::As as(*simulation_, kServer);
    EXPECT_EQ(device::Device::Open("auto", {&Simulation::Verbs()}).status().code(),
              absl::StatusCode::kNotFound);
  }
  server_ = std::make_unique<SimEndpoint>(*simulation_, kOther);
  server_->Listen();
  EXPECT_TRUE(Arrives(ConnectUp(kOther), "to the other device"));
  // Nothing told the client of the one that is gone but its own traffic.
  EXPECT_TRUE(client_->recorder.downs.empty());
  ASSERT_TRUE(client_->Send(peer, "to nobody").ok());
  ASSERT_TRUE(Run([&] { return !client_->recorder.downs.empty(); }));
  // Where one error stops the whole queue the other peer follows, since nobody keeps its messages here.
  EXPECT_EQ(client_->recorder.downs[0].id, peer);
}

TEST_F(DeviceLifeTest, DeviceThatIsPluggedInAgainServesANewEndpoint) {
  ConnectUp();
  simulation_->Unplug(kServer);
  server_->Poll();
  server_.reset();
  simulation_->Plug(kServer);
  server_ = std::make_unique<SimEndpoint>(*simulation_, kServer, /*seed=*/2);
  server_->Listen();
  EXPECT_TRUE(Arrives(ConnectUp(), "after"));
}

TEST_F(DeviceLifeTest, ListenerOfAnUnpluggedDeviceEndsItsEndpointTyped) {
  server_.reset();
  server_ = std::make_unique<SimEndpoint>(*simulation_, kServer, /*seed=*/2);
  server_->Listen(SimEndpoint::AddressOf(kServer));
  server_->Poll();
  simulation_->Unplug(kServer);
  server_->Poll();
  EXPECT_EQ(server_->endpoint().Health().code(), absl::StatusCode::kUnavailable);
  server_.reset();
}

// ---- Path MTUs: one for all sides (docs/decisions/0062).

class PathMtuTest : public Test {
 protected:
  // Ports of these active MTUs, and what each side asks for.
  void Start(uint16_t client_port, uint16_t server_port, uint32_t client_wants = 1024,
             uint32_t server_wants = 1024) {
    softdc::sim::Options options;
    options.nodes = 2;
    options.dials_by_node[kClient] = options.dials_by_node[kServer] = options.dials;
    options.dials_by_node[kClient].port.active_mtu = client_port;
    options.dials_by_node[kServer].port.active_mtu = server_port;
    client_.reset();
    server_.reset();
    simulation_ = Simulation::Create(options).value();
    Options limits = SimEndpointOptions();
    limits.path_mtu_bytes = client_wants;
    client_ = std::make_unique<SimEndpoint>(*simulation_, kClient, /*seed=*/1, limits);
    limits.path_mtu_bytes = server_wants;
    server_ = std::make_unique<SimEndpoint>(*simulation_, kServer, /*seed=*/1, limits);
    server_->Listen();
  }
  bool Run(const std::function<bool()>& done) {
    return RunUntil(*simulation_, {client_.get(), server_.get()}, done);
  }

  std::unique_ptr<Simulation> simulation_;
  std::unique_ptr<SimEndpoint> client_;
  std::unique_ptr<SimEndpoint> server_;
};

TEST_F(PathMtuTest, UnlikePortsTalkWithWhatBothBear) {
  Start(4096, 1024);
  const auto peer = client_->Connect(kServer);
  ASSERT_TRUE(peer.ok());
  ASSERT_TRUE(Run([&] { return !client_->recorder.ups.empty(); }));
  EXPECT_EQ(client_->endpoint().Report(*peer)->mtu_bytes, 1024u);
  ASSERT_TRUE(client_->Send(*peer, "hello").ok());
  EXPECT_TRUE(Run([&] { return !server_->recorder.messages.empty(); }));
}

TEST_F(PathMtuTest, PortBelowItIsRefusedByAnErrorThatNamesBothSidesAndTheOption) {
  for (const bool server_is_small : {true, false}) {
    Start(server_is_small ? 4096 : 512, server_is_small ? 512 : 4096);
    ASSERT_TRUE(client_->Connect(kServer).ok());
    ASSERT_TRUE(Run([&] { return !client_->recorder.downs.empty(); }));
    EXPECT_TRUE(client_->recorder.ups.empty());
    EXPECT_TRUE(server_->recorder.ups.empty());
    const absl::Status why = client_->recorder.downs[0].why;
    EXPECT_EQ(why.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_NE(why.message().find(server_is_small
                                     ? "this side's path MTU is 1024 bytes, the other side's 512"
                                     : "this side's path MTU is 512 bytes, the other side's 1024"),
              absl::string_view::npos)
        << why;
    EXPECT_NE(why.message().find("limits.path_mtu"), absl::string_view::npos) << why;
  }
}

TEST_F(PathMtuTest, WhatBothSidesAskForIsUsedAsFarAsThePortsGo) {
  Start(4096, 2048, 4096, 4096);
  ASSERT_TRUE(client_->Connect(kServer).ok());
  ASSERT_TRUE(Run([&] { return !client_->recorder.downs.empty(); }));
  EXPECT_NE(client_->recorder.downs[0].why.message().find("4096 bytes, the other side's 2048"),
            absl::string_view::npos);
  Start(4096, 2048, 2048, 4096);
  const auto peer = client_->Connect(kServer);
  ASSERT_TRUE(peer.ok());
  ASSERT_TRUE(Run([&] { return !client_->recorder.ups.empty(); }));
  EXPECT_EQ(client_->endpoint().Report(*peer)->mtu_bytes, 2048u);
}

}  // namespace device_life_test
}  // namespace sluice::endpoint
