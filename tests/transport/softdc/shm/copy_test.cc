// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/shm/copy.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

namespace sluice::softdc::shm {
namespace copy_test {

using Copier = std::function<void(std::byte*, const std::byte*, size_t)>;

void ExpectCopiesEverySize(const Copier& copy) {
  constexpr size_t kMax = 700;
  std::vector<std::byte> from(kMax + 16);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + i / 256 + 1);
  for (size_t size = 0; size <= kMax; ++size) {
    for (size_t shift = 0; shift < 16; ++shift) {
      std::vector<std::byte> to(kMax + 64, std::byte{0xee});
      copy(to.data() + 8 + shift, from.data() + shift % 8, size);
      ASSERT_EQ(std::memcmp(to.data() + 8 + shift, from.data() + shift % 8, size), 0) << size;
      ASSERT_EQ(to[7 + shift], std::byte{0xee});
      ASSERT_EQ(to[8 + shift + size], std::byte{0xee});
    }
  }
}

TEST(CopyInOrder, CopiesEverySizeAndTouchesNothingElse) { ExpectCopiesEverySize(&CopyInOrder); }

TEST(CopyRelaxed, CopiesEverySizeAndTouchesNothingElse) {
  ExpectCopiesEverySize(&CopyRelaxed);
  std::vector<std::byte> from(300'000), to(300'000);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + i / 256 + 1);
  for (const size_t size : {1024, 1025, 1040, 65'536, 65'537, 131'080, 299'999}) {
    std::fill(to.begin(), to.end(), std::byte{0});
    CopyRelaxed(to.data(), from.data(), size);
    EXPECT_EQ(std::memcmp(to.data(), from.data(), size), 0) << size;
    EXPECT_EQ(to[size], std::byte{0});
  }
}

TEST(CopyShuffled, CopiesEverySizeAndTouchesNothingElse) {
  for (const size_t block_bytes : {size_t{64}, kOrderedBlockBytes}) {
    for (const uint64_t seed : {1, 2, 3}) {
      ExpectCopiesEverySize([&](std::byte* to, const std::byte* from, size_t size) {
        CopyShuffled(to, from, size, block_bytes, seed);
      });
    }
  }
}

// ---- A watching thread.

// What a reader polls of a unit that ends at `end`: its last word, or byte.
struct Polled {
  std::byte* end;
  bool word;
  std::byte Load() const {
    if (!word) return std::atomic_ref(end[-1]).load(std::memory_order_acquire);
    const uint64_t value =
        std::atomic_ref(*reinterpret_cast<uint64_t*>(end - 8)).load(std::memory_order_acquire);
    return static_cast<std::byte>(value >> 56);
  }
};

// One message: where it lands, and the end of the unit that is watched.
struct Round {
  size_t shift, size, watched_end;
  std::byte value;
};

Polled WatchedIn(std::byte* area, const Round& round) {
  std::byte* const begin = area + round.shift;
  std::byte* const end = begin + round.watched_end;
  // The unit begins at the boundary before, or with the message.
  const size_t in_block = (reinterpret_cast<uintptr_t>(end) - 1) % kOrderedBlockBytes + 1;
  const size_t unit_bytes = std::min(in_block, round.watched_end);
  return {.end = end, .word = unit_bytes >= 8 && reinterpret_cast<uintptr_t>(end) % 8 == 0};
}

// Every size from 1 to 4,096; of each, the ends of several of its units; every place in a vector for
// small ones, in turn for large ones.
std::vector<Round> Rounds() {
  constexpr size_t kMax = 4096, kAlignments = 32;
  std::vector<Round> rounds;
  for (size_t size = 1; size <= kMax; ++size) {
    const size_t shifts = size <= 300 ? kAlignments : 2;
    for (size_t i = 0; i < shifts; ++i) {
      const size_t shift = shifts == kAlignments ? i : (size * 5 + i * 16) % kAlignments;
      const size_t units = (shift + size + kOrderedBlockBytes - 1) / kOrderedBlockBytes;
      const size_t unit = (size + i) % 2 == 0 ? units : 1 + (size * 7 + i) % units;
      rounds.push_back({.shift = shift,
                        .size = size,
                        .watched_end = std::min(size, unit * kOrderedBlockBytes - shift),
                        .value = static_cast<std::byte>(1 + rounds.size() % 255)});
    }
  }
  return rounds;
}

// The other thread polls the last word of a unit, and must then find all of the message before it.
TEST(CopyInOrder, AWatcherOfAnyUnitSeesAllThatStandsBeforeIt) {
  const std::vector<Round> rounds = Rounds();
  alignas(kOrderedBlockBytes) static std::byte place[8192] = {};
  std::atomic<size_t> started{0}, consumed{0};
  std::thread writer([&] {
    std::vector<std::byte> message(4096);
    for (size_t i = 0; i < rounds.size(); ++i) {
      std::fill_n(message.begin(), rounds[i].size, rounds[i].value);
      started.store(i + 1, std::memory_order_release);
      CopyInOrder(place + rounds[i].shift, message.data(), rounds[i].size);
      while (consumed.load(std::memory_order_acquire) != i + 1) std::this_thread::yield();
    }
  });
  uint64_t torn = 0;
  for (size_t i = 0; i < rounds.size(); ++i) {
    const Round& round = rounds[i];
    const Polled polled = WatchedIn(place, round);
    // What stands there from before may look like this round's; only a change counts.
    while (started.load(std::memory_order_acquire) != i + 1) std::this_thread::yield();
    while (polled.Load() != round.value) std::this_thread::yield();
    for (size_t at = 0; at < round.watched_end; ++at) {
      torn += place[round.shift + at] != round.value;
    }
    consumed.store(i + 1, std::memory_order_release);
  }
  writer.join();
  EXPECT_EQ(torn, 0u);
}

