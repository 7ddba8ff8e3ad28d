// SPDX-License-Identifier: Apache-2.0
//
// A device that is pulled out under connections in each stage, and under a listener.
#include <arpa/inet.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/cm/sim_peer.h"
#include "tests/transport/cm/sim_process.h"

namespace sluice::cm {
namespace device_removal_test {

using softdc::sim::Simulation;

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr uint32_t kOwn = 0;
constexpr uint32_t kOther = 1;

class DeviceRemovalTest : public ::testing::Test {
 protected:
  void SetUp() override {
    simulation_ = Simulation::Create({}).value();
    process_ = std::make_unique<SimProcess>(*simulation_, kOwn, Simulation::Verbs(), /*ece=*/true,
                                            Options{}, 5, user_);
    user_.manager = &process_->manager();
    peer_ = std::make_unique<SimPeer>(*simulation_, kOther);
    peer_->Listen();
  }
  bool Run(const std::function<bool()>& done, int64_t limit_ns = 60 * kSecondNs) {
    return simulation_->RunUntil(
        [&] {
          process_->Poll();
          peer_->Poll();
          return done();
        },
        limit_ns);
  }
  absl::StatusOr<ConnectionId> Connect() {
    const Simulation::As as(*simulation_, kOwn);
    const in_addr address = Simulation::Address(kOther);
    char text[INET_ADDRSTRLEN];
    return process_->manager().Connect(inet_ntop(AF_INET, &address, text, sizeof(text)), kSimPort,
                                       simulation_->NowNs() + 30 * kSecondNs, {});
  }
  static bool IsRemoval(const absl::Status& status) {
    return absl::IsUnavailable(status) &&
           status.message().find("the RDMA device was removed") != absl::string_view::npos;
  }

  std::unique_ptr<Simulation> simulation_;
  SimUser user_;
  std::unique_ptr<SimProcess> process_;
  std::unique_ptr<SimPeer> peer_;
};

TEST_F(DeviceRemovalTest, EstablishedConnectionEndsTyped) {
  ASSERT_TRUE(Connect().ok());
  ASSERT_TRUE(Run([&] { return user_.ups == 1; }));
  simulation_->Unplug(kOwn);
  ASSERT_TRUE(Run([&] { return user_.downs == 1; }));
  EXPECT_TRUE(IsRemoval(user_.why)) << user_.why;
  EXPECT_TRUE(Run([&] { return process_->manager().size() == 0; }));
}

TEST_F(DeviceRemovalTest, RequestWithoutAnAnswerEndsTyped) {
  peer_->accepts = false;
  ASSERT_TRUE(Connect().ok());
  ASSERT_TRUE(Run([&] { return !peer_->requests.empty(); }));
  simulation_->Unplug(kOwn);
  ASSERT_TRUE(Run([&] { return user_.downs == 1; }));
  EXPECT_TRUE(IsRemoval(user_.why)) << user_.why;
}

TEST_F(DeviceRemovalTest, ConnectWithoutADeviceEndsByItsDeadline) {
  simulation_->Unplug(kOwn);
  ASSERT_TRUE(Connect().ok());
  ASSERT_TRUE(Run([&] { return user_.downs == 1; }));
  EXPECT_FALSE(user_.why.ok());
  EXPECT_TRUE(Run([&] { return process_->manager().size() == 0; }));
}

TEST_F(DeviceRemovalTest, GoodbyeThatIsUnderWayNeedsNoAnswer) {
  const auto id = Connect();
  ASSERT_TRUE(id.ok());
  peer_->answers_disconnects = false;
  ASSERT_TRUE(Run([&] { return user_.ups == 1; }));
  process_->manager().Close(*id);
  simulation_->Unplug(kOwn);
  EXPECT_TRUE(Run([&] { return process_->manager().size() == 0; }));
  EXPECT_EQ(user_.downs, 0);
}

TEST_F(DeviceRemovalTest, ListenerAtAnAddressOfTheDeviceEndsTypedAndTheWildcardStays) {
  const in_addr own = Simulation::Address(kOwn);
  char text[INET_ADDRSTRLEN];
  {
    const Simulation::As as(*simulation_, kOwn);
    ASSERT_TRUE(
        process_->manager().Listen(inet_ntop(AF_INET, &own, text, sizeof(text)), kSimPort).ok());
    ASSERT_TRUE(process_->manager().Listen("*", kSimPort + 1).ok());
  }
  simulation_->Unplug(kOwn);
  process_->Poll();
  ASSERT_EQ(user_.listener_downs.size(), 1u);
  EXPECT_TRUE(IsRemoval(user_.listener_downs[0])) << user_.listener_downs[0];
  EXPECT_NE(user_.listener_downs[0].message().find(text), absl::string_view::npos);
  // The port is free again once the device is back.
  ASSERT_TRUE(Run([&] { return process_->manager().size() == 0; }));
  simulation_->RunFor(kSecondNs);
  simulation_->Plug(kOwn);
  const Simulation::As as(*simulation_, kOwn);
  EXPECT_TRUE(process_->manager().Listen(text, kSimPort).ok());
}

}  // namespace device_removal_test
}  // namespace sluice::cm
