// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

namespace sluice {
namespace thread_pool_test {

TEST(ThreadPoolTest, DestructorWaitsForAllWorkAndWhatThatGives) {
  std::atomic<int> ran{0};
  {
    ThreadPool pool(3);
    EXPECT_EQ(pool.threads(), 3u);
    for (int i = 0; i < 100; ++i) {
      pool.Run([&] {
        ++ran;
        pool.Run([&] { ++ran; });
      });
    }
  }
  EXPECT_EQ(ran, 200);
}

TEST(ThreadPoolTest, WithoutANumberItHasThreads) { EXPECT_GE(ThreadPool().threads(), 1u); }

TEST(ThreadPoolTest, OneThreadKeepsTheOrder) {
  std::vector<int> order;
  {
    ThreadPool pool(1);
    for (int i = 0; i < 50; ++i) pool.Run([&order, i] { order.push_back(i); });
  }
  std::vector<int> expected(50);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(order, expected);
}

TEST(ThreadPoolTest, AsMuchWorkBlocksAtATimeAsThereAreThreads) {
  std::set<std::thread::id> threads;
  std::mutex mutex;
  std::latch all(4);
  {
    ThreadPool pool(4);
    for (int i = 0; i < 4; ++i) {
      pool.Run([&] {
        all.arrive_and_wait();
        std::lock_guard lock(mutex);
        threads.insert(std::this_thread::get_id());
      });
    }
  }
  EXPECT_EQ(threads.size(), 4u);
  EXPECT_FALSE(threads.contains(std::this_thread::get_id()));
}

TEST(ThreadPoolTest, WaitingCountsWhatNoThreadHasBegun) {
  std::latch begun(1), go(1);
  ThreadPool pool(1);
  EXPECT_EQ(pool.waiting(), 0u);
  pool.Run([&] {
    begun.count_down();
    go.wait();
  });
  begun.wait();
  pool.Run([] {});
  pool.Run([] {});
  EXPECT_EQ(pool.waiting(), 2u);
  go.count_down();
}

TEST(ThreadPoolTest, DestructionByItsOwnWorkIsRefused) {
  EXPECT_DEATH(
      {
        auto* pool = new ThreadPool(1);
        std::latch never(1);
        pool->Run([pool] { delete pool; });
        never.wait();
      },
      "ThreadPool destroyed in work of its own");
}

}  // namespace thread_pool_test
}  // namespace sluice
