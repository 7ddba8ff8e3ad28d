// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/shm/copy.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace sluice::softdc::shm {
namespace {

TEST(CopyInOrder, CopiesEverySizeAndTouchesNothingElse) {
  constexpr size_t kMax = 300;
  std::vector<std::byte> from(kMax + 16);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + 1);
  for (size_t size = 0; size <= kMax; ++size) {
    for (size_t shift = 0; shift < 8; ++shift) {
      std::vector<std::byte> to(kMax + 32, std::byte{0xee});
      CopyInOrder(to.data() + 8 + shift, from.data() + shift, size);
      ASSERT_EQ(std::memcmp(to.data() + 8 + shift, from.data() + shift, size), 0) << size;
      ASSERT_EQ(to[7 + shift], std::byte{0xee});
      ASSERT_EQ(to[8 + shift + size], std::byte{0xee});
    }
  }
}

// Another thread polls the last word and must then find all of the message.
TEST(CopyInOrder, LastWordIsVisibleLast) {
  constexpr size_t kWords = 64;
  constexpr uint64_t kRounds = 20'000;
  alignas(64) uint64_t place[kWords] = {};
  std::atomic<uint64_t> consumed{0};
  std::thread writer([&] {
    uint64_t message[kWords];
    for (uint64_t round = 1; round <= kRounds; ++round) {
      for (uint64_t& word : message) word = round;
      CopyInOrder(reinterpret_cast<std::byte*>(place), reinterpret_cast<std::byte*>(message),
                  sizeof(message));
      while (consumed.load(std::memory_order_acquire) != round) std::this_thread::yield();
    }
  });
  uint64_t torn = 0;
  for (uint64_t round = 1; round <= kRounds; ++round) {
    while (std::atomic_ref(place[kWords - 1]).load(std::memory_order_acquire) != round) {
      std::this_thread::yield();
    }
    for (const uint64_t word : place) torn += word != round;
    consumed.store(round, std::memory_order_release);
  }
  writer.join();
  EXPECT_EQ(torn, 0u);
}

}  // namespace
}  // namespace sluice::softdc::shm
