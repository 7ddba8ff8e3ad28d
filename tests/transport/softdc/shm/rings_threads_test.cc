// SPDX-License-Identifier: Apache-2.0
//
// The rings between threads of one process: the same steps as between processes, but
// ThreadSanitizer can watch. The payload is copied with plain stores, so a missing happens-before
// edge is a reported race.
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>

#include <thread>

#include "tests/transport/softdc/shm/mini_fabric.h"

namespace sluice::softdc::shm {
namespace rings_threads_test {

TEST(RingsThreadsTest, ThreeSendersAndASleepingOwnerLoseNothing) {
  constexpr int kSenders = 3;
  constexpr uint32_t kMessages = 20'000;
  MiniOwner owner(kSenders);
  std::vector<std::thread> threads;
  for (uint32_t id = 0; id < kSenders; ++id) {
    threads.emplace_back([&owner, id] {
      std::minstd_rand random(id + 1);
      MiniSender sender(&owner, id);
      while (sender.next() < kMessages) {
        const uint32_t want =
            std::min<uint32_t>(1 + random() % kMiniBatch, kMessages - sender.next());
        if (sender.Send(want, 50, random) == 0 || random() % 64 == 0) sched_yield();
      }
    });
  }
  const auto all_here = [&] {
    for (const uint32_t count : owner.received) {
      if (count != kMessages) return false;
    }
    return true;
  };
  int sleeps = 0;
  while (!all_here() && !::testing::Test::HasFatalFailure()) {
    if (owner.Poll() != 0) continue;
    // Ends by a message only: a lost wake-up hangs here.
    owner.armed.Arm(ArmedWord::Mode::kAny);
    if (!owner.Idle() && owner.armed.TryTake(ArmedWord::kOwnerLink, true)) owner.RingBell();
    pollfd fd{.fd = owner.bell, .events = POLLIN, .revents = 0};
    ASSERT_EQ(poll(&fd, 1, -1), 1);
    uint64_t rings;
    ASSERT_EQ(read(owner.bell, &rings, sizeof rings), static_cast<ssize_t>(sizeof rings));
    EXPECT_TRUE(owner.armed.CollectEvent());
    ++sleeps;
  }
  for (std::thread& thread : threads) thread.join();
  owner.Poll();  // WQEs handed back after the last message
  owner.ExpectWhole();
  EXPECT_GT(sleeps, 0);
  EXPECT_GT(owner.returned_unused, 0);
}

// Every message is sent just when the owner goes to sleep; a lost wake-up hangs here.
TEST(RingsThreadsTest, OwnerThatSleepsBeforeEachMessageIsWokenForEach) {
  constexpr uint32_t kMessages = 20'000;
  MiniOwner owner(1);
  std::atomic<uint32_t> asked{0};
  std::thread thread([&] {
    std::minstd_rand random(1);
    MiniSender sender(&owner, 0);
    while (sender.next() < kMessages) {
      while (asked.load(std::memory_order_acquire) <= sender.next()) {
      }
      EXPECT_EQ(sender.Send(1, 1'000'000'000, random), 1u);
    }
  });
  while (owner.received[0] < kMessages && !::testing::Test::HasFatalFailure()) {
    asked.store(owner.received[0] + 1, std::memory_order_release);
    for (uint32_t spin = owner.received[0] % 512; spin > 0; --spin) asm volatile("");
    owner.armed.Arm(ArmedWord::Mode::kAny);
    if (!owner.Idle() && owner.armed.TryTake(ArmedWord::kOwnerLink, true)) owner.RingBell();
    pollfd fd{.fd = owner.bell, .events = POLLIN, .revents = 0};
    ASSERT_EQ(poll(&fd, 1, -1), 1);
    uint64_t rings;
    ASSERT_EQ(read(owner.bell, &rings, sizeof rings), static_cast<ssize_t>(sizeof rings));
    EXPECT_TRUE(owner.armed.CollectEvent());
    EXPECT_EQ(owner.Poll(), 1);
  }
  thread.join();
}

}  // namespace rings_threads_test
}  // namespace sluice::softdc::shm
