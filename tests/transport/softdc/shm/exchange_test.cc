// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/shm/exchange.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

#include "transport/softdc/shm/address_map.h"
#include "transport/softdc/shm/page_file.h"

namespace {
int hooked_calls = 0;
}  // namespace

// A program's hook, in libc's place, that does not know the fifth argument: UCX 1.13 has such a one.
extern "C" void* mremap(void*, size_t, size_t, int, ...) noexcept {
  ++hooked_calls;
  return nullptr;
}

namespace sluice::softdc::shm {
namespace {

constexpr uint64_t kPage = 4096;

TEST(Exchange, GoesPastHooksOnTheMappingCalls) {
  void* const data =
      mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(data, MAP_FAILED);
  std::memset(data, 7, kPage);
  const auto file = PageFile::Create(kPage);
  ASSERT_NE(file, nullptr);
  const auto begin = reinterpret_cast<uint64_t>(data);
  ASSERT_EQ(ExchangePages(begin, begin + kPage, {.fd = file->fd(), .file_offset = 0},
                          WriterPolicy::kUserWritesOnly),
            0);
  EXPECT_EQ(hooked_calls, 0);
  EXPECT_EQ(static_cast<const char*>(data)[kPage - 1], 7);
  EXPECT_FALSE(IsPlainPrivate(begin, begin + kPage));  // it is the file's now
  munmap(data, kPage);
}

}  // namespace
}  // namespace sluice::softdc::shm
