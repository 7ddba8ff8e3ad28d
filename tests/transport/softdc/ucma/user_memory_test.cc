// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/ucma/user_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace sluice::softdc::ucma {
namespace user_memory_test {

uint64_t Address(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

TEST(CopyFromUserTest, ReadsWhatIsThere) {
  const std::string text = "command";
  char copy[8] = {};
  ASSERT_EQ(CopyFromUser(copy, Address(text.data()), text.size()), 0);
  EXPECT_EQ(text, copy);
  EXPECT_EQ(CopyFromUser(copy, 0, 0), 0);
}

TEST(CopyFromUserTest, WhatIsNotThereIsAFault) {
  char copy[8];
  EXPECT_EQ(CopyFromUser(copy, 0, 1), EFAULT);
  EXPECT_EQ(CopyFromUser(copy, 16, 8), EFAULT);
  EXPECT_EQ(CopyFromUser(copy, ~uint64_t{0} - 4, 8), EFAULT);
}

TEST(CopyToUserTest, AreaThatEndsInAHoleIsAFault) {
  const long page = sysconf(_SC_PAGESIZE);
  void* pages = mmap(nullptr, 2 * static_cast<size_t>(page), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  ASSERT_EQ(munmap(static_cast<char*>(pages) + page, static_cast<size_t>(page)), 0);
  const char text[] = "response";
  char* const end = static_cast<char*>(pages) + page;
  EXPECT_EQ(CopyToUser(Address(end - sizeof(text)), text, sizeof(text)), 0);
  EXPECT_STREQ(end - sizeof(text), text);
  EXPECT_EQ(CopyToUser(Address(end - 2), text, sizeof(text)), EFAULT);
  ASSERT_EQ(mprotect(pages, static_cast<size_t>(page), PROT_READ), 0);
  EXPECT_EQ(CopyToUser(Address(pages), text, sizeof(text)), EFAULT);
  munmap(pages, static_cast<size_t>(page));
}

}  // namespace user_memory_test
}  // namespace sluice::softdc::ucma
