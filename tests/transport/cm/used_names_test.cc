// SPDX-License-Identifier: Apache-2.0
#include "transport/cm/used_names.h"

#include <atomic>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace sluice::cm {
namespace used_names_test {

TEST(UsedNames, ANameCountsOnceInItsPeriodAndTheNext) {
  UsedNames used;
  EXPECT_TRUE(used.Add(1, 10));
  EXPECT_FALSE(used.Add(1, 10));
  EXPECT_TRUE(used.Add(2, 11));
  EXPECT_FALSE(used.Add(1, 11));
  EXPECT_FALSE(used.Add(2, 12));
  EXPECT_TRUE(used.Add(1, 12));
  EXPECT_TRUE(used.Add(2, 14)) << "a period without names forgets all";
}

// Another thread has read the time a little earlier.
TEST(UsedNames, ALatePeriodForgetsNothing) {
  UsedNames used;
  EXPECT_TRUE(used.Add(1, 11));
  EXPECT_TRUE(used.Add(2, 10));
  EXPECT_FALSE(used.Add(1, 11));
  EXPECT_FALSE(used.Add(2, 11));
}

TEST(UsedNames, NamesAreBoundedAndNewcomersAreStillTaken) {
  UsedNames used;
  for (uint64_t name = 0; name < UsedNames::kMost + 10; ++name) {
    ASSERT_TRUE(used.Add(name, 0)) << name;
  }
  EXPECT_FALSE(used.Add(0, 0));
}

TEST(UsedNames, OfSeveralThreadsOneIsTheFirst) {
  constexpr uint64_t kNames = 1000;
  UsedNames used;
  std::atomic<uint64_t> taken{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (uint64_t name = 0; name < kNames; ++name) taken += used.Add(name, 0) ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(taken, kNames);
}

}  // namespace used_names_test
}  // namespace sluice::cm
