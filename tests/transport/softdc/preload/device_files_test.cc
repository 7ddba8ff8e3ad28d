// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/preload/device_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace sluice::softdc::preload {
namespace device_files_test {

constexpr char kFolder[] = "/sys/class/infiniband/softdc0";

DeviceFileKind Kind(const std::string& path) {
  return static_cast<DeviceFileKind>(KindOfDeviceFile(path.c_str()));
}

// Its text, or the name of the error.
std::string Read(const std::string& path, int flags = O_RDONLY) {
  const int fd = OpenDeviceFile((kFolder + path).c_str(), flags);
  if (fd < 0) return errno == ENOENT ? "ENOENT" : errno == EACCES ? "EACCES" : "another error";
  char text[64];
  const ssize_t length = read(fd, text, sizeof(text));
  EXPECT_LT(write(fd, "x", 1), 0);
  close(fd);
  return {text, static_cast<size_t>(length)};
}

TEST(DeviceFiles, CharacterDevicesAreThoseOfTheDeviceAndOfRdmaCm) {
  EXPECT_EQ(Kind("/dev/infiniband/usoftdc0"), DeviceFileKind::kCharacterDevice);
  EXPECT_EQ(Kind("/dev/infiniband/rdma_cm"), DeviceFileKind::kCharacterDevice);
  EXPECT_EQ(Kind("/dev/infiniband/uverbs0"), DeviceFileKind::kNone);
  EXPECT_EQ(Kind("/dev/infiniband/"), DeviceFileKind::kNone);
}

TEST(DeviceFiles, OtherDevicesFoldersAreNotOurs) {
  EXPECT_EQ(Kind("/sys/class/infiniband/mlx5_0/node_guid"), DeviceFileKind::kNone);
  EXPECT_EQ(Kind("/sys/class/infiniband/softdc00/node_guid"), DeviceFileKind::kNone);
  EXPECT_EQ(Kind("/sys/class/infiniband/softdc0/node_guid"), DeviceFileKind::kText);
  EXPECT_EQ(Kind("/sys/class/infiniband/softdc0/nothing"), DeviceFileKind::kNone);
  EXPECT_EQ(Kind("/sys/class/infiniband/softdc0"), DeviceFileKind::kFolder);
  EXPECT_EQ(Kind("/sys/class/infiniband/softdc0/ports/1/gids/"), DeviceFileKind::kFolder);
}

TEST(DeviceFiles, AttributesAreReadAndNeverWritten) {
  EXPECT_EQ(Read("/device/vendor"), "0x15b3\n");
  EXPECT_EQ(Read("/device/device"), "0x1021\n");
  EXPECT_EQ(Read("/ports/1/link_layer"), "Ethernet\n");
  EXPECT_EQ(Read("/ports/1/gids/0"), "0000:0000:0000:0000:0000:ffff:7f00:0001\n");
  EXPECT_EQ(Read("/ports/1/gid_attrs/types/0"), "RoCE v2\n");
  EXPECT_EQ(Read("/ports/1/gid_attrs/ndevs/0"), "lo\n");
  EXPECT_EQ(Read("/node_guid").size(), 20u);
  EXPECT_EQ(Read("/device/vendor", O_RDWR), "EACCES");
}

TEST(DeviceFiles, EntriesBeyondTheTableAreAbsent) {
  EXPECT_EQ(Read("/ports/1/gids/256"), "ENOENT");
  EXPECT_EQ(Read("/ports/1/gids/0x"), "ENOENT");
  EXPECT_EQ(Read("/ports/1/gids/-1"), "ENOENT");
  EXPECT_EQ(Read("/ports/1/gid_attrs/types/"), "ENOENT");
  EXPECT_EQ(Read("/ports/2/gids/0"), "ENOENT");
  EXPECT_EQ(Read("/ports"), "ENOENT");
}

}  // namespace device_files_test
}  // namespace sluice::softdc::preload
