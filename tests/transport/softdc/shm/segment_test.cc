// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/shm/segment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "transport/softdc/loop/unique_fd.h"
#include "transport/softdc/shm/address_map.h"
#include "transport/softdc/shm/placement.h"

namespace sluice::softdc::shm {
namespace segment_test {

constexpr size_t kPage = 4096;
constexpr size_t kBytes = 8 * kPage;

struct MappedMemfd {
  explicit MappedMemfd(int seals, int flags = MAP_SHARED)
      : fd(memfd_create("segment_test", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    EXPECT_EQ(ftruncate(fd.get(), kBytes), 0);
    EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
    base =
        static_cast<std::byte*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, flags, fd.get(), 0));
  }
  ~MappedMemfd() { munmap(base, kBytes); }
  UniqueFd fd;
  std::byte* base;
};

TEST(FindSharedRangeTest, SealedFileIsFoundWithTheRightOffset) {
  const MappedMemfd file(F_SEAL_SHRINK);
  const auto range = FindSharedRange(file.base + kPage + 17, 3 * kPage);
  ASSERT_TRUE(range);
  const UniqueFd closes(range->fd);
  EXPECT_EQ(range->file_offset, kPage + 17);
  EXPECT_EQ(range->file_bytes, kBytes);
  struct stat ours {
  }, found{};
  ASSERT_EQ(fstat(file.fd.get(), &ours), 0);
  ASSERT_EQ(fstat(range->fd, &found), 0);
  EXPECT_EQ(ours.st_ino, found.st_ino);
  EXPECT_NE(range->fd, file.fd.get()) << "not the program's own descriptor";
}

TEST(FindSharedRangeTest, FileThatCanShrinkCountsAsPrivate) {
  const MappedMemfd file(/*seals=*/0);
  EXPECT_FALSE(FindSharedRange(file.base, kBytes));
}

TEST(FindSharedRangeTest, ClosedFileCountsAsPrivate) {
  MappedMemfd file(F_SEAL_SHRINK);
  file.fd.Reset();
  EXPECT_FALSE(FindSharedRange(file.base, kBytes));
}

TEST(FindSharedRangeTest, PrivateMappingOfASealedFileIsNotShared) {
  const MappedMemfd file(F_SEAL_SHRINK, MAP_PRIVATE);
  EXPECT_FALSE(FindSharedRange(file.base, kBytes));
}

TEST(FindSharedRangeTest, RangeBeyondTheMappingIsNotShared) {
  const MappedMemfd file(F_SEAL_SHRINK);
  EXPECT_FALSE(FindSharedRange(file.base + kPage, kBytes));
}

TEST(FindSharedRangeTest, FileIsFoundAmongManyDescriptors) {
  const MappedMemfd file(F_SEAL_SHRINK);
  std::vector<UniqueFd> later;
  for (int i = 0; i < 20; ++i) later.emplace_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const auto range = FindSharedRange(file.base, kBytes);
  ASSERT_TRUE(range);
  close(range->fd);
}

TEST(FindSharedRangeTest, RangeThatIsNotReadableIsNotShared) {
  const MappedMemfd file(F_SEAL_SHRINK);
  ASSERT_EQ(mprotect(file.base, kBytes, PROT_NONE), 0);
  EXPECT_FALSE(FindSharedRange(file.base, kBytes));
  EXPECT_FALSE(PlaceRange(file.base, kBytes, /*move=*/true));
}

// The kernel writes the whole list down each time: thousands of lines in a process of a thousand channels.
TEST(PlaceRangeTest, ASealedFileIsPlacedWithOneListOfMappings) {
  const MappedMemfd file(F_SEAL_SHRINK);
  const uint64_t lists = MappingListsRead();
  const auto placement = PlaceRange(file.base, kBytes, /*move=*/true);
  EXPECT_EQ(MappingListsRead() - lists, 1u);
  ASSERT_TRUE(placement);
  EXPECT_EQ(placement->shared_end, kBytes);
  EXPECT_FALSE(placement->moved);
  EndPlacement(placement->id, /*quiet=*/true);
}

TEST(IsPresentTest, HolesAreNotAndForbiddenPagesAre) {
  constexpr size_t kThreePages = 3 * 4096;
  auto* base = static_cast<std::byte*>(
      mmap(nullptr, kThreePages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(base, MAP_FAILED);
  EXPECT_TRUE(IsPresent(base + 1, kThreePages - 1));
  ASSERT_EQ(mprotect(base + 4096, 4096, PROT_NONE), 0);
  EXPECT_TRUE(IsPresent(base, kThreePages));
  ASSERT_EQ(munmap(base + 4096, 4096), 0);
  EXPECT_FALSE(IsPresent(base, kThreePages));
  EXPECT_TRUE(IsPresent(base + 4095, 1));
  EXPECT_FALSE(IsPresent(base + 4095, 2));
  munmap(base, kThreePages);
}

TEST(IsMappedTest, HolesAndForbiddenPagesAreNot) {
  auto* base = static_cast<std::byte*>(
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  EXPECT_TRUE(IsMapped(base, kBytes));
  EXPECT_TRUE(IsMapped(base + 1, kBytes - 1));
  ASSERT_EQ(mprotect(base + kPage, kPage, PROT_READ), 0);
  EXPECT_TRUE(IsMapped(base, kBytes)) << "several mappings in a row";
  ASSERT_EQ(mprotect(base + kPage, kPage, PROT_NONE), 0);
  EXPECT_FALSE(IsMapped(base, kBytes));
  EXPECT_TRUE(IsMapped(base, kPage));
  ASSERT_EQ(munmap(base + kPage, kPage), 0);
  EXPECT_FALSE(IsMapped(base, 2 * kPage));
  munmap(base, kBytes);
}

}  // namespace segment_test
}  // namespace sluice::softdc::shm
