// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/preload/lookups.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <net/if.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "transport/softdc/verbs.h"

namespace sluice::softdc::preload {
namespace lookups_test {

constexpr uint8_t kPort = 1;

class LookupsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    list_ = Verbs().get_device_list(nullptr);
    ASSERT_NE(list_, nullptr);
    context_ = Verbs().open_device(list_[0]);
    ASSERT_NE(context_, nullptr);
  }
  void TearDown() override {
    EXPECT_EQ(Verbs().close_device(context_), 0);
    Verbs().free_device_list(list_);
  }
  std::string Read(const std::string& folder, const char* file) {
    char buffer[64];
    const int length = ReadSysfsFile(folder.c_str(), file, buffer, sizeof(buffer));
    return length < 0 ? "errno " + std::to_string(errno) : std::string(buffer, length);
  }

  ibv_device** list_ = nullptr;
  ibv_context* context_ = nullptr;
};

TEST_F(LookupsTest, QueryGidExEntryZeroIsLoopbackRoceV2) {
  ibv_gid_entry entry{};
  ASSERT_EQ(QueryGidEx(context_, kPort, 0, &entry, 0, sizeof(entry)), 0);
  EXPECT_EQ(entry.gid_type, uint32_t{IBV_GID_TYPE_ROCE_V2});
  EXPECT_EQ(entry.gid_index, 0u);
  EXPECT_EQ(entry.port_num, 1u);
  const uint8_t loopback[4] = {127, 0, 0, 1};
  EXPECT_EQ(std::memcmp(entry.gid.raw + 12, loopback, 4), 0);
  char name[IF_NAMESIZE];
  EXPECT_NE(if_indextoname(entry.ndev_ifindex, name), nullptr);
}

TEST_F(LookupsTest, QueryGidExSaysWhatIsWrong) {
  ibv_gid_entry entry{};
  EXPECT_EQ(QueryGidEx(context_, kPort, 255, &entry, 0, sizeof(entry)), ENODATA);  // an empty one
  EXPECT_EQ(QueryGidEx(context_, kPort, 1 << 20, &entry, 0, sizeof(entry)), EINVAL);
  EXPECT_EQ(QueryGidEx(context_, 2, 0, &entry, 0, sizeof(entry)), EINVAL);
  EXPECT_EQ(QueryGidEx(context_, 257, 0, &entry, 0, sizeof(entry)), EINVAL);
  EXPECT_EQ(QueryGidEx(context_, kPort, 0, &entry, 1, sizeof(entry)), EOPNOTSUPP);
  EXPECT_EQ(QueryGidEx(context_, kPort, 0, nullptr, 0, sizeof(entry)), EINVAL);
  EXPECT_EQ(QueryGidEx(nullptr, kPort, 0, &entry, 0, sizeof(entry)), EINVAL);
}

TEST_F(LookupsTest, QueryGidTableHasTheEntriesThatAreNotEmpty) {
  std::vector<ibv_gid_entry> entries(256);
  const ssize_t count =
      QueryGidTable(context_, entries.data(), entries.size(), 0, sizeof(entries[0]));
  ASSERT_GE(count, 1);
  for (ssize_t i = 0; i < count; ++i) {
    ibv_gid gid;
    ASSERT_EQ(Verbs().query_gid(context_, kPort, static_cast<int>(entries[i].gid_index), &gid), 0);
    EXPECT_EQ(std::memcmp(gid.raw, entries[i].gid.raw, sizeof(gid.raw)), 0);
  }
  EXPECT_EQ(QueryGidTable(context_, entries.data(), 0, 0, sizeof(entries[0])), -EINVAL);
}

TEST_F(LookupsTest, QueryGidTypeIsRoceV2) {
  int type = -1;
  EXPECT_EQ(QueryGidType(context_, kPort, 0, &type), 0);
  EXPECT_EQ(type, 1);
  EXPECT_EQ(QueryGidType(context_, 9, 0, &type), -1);
}

TEST_F(LookupsTest, GetPkeyIndexKnowsTheDefaultKeyOnly) {
  EXPECT_EQ(GetPkeyIndex(context_, kPort, 0xffff), 0);
  EXPECT_EQ(GetPkeyIndex(context_, kPort, 0x1234), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(GetPkeyIndex(context_, 7, 0xffff), -1);
}

TEST_F(LookupsTest, ReadSysfsFileOfTheDeviceAgreesWithTheDevice) {
  const std::string folder = list_[0]->ibdev_path;
  ASSERT_FALSE(folder.empty());
  const uint64_t guid = be64toh(Verbs().get_device_guid(list_[0]));
  char expected[32];
  std::snprintf(expected, sizeof(expected), "%04x:%04x:%04x:%04x", unsigned(guid >> 48 & 0xffff),
                unsigned(guid >> 32 & 0xffff), unsigned(guid >> 16 & 0xffff),
                unsigned(guid & 0xffff));
  EXPECT_EQ(Read(folder, "node_guid"), expected);
  EXPECT_EQ(Read(folder, "node_type"), "1: CA");
  EXPECT_EQ(Read(folder, "no_such_attribute"), "errno " + std::to_string(ENOENT));
}

TEST_F(LookupsTest, ReadSysfsFileOfOtherFoldersReadsTheFile) {
  const std::string folder = ::testing::TempDir();
  std::ofstream(folder + "/attribute") << "a value\n";
  EXPECT_EQ(Read(folder, "attribute"), "a value");
  EXPECT_EQ(Read(folder, "missing"), "errno " + std::to_string(ENOENT));
  char small[3];
  EXPECT_EQ(ReadSysfsFile(folder.c_str(), "attribute", small, sizeof(small)),
            3);  // no room for a zero
  EXPECT_EQ(std::string(small, 3), "a v");
}

TEST_F(LookupsTest, ReadIbdevSysfsFileFormatsTheName) {
  char buffer[32];
  EXPECT_GT(ReadIbdevSysfsFile(buffer, sizeof(buffer), list_[0], "node_%s", "type"), 0);
  EXPECT_STREQ(buffer, "1: CA");
}

TEST_F(LookupsTest, ResolveEthL2FromGidGivesDifferentDestinationsDifferentAddresses) {
  ibv_ah_attr attr{};
  attr.port_num = kPort;
  attr.grh.dgid.raw[15] = 1;
  uint8_t one[6], other[6];
  uint16_t vlan = 0;
  ASSERT_EQ(ResolveEthL2FromGid(context_, &attr, one, &vlan), 0);
  EXPECT_EQ(vlan, 0xffff);
  EXPECT_EQ(one[0] & 3, 2);  // unicast, locally administered
  attr.grh.dgid.raw[15] = 2;
  ASSERT_EQ(ResolveEthL2FromGid(context_, &attr, other, nullptr), 0);
  EXPECT_NE(std::memcmp(one, other, sizeof(one)), 0);
}

TEST_F(LookupsTest, DvOpenDeviceOpensButNotForDevx) {
  ibv_context* context = DvOpenDevice(list_[0], nullptr);
  ASSERT_NE(context, nullptr);
  EXPECT_EQ(Verbs().close_device(context), 0);
  mlx5dv_context_attr attr{};
  attr.flags = MLX5DV_CONTEXT_FLAGS_DEVX;
  EXPECT_EQ(DvOpenDevice(list_[0], &attr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

}  // namespace lookups_test
}  // namespace sluice::softdc::preload
