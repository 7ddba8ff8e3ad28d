// SPDX-License-Identifier: Apache-2.0
#include "transport/memory/slab.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "transport/device/device.h"
#include "transport/softdc/verbs.h"

namespace sluice::memory {
namespace {

std::unique_ptr<device::Device> OpenDevice() {
  return std::move(*device::Device::Open("softdc0", {&softdc::Verbs()}));
}

// The descriptors of this process that are slabs.
std::vector<int> SlabDescriptors() {
  std::vector<int> found;
  DIR* directory = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(directory)) {
    char target[256] = {};
    const std::string path = std::string("/proc/self/fd/") + entry->d_name;
    if (readlink(path.c_str(), target, sizeof(target) - 1) > 0 &&
        std::strstr(target, "sluice-slab") != nullptr) {
      found.push_back(std::atoi(entry->d_name));
    }
  }
  closedir(directory);
  return found;
}

TEST(SlabCreate, ZeroedWholePagesWithKeys) {
  auto device = OpenDevice();
  auto slab = Slab::Create(device->api(), device->pd(), 5'000, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_TRUE(slab.ok()) << slab.status();
  EXPECT_EQ(slab->size_bytes(), 8'192u);
  for (size_t i = 0; i < slab->size_bytes(); ++i) ASSERT_EQ(slab->data()[i], std::byte{0});
  EXPECT_NE(slab->lkey(), 0u);
}

TEST(SlabCreate, FileIsSealedAndOpenAsLongAsTheSlabLives) {
  auto device = OpenDevice();
  const size_t before = SlabDescriptors().size();
  {
    auto slab = Slab::Create(device->api(), device->pd(), 4'096, 0);
    ASSERT_TRUE(slab.ok());
    const auto descriptors = SlabDescriptors();
    ASSERT_GE(descriptors.size(), before + 1);  // the device may keep one of its own
    EXPECT_EQ(fcntl(descriptors.back(), F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW);
    Slab moved = std::move(*slab);
    EXPECT_EQ(SlabDescriptors().size(), descriptors.size());
    EXPECT_EQ(moved.size_bytes(), 4'096u);
  }
  EXPECT_EQ(SlabDescriptors().size(), before);
}

TEST(SlabCreate, RefusalLeavesNothingBehind) {
  auto device = OpenDevice();
  const size_t before = SlabDescriptors().size();
  // Remote write without local write is refused (man ibv_reg_mr).
  auto slab = Slab::Create(device->api(), device->pd(), 4'096, IBV_ACCESS_REMOTE_WRITE);
  EXPECT_EQ(slab.status().code(), absl::StatusCode::kInvalidArgument) << slab.status();
  EXPECT_EQ(SlabDescriptors().size(), before);
}

}  // namespace
}  // namespace sluice::memory
