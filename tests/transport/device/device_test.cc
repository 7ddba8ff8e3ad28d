// SPDX-License-Identifier: Apache-2.0
#include "transport/device/device.h"

#include <cerrno>
#include <string>

#include "gtest/gtest.h"
#include "transport/device/tables.h"
#include "transport/softdc/verbs.h"

namespace sluice::device {
namespace device_test {

using verbs::Feature;

// A table of the software NIC with something changed: how a device without a feature looks.
verbs::VerbsApi Changed(void (*change)(verbs::VerbsApi&)) {
  verbs::VerbsApi api = softdc::Verbs();
  change(api);
  return api;
}

TEST(ListDevices, SoftwareNicIsThere) {
  const auto entries = ListDevices({&softdc::Verbs()});
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].name, "softdc0");
  EXPECT_EQ(entries[0].provider, "softdc");
  EXPECT_TRUE(entries[0].usable);
  EXPECT_NE(entries[0].guid, 0u);
}

TEST(ListDevices, SystemLibrariesWorkWithoutHardware) {
  const auto entries = ListDevices(AllTables());
  ASSERT_FALSE(entries.empty());
  EXPECT_EQ(entries.back().name, "softdc0");  // native devices come first
}

TEST(DeviceOpen, AutoSaysWhatItTookAndWhy) {
  const auto device = Device::Open("auto", {&softdc::Verbs()});
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ((*device)->choice(), "softdc0: the first active device with DC");
  EXPECT_EQ((*device)->provider(), "softdc");
  EXPECT_TRUE((*device)->capabilities().Has(Feature::kDc));
}

TEST(DeviceOpen, AutoSaysWhereThereWasNoDevice) {
  static const verbs::VerbsApi empty = Changed([](verbs::VerbsApi& api) {
    api.name = "native";
    api.get_device_list = [](int* count) {
      *count = 0;
      return static_cast<ibv_device**>(nullptr);
    };
    api.free_device_list = [](ibv_device**) {};
  });
  const auto device = Device::Open("auto", {&empty, &softdc::Verbs()});
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ((*device)->choice(),
            "softdc0: the first active device with DC; no RDMA device from native");
}

TEST(DeviceOpen, AutoPassesByDevicesWithoutDcAndNamesThem) {
  static const verbs::VerbsApi ethernet = Changed([](verbs::VerbsApi& api) {
    api.name = "native";
    api.get_device_name = [](ibv_device*) { return "bnxt_re0"; };
    api.dv_is_supported = [](ibv_device*) { return false; };
  });
  const auto device = Device::Open("auto", {&ethernet, &softdc::Verbs()});
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ((*device)->choice(),
            "softdc0: no better device with DC (bnxt_re0: not an mlx5 device: no DC transport)");
}

