// SPDX-License-Identifier: Apache-2.0
//
// Connections over another device or port than the one that this side's queues are on.
#include <arpa/inet.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/cm/sim_peer.h"
#include "tests/transport/cm/sim_process.h"

namespace sluice::cm {
namespace device_place_test {

using softdc::sim::Simulation;

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr uint32_t kOwn = 0;
constexpr uint32_t kOther = 1;

class DevicePlaceTest : public ::testing::Test {
 protected:
  // A manager whose queues are there, on a host whose only device is port 1 of softdc0.
  void Build(const std::string& device, uint8_t port) {
    simulation_ = Simulation::Create({}).value();
    Options options;
    options.device = device;
    options.port = port;
    process_ = std::make_unique<SimProcess>(*simulation_, kOwn, Simulation::Verbs(), /*ece=*/true,
                                            options, 5, user_);
    user_.manager = &process_->manager();
    peer_ = std::make_unique<SimPeer>(*simulation_, kOther);
  }
  bool Run(const std::function<bool()>& done) {
    return simulation_->RunUntil(
        [&] {
          process_->Poll();
          peer_->Poll();
          return done();
        },
        60 * kSecondNs);
  }
  static std::string AddressOf(uint32_t node) {
    char text[INET_ADDRSTRLEN];
    const in_addr address = Simulation::Address(node);
    return inet_ntop(AF_INET, &address, text, sizeof(text));
  }
  void Connect() {
    peer_->Listen();
    const Simulation::As as(*simulation_, kOwn);
    EXPECT_TRUE(process_->manager()
                    .Connect(AddressOf(kOther), kSimPort, simulation_->NowNs() + 30 * kSecondNs, {})
                    .ok());
  }
  absl::StatusOr<uint16_t> Listen(const std::string& host) {
    const Simulation::As as(*simulation_, kOwn);
    return process_->manager().Listen(host, kSimPort);
  }

  std::unique_ptr<Simulation> simulation_;
  SimUser user_;
  std::unique_ptr<SimProcess> process_;
  std::unique_ptr<SimPeer> peer_;
};

TEST_F(DevicePlaceTest, ConnectOverOurDeviceAndPortWorks) {
  Build("softdc0", 1);
  Connect();
  EXPECT_TRUE(Run([&] { return user_.ups == 1; })) << user_.why;
}

TEST_F(DevicePlaceTest, ConnectOverAnotherDeviceOrPortNamesIt) {
  for (const auto& [device, port] : {std::pair("mlx5_7", 1), std::pair("softdc0", 2)}) {
    user_ = {};
    Build(device, static_cast<uint8_t>(port));
    Connect();
    ASSERT_TRUE(Run([&] { return user_.downs == 1; }));
    EXPECT_EQ(user_.why.code(), absl::StatusCode::kFailedPrecondition);
    const std::string place = device + (":" + std::to_string(port));
    EXPECT_NE(user_.why.message().find("reached over softdc0:1, this process uses " + place),
              absl::string_view::npos)
        << user_.why;
    EXPECT_NE(user_.why.message().find("--device=softdc0:1"), absl::string_view::npos);
    peer_.reset();
    process_.reset();
  }
}

TEST_F(DevicePlaceTest, RequestOverAnotherPortIsRefusedAndCounted) {
  Build("softdc0", 2);
  ASSERT_TRUE(Listen("*").ok());
  peer_->Connect(kOwn, 0x900);
  ASSERT_TRUE(Run([&] { return process_->manager().metrics().strange_requests == 1; }));
  EXPECT_EQ(user_.requests, 0);
  EXPECT_EQ(process_->manager().size(), 0u);
}

TEST_F(DevicePlaceTest, RefusalForThePlaceIsToldAndTheNextAddressTried) {
  simulation_ = Simulation::Create({}).value();
  Options server_options;
  server_options.device = "softdc0";
  server_options.port = 2;
  server_options.wrong_place = [](const std::string& why) {
    const auto* bytes = reinterpret_cast<const std::byte*>(why.data());
    return std::vector<std::byte>(bytes, bytes + why.size());
  };
  SimUser server_user;
  SimProcess server(*simulation_, kOther, Simulation::Verbs(), /*ece=*/true, server_options, 6,
                    server_user);
  {
    const Simulation::As as(*simulation_, kOther);
    ASSERT_TRUE(server.manager().Listen("*", kSimPort).ok());
  }
  Options options;
  options.is_wrong_place = [](std::span<const std::byte> words) {
    return words[0] == std::byte{'t'};
  };
  options.resolve = [](const std::string&, uint16_t port, bool) {
    auto addresses = Resolve(AddressOf(kOther), port, /*passive=*/false);
    if (addresses.ok()) addresses->push_back(addresses->front());
    return addresses;
  };
  process_ = std::make_unique<SimProcess>(*simulation_, kOwn, Simulation::Verbs(), /*ece=*/true,
                                          options, 5, user_);
  user_.manager = &process_->manager();
  server_user.manager = &server.manager();
  {
    const Simulation::As as(*simulation_, kOwn);
    ASSERT_TRUE(process_->manager()
                    .Connect(AddressOf(kOther), kSimPort, simulation_->NowNs() + 30 * kSecondNs, {})
                    .ok());
  }
  ASSERT_TRUE(simulation_->RunUntil(
      [&] {
        process_->Poll();
        server.Poll();
        return user_.downs == 1;
      },
      60 * kSecondNs));
  EXPECT_EQ(process_->manager().metrics().tries, 2u);
  EXPECT_EQ(server.manager().metrics().strange_requests, 2u);
  EXPECT_EQ(server_user.requests, 0);
  process_.reset();
}

TEST_F(DevicePlaceTest, ListenAtAnAddressOfAnotherPortNamesIt) {
  Build("softdc0", 2);
  const auto port = Listen(AddressOf(kOwn));
  EXPECT_EQ(port.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(port.status().message().find("it is an address of softdc0:1"), absl::string_view::npos)
      << port.status();
}

}  // namespace device_place_test
}  // namespace sluice::cm
