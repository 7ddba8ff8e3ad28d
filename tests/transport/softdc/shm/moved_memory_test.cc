// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/shm/moved_memory.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "transport/softdc/loop/loop.h"
#include "transport/softdc/shm/address_map.h"

namespace sluice::softdc::shm {
namespace moved_memory_test {

constexpr uint64_t kPage = 4096;

uint64_t Address(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

// Private anonymous pages with a pattern.
class Pages {
 public:
  explicit Pages(uint64_t count) : size_bytes(count * kPage) {
    data = static_cast<unsigned char*>(
        mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (uint64_t i = 0; i < size_bytes; ++i) data[i] = Pattern(i);
  }
  ~Pages() { munmap(data, size_bytes); }
  static unsigned char Pattern(uint64_t i) {
    return static_cast<unsigned char>(i * 31 + i / kPage);
  }
  uint64_t begin() const { return Address(data); }
  uint64_t end() const { return begin() + size_bytes; }
  bool Whole() const {
    for (uint64_t i = 0; i < size_bytes; ++i) {
      if (data[i] != Pattern(i)) return false;
    }
    return true;
  }

  const uint64_t size_bytes;
  unsigned char* data;
};

// As a peer sees it.
class Peer {
 public:
  explicit Peer(const MovedMemory::Place& place) : place_(place) {
    const uint64_t first = place.file_offset / kPage * kPage;
    skip_ = place.file_offset - first;
    length_ = skip_ + place.end - place.begin;
    base_ = static_cast<unsigned char*>(mmap(nullptr, length_, PROT_READ | PROT_WRITE, MAP_SHARED,
                                             place.file->fd(), static_cast<off_t>(first)));
  }
  ~Peer() { munmap(base_, length_); }
  unsigned char& At(uint64_t address) { return base_[skip_ + address - place_.begin]; }

 private:
  const MovedMemory::Place place_;
  uint64_t skip_, length_;
  unsigned char* base_;
};

bool IsPrivate(uint64_t begin, uint64_t end) { return IsPlainPrivate(begin, end); }

// Everything here leaves nothing behind.
class MovedMemoryTest : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(memory.moved_bytes(), 0u); }
  MovedMemory& memory = MovedMemory::Get();
};

TEST_F(MovedMemoryTest, EnterMovesWholePagesAndKeepsWhatIsInThem) {
  Pages pages(16);
  uint64_t id = 0;
  const auto place = memory.Enter(pages.begin() + 100, pages.end() - 100, /*move=*/true, &id);
  ASSERT_NE(place.file, nullptr);
  EXPECT_EQ(place.begin, pages.begin() + kPage) << "the ends stay private";
  EXPECT_EQ(place.end, pages.end() - kPage);
  EXPECT_TRUE(pages.Whole());
  EXPECT_TRUE(IsPrivate(pages.begin(), pages.begin() + kPage));
  EXPECT_FALSE(IsPrivate(place.begin, place.end));
  Peer peer(place);
  EXPECT_EQ(peer.At(place.begin + 5), Pages::Pattern(kPage + 5));
  pages.data[2 * kPage] = 1;
  EXPECT_EQ(peer.At(pages.begin() + 2 * kPage), 1);
  peer.At(pages.begin() + 3 * kPage) = 2;
  EXPECT_EQ(pages.data[3 * kPage], 2);
  memory.Leave(id, /*quiet=*/true);
}

TEST_F(MovedMemoryTest, LeaveMakesItPrivateAgainWithWhatIsInIt) {
  Pages pages(8);
  uint64_t id = 0;
  const auto place = memory.Enter(pages.begin(), pages.end(), true, &id);
  ASSERT_NE(place.file, nullptr);
  Peer peer(place);
  peer.At(pages.begin() + 7) = Pages::Pattern(7);
  memory.Leave(id, true);
  EXPECT_TRUE(IsPrivate(pages.begin(), pages.end()));
  EXPECT_TRUE(pages.Whole());
  peer.At(pages.begin() + 9) = 77;  // somebody slow
  EXPECT_TRUE(pages.Whole());
}

TEST_F(MovedMemoryTest, EnterLeavesMemoryPrivateThatIsNotPlain) {
  Pages pages(4);
  uint64_t id = 0;
  EXPECT_EQ(memory.Enter(pages.begin(), pages.end(), /*move=*/false, &id).file, nullptr);
  memory.Leave(id, true);
  EXPECT_EQ(memory.Enter(pages.begin() + 1, pages.begin() + kPage, true, &id).file, nullptr)
      << "no whole page";
  memory.Leave(id, true);
  ASSERT_EQ(mprotect(pages.data, kPage, PROT_READ), 0);
  EXPECT_EQ(memory.Enter(pages.begin(), pages.end(), true, &id).file, nullptr) << "read-only part";
  memory.Leave(id, true);
  ASSERT_EQ(mprotect(pages.data, kPage, PROT_READ | PROT_WRITE), 0);
  ASSERT_EQ(madvise(pages.data, kPage, MADV_WIPEONFORK), 0);
  EXPECT_EQ(memory.Enter(pages.begin(), pages.end(), true, &id).file, nullptr)
      << "wiped in children";
  memory.Leave(id, true);
  EXPECT_TRUE(pages.Whole());
  alignas(4096) unsigned char stack[4 * kPage];
  EXPECT_EQ(memory.Enter(Address(stack), Address(stack) + sizeof(stack), true, &id).file, nullptr);
  memory.Leave(id, true);
}

TEST_F(MovedMemoryTest, TwoRegistrationsShareOneMoveUntilTheLastEnds) {
  Pages pages(8);
  uint64_t first = 0, second = 0, third = 0;
  const auto place = memory.Enter(pages.begin(), pages.end(), true, &first);
  const auto inside =
      memory.Enter(pages.begin() + kPage + 10, pages.begin() + 2 * kPage, true, &second);
  ASSERT_NE(place.file, nullptr);
  EXPECT_EQ(inside.file, place.file);
  EXPECT_EQ(inside.begin, pages.begin() + kPage + 10);
  EXPECT_EQ(inside.end, pages.begin() + 2 * kPage);
  EXPECT_EQ(inside.file_offset, place.file_offset + kPage + 10);
  memory.Leave(first, true);
  EXPECT_FALSE(IsPrivate(pages.begin(), pages.end())) << "the second still counts on it";
  // Also without `move`: it stands there already.
  EXPECT_EQ(memory.Enter(pages.begin(), pages.end(), false, &third).file, place.file);
  memory.Leave(second, true);
  memory.Leave(third, true);
  EXPECT_TRUE(IsPrivate(pages.begin(), pages.end()));
  EXPECT_TRUE(pages.Whole());
}

TEST_F(MovedMemoryTest, EnterDoesNotMoveWhatIsRegisteredAsPrivate) {
  Pages pages(8);
  uint64_t first = 0, second = 0;
  EXPECT_EQ(memory.Enter(pages.begin(), pages.begin() + kPage, false, &first).file, nullptr);
  EXPECT_EQ(memory.Enter(pages.begin(), pages.end(), true, &second).file, nullptr);
  memory.Leave(first, true);
  memory.Leave(second, true);
}

TEST_F(MovedMemoryTest, MemoryUnmappedByTheProgramIsForgotten) {
  auto* data = static_cast<unsigned char*>(
      mmap(nullptr, 4 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  uint64_t id = 0;
  ASSERT_NE(memory.Enter(Address(data), Address(data) + 4 * kPage, true, &id).file, nullptr);
  // Something else stands at half of it now.
  ASSERT_EQ(munmap(data, 4 * kPage), 0);
  void* other = mmap(data, 2 * kPage, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  ASSERT_EQ(other, data);
  data[0] = 42;
  memory.Leave(id, true);
  EXPECT_EQ(data[0], 42);
  munmap(data, 2 * kPage);
}

TEST_F(MovedMemoryTest, APlaceThatIsNotQuietIsNotUsedAgain) {
  Pages pages(2);
  uint64_t id = 0;
  const auto first = memory.Enter(pages.begin(), pages.end(), true, &id);
  ASSERT_NE(first.file, nullptr);
  memory.Leave(id, /*quiet=*/false);
  const auto second = memory.Enter(pages.begin(), pages.end(), true, &id);
  ASSERT_NE(second.file, nullptr);
  EXPECT_NE(second.file_offset, first.file_offset);
  memory.Leave(id, true);
  const auto third = memory.Enter(pages.begin(), pages.end(), true, &id);
  EXPECT_EQ(third.file_offset, second.file_offset);
  memory.Leave(id, true);
}

TEST_F(MovedMemoryTest, ForkGivesTheChildCopiesOfThatMoment) {
  Pages pages(64);
  uint64_t id = 0;
  const auto place = memory.Enter(pages.begin(), pages.end(), true, &id);
  ASSERT_NE(place.file, nullptr);
  int go[2];
  ASSERT_EQ(pipe(go), 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte;
    if (read(go[0], &byte, 1) != 1) _exit(2);
    const bool whole = pages.Whole();
    std::memset(pages.data, 0xee, pages.size_bytes);
    memory.Leave(id, true);  // an id of the parent's
    _exit(whole && memory.moved_bytes() == 0 ? 0 : 1);
  }
  pages.data[0] ^= 0xff;  // the child must not see this
  ASSERT_EQ(write(go[1], "x", 1), 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  pages.data[0] ^= 0xff;
  EXPECT_TRUE(pages.Whole()) << "the parent must not see the child's";
  Peer peer(place);
  pages.data[9] = 9;
  EXPECT_EQ(peer.At(pages.begin() + 9), 9) << "the parent's is still shared";
  memory.Leave(id, true);
  close(go[0]);
  close(go[1]);
}

// Threads that write all the time lose nothing while the pages go to and fro beneath them. Where the
// process may not stop its threads' writes, nothing is moved.
TEST_F(MovedMemoryTest, WritersLoseNothingWhileTheirPagesMove) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the kernel orders the copy after the writes, which ThreadSanitizer cannot see";
#endif
  constexpr int kMoves = 20, kWriters = 2;
  constexpr uint64_t kWords = 64 * kPage / sizeof(uint64_t);
  Pages pages(64);
  std::memset(pages.data, 0, pages.size_bytes);
  auto* words = reinterpret_cast<std::atomic<uint64_t>*>(pages.data);
  std::atomic<bool> stop{false};
  std::atomic<int> lost{0};
  std::vector<std::thread> writers;
  for (int w = 0; w < kWriters; ++w) {
    writers.emplace_back([&, w] {
      std::vector<uint64_t> mine(kWords, 0);
      for (uint64_t i = static_cast<uint64_t>(w); !stop.load(std::memory_order_relaxed);) {
        if (words[i].load(std::memory_order_relaxed) != mine[i]) ++lost;
        words[i].store(++mine[i], std::memory_order_relaxed);
        i = (i + kWriters) % kWords;
      }
    });
  }
  const bool may_stop_writes = [] {
    const long fd = syscall(SYS_userfaultfd, 0);
    if (fd >= 0) close(static_cast<int>(fd));
    return fd >= 0;
  }();
  for (int i = 0; i < kMoves; ++i) {
    uint64_t id = 0;
    const auto place = memory.Enter(pages.begin(), pages.end(), true, &id);
    EXPECT_EQ(place.file != nullptr, may_stop_writes);
    memory.Leave(id, true);
  }
  stop = true;
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(lost, 0);
}

}  // namespace moved_memory_test
}  // namespace sluice::softdc::shm
