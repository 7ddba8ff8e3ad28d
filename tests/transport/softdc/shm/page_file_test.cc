// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/shm/page_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>

namespace sluice::softdc::shm {
namespace page_file_test {

constexpr uint64_t kPage = 4096;

uint64_t BlocksBytes(const PageFile& file) {
  struct stat info {};
  EXPECT_EQ(fstat(file.fd(), &info), 0);
  return static_cast<uint64_t>(info.st_blocks) * 512;
}

TEST(PageFileTest, FileIsSealedAndSparse) {
  auto file = PageFile::Create(1 << 30);
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(fcntl(file->fd(), F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  EXPECT_EQ(BlocksBytes(*file), 0u);
}

TEST(PageFileTest, RunsAreApartUntilTheFileIsFull) {
  auto file = PageFile::Create(8 * kPage);
  ASSERT_NE(file, nullptr);
  const auto first = file->Allocate(3 * kPage), second = file->Allocate(5 * kPage);
  ASSERT_TRUE(first && second);
  EXPECT_TRUE(*first + 3 * kPage <= *second || *second + 5 * kPage <= *first);
  EXPECT_FALSE(file->Allocate(kPage));
}

TEST(PageFileTest, FreedRunsJoinInAnyOrder) {
  auto file = PageFile::Create(9 * kPage);
  ASSERT_NE(file, nullptr);
  const auto a = file->Allocate(3 * kPage), b = file->Allocate(3 * kPage),
             c = file->Allocate(3 * kPage);
  ASSERT_TRUE(a && b && c);
  file->Free(*a, 3 * kPage, true);
  file->Free(*c, 3 * kPage, true);
  EXPECT_FALSE(file->Allocate(4 * kPage));
  file->Free(*b, 3 * kPage, true);
  EXPECT_TRUE(file->Allocate(9 * kPage));
}

TEST(PageFileTest, FreedRunGivesItsMemoryBackAndComesAgainEmpty) {
  auto file = PageFile::Create(16 * kPage);
  ASSERT_NE(file, nullptr);
  const auto run = file->Allocate(8 * kPage);
  ASSERT_TRUE(run);
  auto* bytes = static_cast<unsigned char*>(mmap(nullptr, 8 * kPage, PROT_READ | PROT_WRITE,
                                                 MAP_SHARED, file->fd(), static_cast<off_t>(*run)));
  ASSERT_NE(bytes, MAP_FAILED);
  bytes[0] = bytes[7 * kPage] = 1;
  EXPECT_EQ(BlocksBytes(*file), 2 * kPage);
  file->Free(*run, 8 * kPage, true);
  EXPECT_EQ(BlocksBytes(*file), 0u);
  EXPECT_EQ(file->Allocate(8 * kPage), run);
  EXPECT_EQ(bytes[0], 0);
  munmap(bytes, 8 * kPage);
}

TEST(PageFileTest, RunThatIsNotToBeReusedIsEmptiedOnly) {
  auto file = PageFile::Create(4 * kPage);
  ASSERT_NE(file, nullptr);
  const auto run = file->Allocate(4 * kPage);
  ASSERT_TRUE(run);
  file->Free(*run, 4 * kPage, /*reuse=*/false);
  EXPECT_FALSE(file->Allocate(kPage));
}

}  // namespace page_file_test
}  // namespace sluice::softdc::shm