TEST(DeviceOpen, UnknownNameListsWhatThereIs) {
  const auto device = Device::Open("mlx5_7", {&softdc::Verbs()});
  EXPECT_EQ(device.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(std::string(device.status().message()),
            "no device named mlx5_7: there are: softdc0; run sluice_info for the names, or use "
            "--device=auto");
}

TEST(DeviceOpen, NothingAtAll) {
  const auto device = Device::Open("auto", {});
  EXPECT_EQ(device.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(device.status().message().find("sees no RDMA device at all"), absl::string_view::npos);
}

TEST(DeviceOpen, PortThatIsDown) {
  static const verbs::VerbsApi down = Changed([](verbs::VerbsApi& api) {
    api.query_port = [](ibv_context* context, uint8_t port, ibv_port_attr* attr) {
      const int result = softdc::Verbs().query_port(context, port, attr);
      attr->state = IBV_PORT_DOWN;
      return result;
    };
  });
  const auto device = Device::Open("softdc0", {&down});
  EXPECT_EQ(device.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(device.status().message().find("port 1 is not active"), absl::string_view::npos)
      << device.status();
}

TEST(Probe, EachFeatureHasAReason) {
  const auto device = Device::Open("softdc0", {&softdc::Verbs()});
  ASSERT_TRUE(device.ok());
  for (const verbs::Capability& capability : (*device)->capabilities().all()) {
    EXPECT_NE(capability.why, "not probed") << Name(capability.feature);
    EXPECT_FALSE(capability.why.empty());
  }
}

// Each refusal is taken from the call itself, and switches off that feature alone.
TEST(Probe, RefusedFeaturesAreOffAndSayWhich) {
  static const verbs::VerbsApi poor = Changed([](verbs::VerbsApi& api) {
    api.dv_reserved_qpn_alloc = [](ibv_context*, uint32_t*) { return EOPNOTSUPP; };
    api.dv_map_ah_to_qp = [](ibv_ah*, uint32_t) { return EOPNOTSUPP; };
    api.dv_dci_stream_id_reset = [](ibv_qp*, uint16_t) { return EOPNOTSUPP; };
    api.query_qp_data_in_order = [](ibv_qp*, ibv_wr_opcode, uint32_t) { return 0; };
    api.query_ece = [](ibv_qp*, ibv_ece*) { return EOPNOTSUPP; };
  });
  const auto device = Device::Open("softdc0", {&poor});
  ASSERT_TRUE(device.ok()) << device.status();
  const verbs::CapabilityReport& report = (*device)->capabilities();
  EXPECT_TRUE(report.Has(Feature::kDc));
  EXPECT_TRUE(report.Has(Feature::kStreams));
  for (Feature feature : {Feature::kReservedQpn, Feature::kAhMapping, Feature::kStreamReset,
                          Feature::kDataInOrder, Feature::kEce}) {
    EXPECT_FALSE(report.Has(feature)) << Name(feature);
  }
  EXPECT_NE(report.Get(Feature::kReservedQpn).why.find("EOPNOTSUPP"), std::string::npos);
  EXPECT_NE(
      report.ToString().find("reserved qpn     off  mlx5dv_reserved_qpn_alloc says EOPNOTSUPP"),
      std::string::npos)
      << report.ToString();
}

TEST(Probe, DeviceWhoseStreamsNobodyCanUse) {
  static const verbs::VerbsApi no_streams = Changed([](verbs::VerbsApi& api) {
    api.dv_query_device = [](ibv_context* context, mlx5dv_context* attr) {
      const int result = softdc::Verbs().dv_query_device(context, attr);
      attr->comp_mask &= ~static_cast<uint64_t>(MLX5DV_CONTEXT_MASK_DCI_STREAMS);
      return result;
    };
  });
  const auto device = Device::Open("softdc0", {&no_streams});
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_FALSE((*device)->capabilities().Has(Feature::kStreams));
  EXPECT_FALSE((*device)->capabilities().Has(Feature::kStreamReset));
  EXPECT_EQ((*device)->limits().log_streams, 0);
}

TEST(Probe, ReadsAtATimeAreWhatADciTakes) {
  const auto device = Device::Open("softdc0", {&softdc::Verbs()});
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ((*device)->limits().reads, 16);
  EXPECT_EQ((*device)->path().max_rd_atomic, 16);
  // It does them for other queue pairs only.
  static const verbs::VerbsApi one = Changed([](verbs::VerbsApi& api) {
    api.modify_qp = [](ibv_qp* qp, ibv_qp_attr* attr, int mask) {
      if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0 && attr->max_rd_atomic > 1) return EINVAL;
      return softdc::Verbs().modify_qp(qp, attr, mask);
    };
  });
  const auto poor = Device::Open("softdc0", {&one});
  ASSERT_TRUE(poor.ok()) << poor.status();
  EXPECT_EQ((*poor)->limits().reads, 1);
  EXPECT_EQ((*poor)->path().max_rd_atomic, 1);
  EXPECT_TRUE((*poor)->capabilities().Has(Feature::kStreams));
}

TEST(ReadAsyncEvents, NoneIsNotAnError) {
  const auto device = Device::Open("softdc0", {&softdc::Verbs()});
  ASSERT_TRUE(device.ok());
  EXPECT_EQ((*device)->ReadAsyncEvents(), 0);
  EXPECT_FALSE((*device)->broken());
}

}  // namespace device_test
}  // namespace sluice::device
