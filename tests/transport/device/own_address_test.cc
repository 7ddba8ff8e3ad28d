// SPDX-License-Identifier: Apache-2.0
//
// GID tables with entries of both RoCE versions, and the address that the queues have.
#include "transport/device/own_address.h"

#include <netinet/in.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transport/device/device.h"
#include "transport/softdc/verbs.h"

namespace sluice::device {
namespace own_address_test {

using ::testing::HasSubstr;

struct Entry {
  ibv_gid gid = {};
  uint32_t type = IBV_GID_TYPE_ROCE_V2;
  uint32_t interface = 0;
};

std::vector<Entry> g_table;
int g_reads = 0;

ibv_gid V4(uint8_t last) {
  ibv_gid gid = {};
  gid.raw[10] = gid.raw[11] = 0xff;
  gid.raw[12] = 10;
  gid.raw[15] = last;
  return gid;
}

ibv_gid LinkLocal() {
  ibv_gid gid = {};
  gid.raw[0] = 0xfe;
  gid.raw[1] = 0x80;
  gid.raw[15] = 9;
  return gid;
}

// A NIC with that table, which the software NIC acts.
const verbs::VerbsApi& Table() {
  static const verbs::VerbsApi table = [] {
    verbs::VerbsApi api = softdc::Verbs();
    api.name = "nic";
    api.query_gid = [](ibv_context*, uint8_t, int index, ibv_gid* gid) {
      *gid = static_cast<size_t>(index) < g_table.size() ? g_table[index].gid : ibv_gid{};
      return 0;
    };
    api.query_gid_ex = [](ibv_context*, uint32_t port, uint32_t index, ibv_gid_entry* entry) {
      ++g_reads;
      if (index >= g_table.size()) return ENODATA;
      *entry = {.gid = g_table[index].gid,
                .gid_index = index,
                .port_num = port,
                .gid_type = g_table[index].type,
                .ndev_ifindex = g_table[index].interface};
      return 0;
    };
    // Its own queues stand at entry 0, whatever the test says.
    api.modify_qp = [](ibv_qp* qp, ibv_qp_attr* attr, int mask) {
      ibv_qp_attr copy = *attr;
      copy.ah_attr.grh.sgid_index = 0;
      return softdc::Verbs().modify_qp(qp, &copy, mask);
    };
    api.create_ah = [](ibv_pd* pd, ibv_ah_attr* attr) {
      ibv_ah_attr copy = *attr;
      copy.grh.sgid_index = 0;
      return softdc::Verbs().create_ah(pd, &copy);
    };
    return api;
  }();
  return table;
}

std::unique_ptr<Device> Open(std::vector<Entry> table, const std::string& spec = "softdc0") {
  g_table = std::move(table);
  g_reads = 0;
  auto opened = Device::Open(spec, {&Table()});
  EXPECT_TRUE(opened.ok()) << opened.status();
  return opened.ok() ? std::move(*opened) : nullptr;
}

ibv_ah_attr PathAt(uint8_t index) {
  ibv_ah_attr path = {};
  path.is_global = 1;
  path.grh.sgid_index = index;
  return path;
}

TEST(PickGid, TakesRoceV2WhereverItStands) {
  EXPECT_EQ(Open({{V4(1), IBV_GID_TYPE_ROCE_V2}, {V4(1), IBV_GID_TYPE_ROCE_V1}})->path().sgid_index,
            0);
  EXPECT_EQ(Open({{V4(1), IBV_GID_TYPE_ROCE_V1}, {V4(1), IBV_GID_TYPE_ROCE_V2}})->path().sgid_index,
            1);
}

TEST(PickGid, PrefersAnyRoceV2ToAnIpv4AddressOfRoceV1) {
  EXPECT_EQ(Open({{V4(1), IBV_GID_TYPE_ROCE_V1}, {LinkLocal()}, {V4(2), IBV_GID_TYPE_ROCE_V1}})
                ->path()
                .sgid_index,
            1);
}

TEST(FindGid, TakesRoceV2WhereverItStands) {
  const std::vector<Entry> table = {
      {V4(1)}, {V4(2), IBV_GID_TYPE_ROCE_V2}, {V4(2), IBV_GID_TYPE_ROCE_V1}};
  EXPECT_EQ(Open(table, "10.0.0.2")->path().sgid_index, 1);
}

// Each entry is a command to the kernel, or a look-up of the host's addresses, and a table has 256.
TEST(PickGid, ReadsNoFurtherThanTheEntryThatNoneCanSurpass) {
  Open({{V4(1), IBV_GID_TYPE_ROCE_V1}, {LinkLocal()}, {V4(1)}, {V4(2)}});
  EXPECT_EQ(g_reads, 3);
}

TEST(FindGid, ReadsNoFurtherThanTheEntryThatNoneCanSurpass) {
  Open({{V4(1)}, {V4(2), IBV_GID_TYPE_ROCE_V1}, {V4(2)}, {V4(3)}}, "10.0.0.2");
  EXPECT_EQ(g_reads, 3);
}

TEST(OwnAddress, IsTheGidOfTheQueues) {
  const auto device = Open({{V4(1)}, {V4(2)}}, "10.0.0.2");
  const auto address = OwnAddress(*device);
  ASSERT_TRUE(address.has_value());
  ASSERT_EQ(address->ss_family, AF_INET);
  EXPECT_EQ(ntohl(reinterpret_cast<const sockaddr_in&>(*address).sin_addr.s_addr), 0x0a000002u);
}

TEST(OwnAddress, OfALinkLocalGidNamesItsInterfaceOrIsUnknown) {
  const auto address = OwnAddress(*Open({{LinkLocal(), IBV_GID_TYPE_ROCE_V2, 7}}));
  ASSERT_TRUE(address.has_value());
  ASSERT_EQ(address->ss_family, AF_INET6);
  EXPECT_EQ(reinterpret_cast<const sockaddr_in6&>(*address).sin6_scope_id, 7u);
  EXPECT_FALSE(OwnAddress(*Open({{LinkLocal()}})).has_value());
}

TEST(OwnAddress, IsUnknownOnInfiniband) {
  EXPECT_FALSE(OwnAddress(*Open({{LinkLocal(), IBV_GID_TYPE_IB, 7}})).has_value());
}

TEST(CheckOwnAddress, NamesBothAddressesWhereTheyDiffer) {
  const auto device = Open({{V4(1), IBV_GID_TYPE_ROCE_V1}, {V4(1), IBV_GID_TYPE_ROCE_V2}, {V4(2)}});
  EXPECT_TRUE(CheckOwnAddress(*device, PathAt(1)).ok());
  const absl::Status other = CheckOwnAddress(*device, PathAt(2));
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(other.message()),
              HasSubstr("connection at 10.0.0.2 (GID 2) of softdc0, queues at 10.0.0.1 (GID 1)"));
  EXPECT_THAT(std::string(CheckOwnAddress(*device, PathAt(0)).message()),
              HasSubstr("10.0.0.1 (GID 0, RoCE v1)"));
  EXPECT_THAT(std::string(CheckOwnAddress(*device, PathAt(9)).message()),
              HasSubstr("GID 9, which is empty"));
}

// Programs connect to the name of their host, or to ::1, and softdc's queues are at 127.0.0.1.
TEST(CheckOwnAddress, EachAddressOfThisHostLeadsToSoftdc) {
  auto device = Device::Open("softdc0", {&softdc::Verbs()});
  ASSERT_TRUE(device.ok()) << device.status();
  ASSERT_EQ((*device)->path().sgid_index, 0);
  EXPECT_TRUE(CheckOwnAddress(**device, PathAt(1)).ok());
  EXPECT_FALSE(CheckOwnAddress(**device, PathAt(200)).ok()) << "nothing is there";
}

TEST(CheckOwnAddress, DoesNotAskAboutInfiniband) {
  const auto device = Open({{V4(1)}, {V4(2)}});
  ibv_ah_attr path = PathAt(1);
  path.dlid = 3;
  EXPECT_TRUE(CheckOwnAddress(*device, path).ok());
  path = {};
  path.grh.sgid_index = 1;
  EXPECT_TRUE(CheckOwnAddress(*device, path).ok());
}

}  // namespace own_address_test
}  // namespace sluice::device
