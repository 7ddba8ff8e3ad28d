// SPDX-License-Identifier: Apache-2.0
//
// Memory in other hands: free when it is neither held nor lent, whoever gives it back, and whoever goes first.
#include "transport/endpoint/held_memory.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace sluice::endpoint {
namespace held_memory_test {

class HeldMemoryTest : public testing::Test {
 protected:
  HeldMemory Hold(uint32_t number, bool lent = false) {
    return holds_->Hold(memory_, sizeof(memory_), number, /*owner=*/7, lent);
  }
  std::vector<uint32_t> Collect() {
    std::vector<uint32_t> free;
    if (holds_->changed()) holds_->Collect([&](uint32_t number) { free.push_back(number); });
    return free;
  }
  using Numbers = std::vector<uint32_t>;

  std::byte memory_[16] = {};
  int woken_ = 0;
  std::optional<Holds> holds_{std::in_place, [this] { ++woken_; }};
};

TEST_F(HeldMemoryTest, IsFreeWhenItsHolderHasHadEnough) {
  {
    const HeldMemory memory = Hold(3);
    EXPECT_EQ(memory.data(), memory_);
    EXPECT_EQ(memory.bytes(), 16u);
    EXPECT_EQ(memory.number(), 3u);
    EXPECT_EQ(memory.owner(), 7u);
    EXPECT_EQ(holds_->bytes(), 16u);
    EXPECT_EQ(Collect(), Numbers{});
  }
  EXPECT_TRUE(holds_->changed());
  EXPECT_EQ(Collect(), Numbers{3});
  EXPECT_EQ(Collect(), Numbers{}) << "once";
  EXPECT_EQ(holds_->bytes(), 0u);
}

TEST_F(HeldMemoryTest, GoesBackOnceHoweverItIsMoved) {
  HeldMemory first = Hold(1);
  HeldMemory second = std::move(first);
  EXPECT_FALSE(first);
  first = Hold(2);
  second = std::move(first);
  EXPECT_EQ(Collect(), Numbers{1});
  second.Reset();
  second.Reset();
  EXPECT_EQ(Collect(), Numbers{2});
}

TEST_F(HeldMemoryTest, IsNotFreeWhileItIsLent) {
  HeldMemory memory = Hold(3, /*lent=*/true);
  memory.Reset();
  EXPECT_EQ(Collect(), Numbers{});
  EXPECT_FALSE(holds_->EndLoan(3)) << "nobody holds it: free";
  EXPECT_EQ(holds_->bytes(), 0u);
  memory = Hold(4, /*lent=*/true);
  EXPECT_TRUE(holds_->EndLoan(4)) << "somebody holds it";
  memory.Reset();
  EXPECT_EQ(Collect(), Numbers{4});
}

TEST_F(HeldMemoryTest, IsLentOnceAtATimeAndByItsOwnEndpoint) {
  Holds others([] {});
  HeldMemory memory = Hold(3);
  EXPECT_FALSE(others.Owns(memory));
  EXPECT_FALSE(others.Lend(memory));
  EXPECT_TRUE(holds_->Owns(memory));
  EXPECT_TRUE(holds_->Lend(memory));
  EXPECT_FALSE(holds_->Lend(memory));
  EXPECT_TRUE(holds_->EndLoan(3));
  EXPECT_TRUE(holds_->Lend(memory));
  EXPECT_TRUE(holds_->EndLoan(3));
  EXPECT_FALSE(holds_->EndLoan(99)) << "never held";
}

TEST_F(HeldMemoryTest, KnowsWhatIsOfAPeer) {
  const HeldMemory one = Hold(1);
  const HeldMemory two = holds_->Hold(memory_, 1, 2, /*owner=*/8, false);
  Numbers of;
  holds_->ForEachOf(8, [&](uint32_t number) { of.push_back(number); });
  EXPECT_EQ(of, Numbers{2});
}

TEST_F(HeldMemoryTest, WakesASleeperOnceAndNobodyElse) {
  HeldMemory one = Hold(1);
  HeldMemory two = Hold(2);
  HeldMemory three = Hold(3);
  HeldMemory four = Hold(4);
  one.Reset();
  EXPECT_EQ(woken_, 0) << "nobody sleeps";
  EXPECT_FALSE(holds_->PrepareToSleep()) << "some has come back";
  EXPECT_EQ(Collect(), Numbers{1});
  EXPECT_TRUE(holds_->PrepareToSleep());
  two.Reset();
  EXPECT_EQ(woken_, 1);
  three.Reset();
  EXPECT_EQ(woken_, 1);
}

TEST_F(HeldMemoryTest, OutlivesItsEndpoint) {
  auto kept = std::make_shared<int>(5);
  HeldMemory memory = Hold(3);
  EXPECT_TRUE(holds_->PrepareToSleep());
  holds_->Leave([&](uint32_t number) {
    EXPECT_EQ(number, 3u);
    return kept;
  });
  holds_.reset();
  EXPECT_EQ(kept.use_count(), 2) << "the memory stays";
  memory.Reset();
  EXPECT_EQ(kept.use_count(), 1);
  EXPECT_EQ(woken_, 0);
}

TEST_F(HeldMemoryTest, ComesBackFromEveryThread) {
  constexpr uint32_t kThreads = 4;
  constexpr uint32_t kEach = 200;
  std::vector<std::vector<HeldMemory>> shares(kThreads);
  for (uint32_t i = 0; i < kThreads * kEach; ++i) shares[i % kThreads].push_back(Hold(i));
  std::vector<std::thread> threads;
  for (auto& share : shares) {
    threads.emplace_back([mine = std::move(share)]() mutable { mine.clear(); });
  }
  uint32_t free = 0;
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (free < kThreads * kEach && std::chrono::steady_clock::now() < give_up) {
    free += static_cast<uint32_t>(Collect().size());
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(free, kThreads * kEach);
  EXPECT_EQ(Collect(), Numbers{});
}

}  // namespace held_memory_test
}  // namespace sluice::endpoint
