// SPDX-License-Identifier: Apache-2.0
//
// What of the settings of a path a port has, and that queue pairs get all of it.
#include <endian.h>

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transport/device/device.h"
#include "transport/softdc/verbs.h"
#include "transport/verbs/handles.h"
#include "transport/verbs/rc.h"

namespace sluice::device {
namespace use_path_test {

using ::testing::HasSubstr;

std::vector<ibv_gid> g_gids;
std::vector<uint16_t> g_pkeys;
uint8_t g_link_layer = IBV_LINK_LAYER_ETHERNET;
std::vector<ibv_qp_attr> g_modified;  // and not done

ibv_gid Gid(uint8_t last) {
  ibv_gid gid = {};
  gid.raw[10] = gid.raw[11] = 0xff;
  gid.raw[12] = 10;
  gid.raw[15] = last;
  return gid;
}

// A NIC with these tables, which the software NIC acts.
const verbs::VerbsApi& Table() {
  static const verbs::VerbsApi table = [] {
    verbs::VerbsApi api = softdc::Verbs();
    api.query_port = [](ibv_context* context, uint8_t number, ibv_port_attr* port) {
      const int result = softdc::Verbs().query_port(context, number, port);
      port->gid_tbl_len = 8;
      port->pkey_tbl_len = static_cast<uint16_t>(g_pkeys.size());
      port->link_layer = g_link_layer;
      return result;
    };
    api.query_gid = [](ibv_context*, uint8_t, int index, ibv_gid* gid) {
      *gid = static_cast<size_t>(index) < g_gids.size() ? g_gids[index] : ibv_gid{};
      return 0;
    };
    api.query_gid_ex = [](ibv_context*, uint32_t, uint32_t, ibv_gid_entry*) { return EOPNOTSUPP; };
    api.query_pkey = [](ibv_context*, uint8_t, int index, __be16* pkey) {
      *pkey = htobe16(g_pkeys.at(index));
      return 0;
    };
    return api;
  }();
  return table;
}

class UsePathTest : public testing::Test {
 protected:
  void SetUp() override {
    g_gids = {Gid(1), ibv_gid{}, Gid(2)};
    g_pkeys = {0xffff};
    g_link_layer = IBV_LINK_LAYER_ETHERNET;
    device_ = Device::Open("softdc0", {&Table()}).value();
  }
  void ExpectRefused(const PathSettings& settings, absl::StatusCode code, const char* message) {
    const absl::Status status = device_->UsePath(settings);
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_EQ(std::string(status.message()), message);
    EXPECT_EQ(device_->path().sgid_index, 0);
    EXPECT_EQ(device_->path().pkey_index, 0);
  }