// ---- The order itself, made visible: a copy that runs into a page it may not touch stops there.

constexpr size_t kPage = 4096;

// Lets a child copy three pages of 0xab, of which it may not touch the middle one; what it had
// written when it died.
std::vector<std::byte> WrittenBeforeTheMiddle(const Copier& copy) {
  auto* to = static_cast<std::byte*>(
      mmap(nullptr, 3 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const std::vector<std::byte> from(3 * kPage, std::byte{0xab});
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    mprotect(to + kPage, kPage, PROT_NONE);
    copy(to, from.data(), from.size());
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_FALSE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "nothing stopped it";
  std::vector<std::byte> seen(to, to + 3 * kPage);
  munmap(to, 3 * kPage);
  return seen;
}

size_t CountWritten(const std::vector<std::byte>& seen, size_t begin, size_t end) {
  return static_cast<size_t>(std::count(seen.begin() + static_cast<ptrdiff_t>(begin),
                                        seen.begin() + static_cast<ptrdiff_t>(end),
                                        std::byte{0xab}));
}

TEST(CopyInOrder, IsAtTheMiddleWhenAllBeforeIsWrittenAndNothingAfter) {
  const auto seen = WrittenBeforeTheMiddle(&CopyInOrder);
  EXPECT_EQ(CountWritten(seen, 0, kPage), kPage);
  EXPECT_EQ(CountWritten(seen, 2 * kPage, 3 * kPage), 0u);
}

TEST(CopyRelaxed, LastWordLandsLast) {
  // The source's last word is forbidden: by then everything else has landed.
  auto* from = static_cast<std::byte*>(
      mmap(nullptr, 3 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  auto* to = static_cast<std::byte*>(
      mmap(nullptr, 3 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::memset(from, 0xab, 3 * kPage);
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    mprotect(from + 2 * kPage, kPage, PROT_NONE);
    CopyRelaxed(to, from + 8, 2 * kPage);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_FALSE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "nothing stopped it";
  EXPECT_EQ(std::count(to, to + 2 * kPage - 8, std::byte{0xab}), 2 * kPage - 8);
  EXPECT_EQ(to[2 * kPage - 8], std::byte{0});
  munmap(from, 3 * kPage);
  munmap(to, 3 * kPage);
}

TEST(CopyShuffled, BlocksLandInNoOrderAndBlocksOf128AreWhole) {
  constexpr int kSeeds = 8;
  int early = 0, late = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    for (const size_t block_bytes : {size_t{64}, kOrderedBlockBytes}) {
      const auto seen = WrittenBeforeTheMiddle([&](std::byte* to, const std::byte* from, size_t n) {
        CopyShuffled(to, from, n, block_bytes, seed);
      });
      early += CountWritten(seen, 0, kPage) != kPage ? 1 : 0;
      late += CountWritten(seen, 2 * kPage, 3 * kPage) != 0 ? 1 : 0;
      for (size_t block = 0; block < seen.size(); block += block_bytes) {
        const size_t written = CountWritten(seen, block, block + block_bytes);
        EXPECT_TRUE(written == 0 || written == block_bytes);
      }
    }
  }
  EXPECT_GT(early, kSeeds) << "blocks before the middle are still missing";
  EXPECT_GT(late, kSeeds / 2) << "blocks after the middle have landed";
}

// Inside a block: its source is forbidden from the middle on. What had landed when the copy got there
// shows with which end it had begun.
size_t LandedBeforeTheForbiddenHalf(size_t block_bytes) {
  auto* pages = static_cast<std::byte*>(
      mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  auto* to = static_cast<std::byte*>(
      mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::memset(pages, 0xab, 2 * kPage);
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    mprotect(pages + kPage, kPage, PROT_NONE);
    CopyShuffled(to, pages + kPage - block_bytes / 2, block_bytes, block_bytes, /*seed=*/1);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_FALSE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "nothing stopped it";
  const auto landed = static_cast<size_t>(std::count(to, to + block_bytes, std::byte{0xab}));
  munmap(pages, 2 * kPage);
  munmap(to, kPage);
  return landed;
}

TEST(CopyShuffled, OnlyBlocksOf128AreInOrderInside) {
  EXPECT_EQ(LandedBeforeTheForbiddenHalf(kOrderedBlockBytes), kOrderedBlockBytes / 2);
  EXPECT_EQ(LandedBeforeTheForbiddenHalf(64), 0u);
}

}  // namespace copy_test
}  // namespace sluice::softdc::shm
