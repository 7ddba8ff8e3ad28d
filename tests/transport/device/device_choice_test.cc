// SPDX-License-Identifier: Apache-2.0
//
// Hosts with several devices and ports, and which of them is taken.
#include <arpa/inet.h>

#include <array>
#include <cerrno>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "transport/device/device.h"
#include "transport/device/device_spec.h"
#include "transport/softdc/sim/simulation.h"
#include "transport/softdc/verbs.h"

namespace sluice::device {
namespace device_choice_test {

using softdc::sim::Simulation;

constexpr uint32_t kDevices = 3;
Simulation* g_simulation = nullptr;

// One host that has the devices of three simulated ones: soft0 (10.0.0.1), soft1, soft2.
const verbs::VerbsApi& ThreeDevices() {
  static const verbs::VerbsApi table = [] {
    verbs::VerbsApi api = Simulation::Verbs();
    api.get_device_list = [](int* count) {
      auto** list = new ibv_device* [kDevices + 1] {};
      for (uint32_t i = 0; i < kDevices; ++i) list[i] = g_simulation->Device(i);
      if (count != nullptr) *count = kDevices;
      return list;
    };
    api.get_device_name = [](ibv_device* device) {
      static constexpr std::array<const char*, kDevices> kNames = {"soft0", "soft1", "soft2"};
      for (uint32_t i = 0; i < kDevices; ++i) {
        if (device == g_simulation->Device(i)) return kNames[i];
      }
      return "";
    };
    return api;
  }();
  return table;
}

class SeveralDevices : public testing::Test {
 protected:
  void SetUp() override {
    softdc::sim::Options options;
    options.nodes = kDevices;
    simulation_ = Simulation::Create(options).value();
    g_simulation = simulation_.get();
  }
  static std::string Address(uint32_t node) {
    char text[INET_ADDRSTRLEN];
    const in_addr address = Simulation::Address(node);
    return inet_ntop(AF_INET, &address, text, sizeof(text));
  }