  std::unique_ptr<Device> device_;
};

TEST_F(UsePathTest, GidIndexIsInTheTableAndNotEmpty) {
  ExpectRefused({.gid_index = 8}, absl::StatusCode::kInvalidArgument,
                "option path.gid_index is 8: the GID table of port 1 of softdc0 has 8 entries; run "
                "sluice_info for the table");
  ExpectRefused({.gid_index = 1}, absl::StatusCode::kFailedPrecondition,
                "option path.gid_index is 1: that entry of the GID table of port 1 of softdc0 is "
                "empty; run sluice_info for the table");
  ASSERT_TRUE(device_->UsePath({.gid_index = 2}).ok());
  EXPECT_EQ(device_->path().sgid_index, 2);
}

TEST_F(UsePathTest, RefreshAddressKeepsAGidIndexThatWasAskedFor) {
  ASSERT_TRUE(device_->UsePath({.gid_index = 2}).ok());
  EXPECT_EQ(device_->RefreshAddress(), Device::Address::kSame);
  g_gids = {Gid(2), Gid(2), Gid(3)};
  EXPECT_EQ(device_->RefreshAddress(), Device::Address::kMoved);
  EXPECT_EQ(device_->path().sgid_index, 2);
  EXPECT_EQ(device_->RefreshAddress(), Device::Address::kSame);
  g_gids = {Gid(3)};
  EXPECT_EQ(device_->RefreshAddress(), Device::Address::kNone);
  EXPECT_EQ(device_->path().sgid_index, 2);
}

TEST_F(UsePathTest, PkeyIsFoundByItsLowerBitsAndFullMembersFirst) {
  g_link_layer = IBV_LINK_LAYER_INFINIBAND;
  g_pkeys = {0xffff, 0x0000, 0x0001, 0x8001, 0x7123};
  ASSERT_TRUE(device_->UsePath({.pkey = 0x8001}).ok());
  EXPECT_EQ(device_->path().pkey_index, 3);
  EXPECT_EQ(device_->pkey(), 0x8001);
  ASSERT_TRUE(device_->UsePath({.pkey = 0x0001}).ok());
  EXPECT_EQ(device_->path().pkey_index, 3);
  ASSERT_TRUE(device_->UsePath({.pkey = 0xf123}).ok());
  EXPECT_EQ(device_->path().pkey_index, 4);
  EXPECT_EQ(device_->pkey(), 0x7123);
}

TEST_F(UsePathTest, PkeyThatIsNotInTheTableIsRefusedWithTheTable) {
  ExpectRefused({.pkey = 0x8001}, absl::StatusCode::kFailedPrecondition,
                "option path.pkey is 0x8001: the partition table of port 1 of softdc0 has no such "
                "key: 0xffff; leave the option out: RoCE has no partitions; use a VLAN");
  g_link_layer = IBV_LINK_LAYER_INFINIBAND;
  g_pkeys = {0xffff, 0x0000, 0x8002};
  ExpectRefused({.pkey = 0x8001}, absl::StatusCode::kFailedPrecondition,
                "option path.pkey is 0x8001: the partition table of port 1 of softdc0 has no such "
                "key: 0xffff, 0x8002; have the subnet manager add this port to the partition");
}

TEST_F(UsePathTest, ServiceLevelOnRoceIsAPriority) {
  ExpectRefused({.service_level = 8}, absl::StatusCode::kInvalidArgument,
                "option path.service_level is 8: port 1 of softdc0 is RoCE, whose frames have "
                "priorities 0 to 7; choose one of them");
  EXPECT_TRUE(device_->UsePath({.service_level = 7}).ok());
  g_link_layer = IBV_LINK_LAYER_INFINIBAND;
  EXPECT_TRUE(device_->UsePath({.service_level = 15}).ok());
}

TEST_F(UsePathTest, ValuesOutOfRangeAreRefused) {
  ExpectRefused({.traffic_class = 300}, absl::StatusCode::kInvalidArgument,
                "option path.traffic_class is 300: allowed is 0 to 255; change the value");
}

TEST_F(UsePathTest, QueuePairsGetAllOfIt) {
  g_link_layer = IBV_LINK_LAYER_INFINIBAND;
  g_pkeys = {0xffff, 0x8001};
  ASSERT_TRUE(device_
                  ->UsePath({.gid_index = 2,
                             .traffic_class = 106,
                             .service_level = 3,
                             .pkey = 0x8001,
                             .ack_timeout = 17,
                             .retry_count = 5,
                             .rnr_retry = 4})
                  .ok());
  verbs::VerbsApi api = Table();
  api.modify_qp = [](ibv_qp*, ibv_qp_attr* attr, int) {
    g_modified.push_back(*attr);
    return 0;
  };
  const struct {
    const char* name;
    absl::Status (*activate)(const verbs::VerbsApi&, const verbs::PathOptions&);
    bool sends;
  } kinds[] = {
      {"DCI",
       [](const verbs::VerbsApi& api, const verbs::PathOptions& path) {
         return verbs::ActivateDci(api, nullptr, path);
       },
       true},
      {"DCT",
       [](const verbs::VerbsApi& api, const verbs::PathOptions& path) {
         return verbs::ActivateDct(api, nullptr, path, 0);
       },
       false},
      {"RC",
       [](const verbs::VerbsApi& api, const verbs::PathOptions& path) {
         return verbs::ActivateRc(api, nullptr, path, {.number = 9, .gid = Gid(7)}, 0);
       },
       true},
  };
  for (const auto& kind : kinds) {
    SCOPED_TRACE(kind.name);
    g_modified.clear();
    ASSERT_TRUE(kind.activate(api, device_->path()).ok());
    ASSERT_EQ(g_modified.size(), kind.sends ? 3u : 2u);
    EXPECT_EQ(g_modified[0].pkey_index, 1);
    EXPECT_EQ(g_modified[1].ah_attr.grh.sgid_index, 2);
    EXPECT_EQ(g_modified[1].ah_attr.grh.traffic_class, 106);
    EXPECT_EQ(g_modified[1].ah_attr.sl, 3);
    if (!kind.sends) continue;
    EXPECT_EQ(g_modified[2].timeout, 17);
    EXPECT_EQ(g_modified[2].retry_cnt, 5);
    EXPECT_EQ(g_modified[2].rnr_retry, 4);
  }
  EXPECT_EQ(g_modified[1].ah_attr.grh.dgid.raw[15], 7);
}

}  // namespace use_path_test
}  // namespace sluice::device
