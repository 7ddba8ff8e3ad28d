// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/shm/arena.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <vector>

namespace sluice::softdc::shm {
namespace arena_test {

TEST(ArenaTest, HeaderSaysWhoseItIsAndHowItIsLaidOut) {
  auto arena = Arena::Create(77);
  ASSERT_NE(arena, nullptr);
  const ArenaHeader& header = arena->header();
  EXPECT_EQ(header.magic, kArenaMagic);
  EXPECT_EQ(header.layout_version, kLayoutVersion);
  EXPECT_EQ(header.pid, getpid());
  EXPECT_EQ(header.context_id, 77u);
  EXPECT_EQ(header.memory_region_count, kMaxMemoryRegions);
  EXPECT_EQ(arena->memory_regions()[kMaxMemoryRegions - 1].key.load(), 0u);
}

TEST(ArenaTest, FileIsSealedSoThatNobodyCanShrinkItBelowAMapping) {
  auto arena = Arena::Create(1);
  ASSERT_NE(arena, nullptr);
  EXPECT_EQ(ftruncate(arena->fd(), 4096), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(ftruncate(arena->fd(), kArenaBytes + 4096), -1);
  EXPECT_EQ(fcntl(arena->fd(), F_ADD_SEALS, F_SEAL_WRITE), -1) << "nor lock the owner out";
  struct stat info {};
  ASSERT_EQ(fstat(arena->fd(), &info), 0);
  EXPECT_EQ(info.st_uid, geteuid());
  EXPECT_EQ(info.st_nlink, 0u) << "it has a name in some file system";
  EXPECT_LT(info.st_blocks * 512, 1 << 20) << "it is not sparse";
}

TEST(ArenaTest, BlocksAreAlignedZeroedAndApart) {
  auto arena = Arena::Create(1);
  ASSERT_NE(arena, nullptr);
  std::set<uint64_t> offsets;
  for (const uint64_t size_bytes : {1, 127, 128, 129, 4096, 4097, 70'000}) {
    const uint64_t offset = arena->Allocate(size_bytes);
    ASSERT_NE(offset, 0u);
    EXPECT_EQ(offset % 128, 0u);
    std::byte* block = arena->At(offset);
    EXPECT_TRUE(
        std::all_of(block, block + size_bytes, [](std::byte b) { return b == std::byte{0}; }));
    std::memset(block, 0xff, size_bytes);
    offsets.insert(offset);
  }
  EXPECT_EQ(offsets.size(), 7u);
  EXPECT_EQ(arena->header().magic, kArenaMagic) << "a block overlaps the header";
}

TEST(ArenaTest, FreedBlocksComeAgainZeroed) {
  auto arena = Arena::Create(1);
  ASSERT_NE(arena, nullptr);
  const uint64_t offset = arena->Allocate(300);
  std::memset(arena->At(offset), 0xff, 300);
  arena->Free(offset, 300);
  const uint64_t again = arena->Allocate(290);  // the same class
  EXPECT_EQ(again, offset);
  EXPECT_EQ(*arena->At<uint64_t>(again), 0u);
  EXPECT_NE(arena->Allocate(300), offset);
}

constexpr uint64_t kLargeBytes = 1 << 20;

uint64_t UsedBytes(const Arena& arena) {
  struct stat info {};
  EXPECT_EQ(fstat(arena.fd(), &info), 0);
  return info.st_blocks * 512;
}
bool AllAre(const std::byte* block, uint64_t size_bytes, int value) {
  return std::all_of(block, block + size_bytes,
                     [value](std::byte b) { return b == static_cast<std::byte>(value); });
}

TEST(ArenaTest, LargeBlockThatIsAllocatedAgainGivesItsPagesBack) {
  auto arena = Arena::Create(1);
  ASSERT_NE(arena, nullptr);
  // The neighbours share the first and the last page with the block.
  const uint64_t before = arena->Allocate(128);
  const uint64_t offset = arena->Allocate(kLargeBytes);
  const uint64_t behind = arena->Allocate(128);
  std::memset(arena->At(before), 0xff, 128 + kLargeBytes + 128);
  const uint64_t used_bytes = UsedBytes(*arena);
  arena->Free(offset, kLargeBytes);
  ASSERT_EQ(arena->Allocate(kLargeBytes), offset);
  EXPECT_LE(UsedBytes(*arena), used_bytes - kLargeBytes + kKeptBytes + 4096);
  EXPECT_TRUE(AllAre(arena->At(offset), kLargeBytes, 0));
  EXPECT_TRUE(AllAre(arena->At(before), 128, 0xff));
  EXPECT_TRUE(AllAre(arena->At(behind), 128, 0xff));
}

TEST(ArenaTest, LargeBlockThatIsWrittenAfterItsEndComesAgainZeroed) {
  auto arena = Arena::Create(1);
  ASSERT_NE(arena, nullptr);
  const uint64_t offset = arena->Allocate(kLargeBytes);
  arena->Free(offset, kLargeBytes);
  std::memset(arena->At(offset), 0xff, kLargeBytes);
  ASSERT_EQ(arena->Allocate(kLargeBytes), offset);
  EXPECT_TRUE(AllAre(arena->At(offset), kLargeBytes, 0));
}

TEST(ArenaTest, LargeBlockComesAgainZeroedIfTheKernelKeepsItsPages) {
  auto arena = Arena::Create(1);
  ASSERT_NE(arena, nullptr);
  const uint64_t offset = arena->Allocate(kLargeBytes);
  std::memset(arena->At(offset), 0xff, kLargeBytes);
  const int file_without_holes = open("/dev/null", O_RDWR | O_CLOEXEC);
  ASSERT_EQ(dup3(file_without_holes, arena->fd(), O_CLOEXEC), arena->fd());
  close(file_without_holes);
  arena->Free(offset, kLargeBytes);
  ASSERT_EQ(arena->Allocate(kLargeBytes), offset);
  EXPECT_TRUE(AllAre(arena->At(offset), kLargeBytes, 0));
}

TEST(ArenaTest, RetiredBlocksWaitUntilTheirTakerFreesThem) {
  auto arena = Arena::Create(1);
  ASSERT_NE(arena, nullptr);
  const uint64_t offset = arena->Allocate(128);
  arena->Retire(offset, 128);
  EXPECT_NE(arena->Allocate(128), offset) << "somebody may still be looking at it";
  const std::vector<Arena::Block> blocks = arena->TakeRetired();
  ASSERT_EQ(blocks.size(), 1u);
  EXPECT_EQ(blocks[0].offset, offset);
  EXPECT_EQ(blocks[0].size_bytes, 128u);
  EXPECT_TRUE(arena->TakeRetired().empty());
  arena->Free(offset, 128);
  EXPECT_EQ(arena->Allocate(128), offset);
}

TEST(ArenaTest, ManyRetiredBytesAreToldOnceUntilTheyAreTaken) {
  auto arena = Arena::Create(1);
  ASSERT_NE(arena, nullptr);
  int told = 0;
  arena->OnManyRetired([&] { ++told; });
  const auto retire = [&](uint64_t size_bytes) {
    arena->Retire(arena->Allocate(size_bytes), size_bytes);
  };
  retire(kManyRetiredBytes / 2);
  EXPECT_EQ(told, 0);
  retire(kManyRetiredBytes / 2);
  EXPECT_EQ(told, 1);
  retire(kManyRetiredBytes);
  EXPECT_EQ(told, 1);
  EXPECT_EQ(arena->TakeRetired().size(), 3u);
  retire(kManyRetiredBytes);
  EXPECT_EQ(told, 2);
  arena->OnManyRetired(nullptr);
}

TEST(ArenaTest, NoMoreThanAnEighthOfABlockIsWaste) {
  for (const uint64_t size_bytes : {4097, 65'792, 1'000'000, 8'388'864}) {
    EXPECT_GE(Arena::Rounded(size_bytes), size_bytes);
    EXPECT_LE(Arena::Rounded(size_bytes), size_bytes + size_bytes / 8);
    EXPECT_EQ(Arena::Rounded(size_bytes) % 128, 0u);
  }
}

TEST(ArenaTest, FullArenaSaysSoAndGoesOn) {
  auto arena = Arena::Create(1);
  ASSERT_NE(arena, nullptr);
  EXPECT_EQ(arena->Allocate(kArenaBytes), 0u);
  EXPECT_NE(arena->Allocate(128), 0u);
  arena->Free(0, 128);  // what Allocate said when it had nothing
  EXPECT_NE(arena->Allocate(128), 0u);
}

}  // namespace arena_test
}  // namespace sluice::softdc::shm