  std::unique_ptr<Simulation> simulation_;
};

TEST_F(SeveralDevices, OpenTakesTheOneThatHasTheAddress) {
  for (uint32_t i = 0; i < kDevices; ++i) {
    const auto device = Device::Open(Address(i), {&ThreeDevices()});
    ASSERT_TRUE(device.ok()) << device.status();
    EXPECT_EQ((*device)->name(), "soft" + std::to_string(i));
    EXPECT_EQ((*device)->choice(),
              (*device)->name() + ": its port 1 has the address " + Address(i));
  }
}

TEST_F(SeveralDevices, OpenStandsAtTheGidThatWasAskedFor) {
  ibv_gid second = Simulation::Gid(1);
  second.raw[13] = 7;
  simulation_->SetGid(1, 3, second);
  const auto device = Device::Open("10.7.0.2", {&ThreeDevices()});
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ((*device)->name(), "soft1");
  EXPECT_EQ((*device)->path().sgid_index, 3);
}

TEST_F(SeveralDevices, OpenSaysThatNobodyHasTheAddress) {
  const auto device = Device::Open("10.9.9.9", {&ThreeDevices()});
  EXPECT_EQ(device.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(std::string(device.status().message()),
            "no device has the address 10.9.9.9: there are: soft0, soft1, soft2; run sluice_info "
            "for the names, or use --device=auto");
}

TEST_F(SeveralDevices, OpenSaysThatThePortWithTheAddressIsDown) {
  simulation_->PortDown(1);
  const auto device = Device::Open(Address(1), {&ThreeDevices()});
  EXPECT_EQ(device.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(device.status().message().find("soft1 can't be used: port 1 is not active"),
            absl::string_view::npos)
      << device.status();
}

TEST_F(SeveralDevices, AutoPassesByPortsThatAreDownAndDevicesThatAreUnplugged) {
  simulation_->PortDown(0);
  simulation_->Unplug(1);
  const auto device = Device::Open("auto", {&ThreeDevices()});
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ((*device)->name(), "soft2");
  EXPECT_NE((*device)->choice().find("soft0: port 1 is not active"), std::string::npos)
      << (*device)->choice();
}

// An mlx5 device that may not be opened, or has no DC.
const verbs::VerbsApi& Unusable(bool opens) {
  static const auto make = [](auto open) {
    verbs::VerbsApi api = softdc::Verbs();
    api.name = "native";
    api.get_device_name = [](ibv_device*) { return "mlx5_0"; };
    api.open_device = open;
    api.dv_create_qp = [](ibv_context*, ibv_qp_init_attr_ex*, mlx5dv_qp_init_attr*) -> ibv_qp* {
      errno = EOPNOTSUPP;
      return nullptr;
    };
    return api;
  };
  static const verbs::VerbsApi denied = make([](ibv_device*) -> ibv_context* {
    errno = EACCES;
    return nullptr;
  });
  static const verbs::VerbsApi without_dc = make(softdc::Verbs().open_device);
  return opens ? without_dc : denied;
}

TEST(PassedOver, SaysWhyNoMlx5DeviceWasTaken) {
  const auto denied = Device::Open("auto", {&Unusable(false), &softdc::Verbs()});
  ASSERT_TRUE(denied.ok()) << denied.status();
  EXPECT_EQ((*denied)->name(), "softdc0");
  EXPECT_NE((*denied)->passed_over().find("mlx5_0: can't be opened"), std::string::npos)
      << (*denied)->passed_over();
  const auto without_dc = Device::Open("auto", {&Unusable(true), &softdc::Verbs()});
  ASSERT_TRUE(without_dc.ok()) << without_dc.status();
  EXPECT_NE((*without_dc)->passed_over().find("no DC transport"), std::string::npos)
      << (*without_dc)->passed_over();
}

TEST(PassedOver, EmptyWhereNothingWasOrADeviceWasAskedFor) {
  const auto alone = Device::Open("auto", {&softdc::Verbs()});
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_EQ((*alone)->passed_over(), "");
  const auto named = Device::Open("softdc0", {&Unusable(false), &softdc::Verbs()});
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ((*named)->passed_over(), "");
}

int g_opened = 0;

// Opening is the dearest step of a start: files, memory, and queries behind it.
TEST(Open, OpensTheDeviceThatItTakesOnce) {
  static const verbs::VerbsApi counting = [] {
    verbs::VerbsApi api = softdc::Verbs();
    api.open_device = [](ibv_device* device) {
      ++g_opened;
      return softdc::Verbs().open_device(device);
    };
    return api;
  }();
  const auto device = Device::Open("auto", {&counting});
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ(g_opened, 1);
}

// A card with two ports, of which the second has the link: the software NIC's one port shows there.
const verbs::VerbsApi& TwoPorts() {
  static const verbs::VerbsApi table = [] {
    verbs::VerbsApi api = softdc::Verbs();
    api.query_device = [](ibv_context* context, ibv_device_attr* attr) {
      const int result = softdc::Verbs().query_device(context, attr);
      attr->phys_port_cnt = 2;
      return result;
    };
    api.query_port = [](ibv_context* context, uint8_t port, ibv_port_attr* attr) {
      const int result = softdc::Verbs().query_port(context, 1, attr);
      if (port == 1) attr->state = IBV_PORT_DOWN;
      return result;
    };
    api.query_gid = [](ibv_context* context, uint8_t, int index, ibv_gid* gid) {
      return softdc::Verbs().query_gid(context, 1, index, gid);
    };
    api.query_gid_ex = [](ibv_context* context, uint32_t, uint32_t index, ibv_gid_entry* entry) {
      return softdc::Verbs().query_gid_ex(context, 1, index, entry);
    };
    api.create_ah = [](ibv_pd* pd, ibv_ah_attr* attr) {
      ibv_ah_attr copy = *attr;
      copy.port_num = 1;
      return softdc::Verbs().create_ah(pd, &copy);
    };
    api.modify_qp = [](ibv_qp* qp, ibv_qp_attr* attr, int mask) {
      ibv_qp_attr copy = *attr;
      if ((mask & IBV_QP_PORT) != 0) {
        EXPECT_EQ(attr->port_num, 2);
        copy.port_num = 1;
      }
      copy.ah_attr.port_num = 1;
      return softdc::Verbs().modify_qp(qp, &copy, mask);
    };
    return api;
  }();
  return table;
}

TEST(SeveralPorts, OpenTakesTheFirstActiveOne) {
  const auto device = Device::Open("auto", {&TwoPorts()});
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ((*device)->path().port, 2);
}

TEST(SeveralPorts, OpenTakesTheOneThatIsNamed) {
  const auto second = Device::Open("softdc0:2", {&TwoPorts()});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ((*second)->path().port, 2);
  const auto first = Device::Open("softdc0:1", {&TwoPorts()});
  EXPECT_EQ(first.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(first.status().message().find("port 1 is not active"), absl::string_view::npos)
      << first.status();
  const auto third = Device::Open("softdc0:3", {&TwoPorts()});
  EXPECT_EQ(third.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(third.status().message().find("it has no port 3"), absl::string_view::npos)
      << third.status();
}

// The driver knows DC, the firmware does not.
TEST_F(SeveralDevices, AutoTakesADeviceWithRcIfNoneHasDc) {
  static const verbs::VerbsApi table = [] {
    verbs::VerbsApi api = ThreeDevices();
    api.dv_create_qp = [](ibv_context*, ibv_qp_init_attr_ex*, mlx5dv_qp_init_attr*) -> ibv_qp* {
      errno = EOPNOTSUPP;
      return nullptr;
    };
    return api;
  }();
  for (const char* spec : {"auto", "soft1"}) {
    const auto device = Device::Open(spec, {&table});
    ASSERT_TRUE(device.ok()) << device.status();
    EXPECT_TRUE((*device)->rc());
    EXPECT_NE((*device)->choice().find("; RC queue pairs instead of DC: mlx5dv_create_qp (DCT) "
                                       "failed with EOPNOTSUPP"),
              std::string::npos)
        << (*device)->choice();
  }
  const auto with_dc = Device::Open("auto", {&table, &ThreeDevices()});
  ASSERT_TRUE(with_dc.ok()) << with_dc.status();
  EXPECT_FALSE((*with_dc)->rc());
  const auto asked = Device::Open("soft2/rc", {&ThreeDevices()});
  ASSERT_TRUE(asked.ok()) << asked.status();
  EXPECT_TRUE((*asked)->rc());
}

TEST(ParseSpec, AnythingThatIsNoAddressAndEndsInNoPortIsAName) {
  EXPECT_TRUE(ParseSpec("auto").automatic);
  EXPECT_EQ(ParseSpec("mlx5_0").name, "mlx5_0");
  EXPECT_EQ(ParseSpec("mlx5_0").port, 0);
  EXPECT_EQ(ParseSpec("mlx5_0:2").name, "mlx5_0");
  EXPECT_EQ(ParseSpec("mlx5_0:2").port, 2);
  for (const char* odd : {"mlx5_0:", "mlx5_0:0", "mlx5_0:256", "mlx5_0:x", "mlx5_0:1x"}) {
    EXPECT_EQ(ParseSpec(odd).name, odd);
    EXPECT_EQ(ParseSpec(odd).port, 0);
  }
  EXPECT_TRUE(ParseSpec("10.0.0.5").gid.has_value());
  EXPECT_TRUE(ParseSpec("fe80::1:2").gid.has_value());
  EXPECT_FALSE(ParseSpec("10.0.0").gid.has_value());
  EXPECT_TRUE(ParseSpec("auto/rc").automatic && ParseSpec("auto/rc").rc);
  EXPECT_EQ(ParseSpec("mlx5_0:2/rc").port, 2);
  EXPECT_TRUE(ParseSpec("10.0.0.5/rc").gid.has_value());
  EXPECT_FALSE(ParseSpec("mlx5_0").rc);
}

}  // namespace device_choice_test
}  // namespace sluice::device
