// SPDX-License-Identifier: Apache-2.0
//
// LargeMemory over a table that registers nothing, with commands that run when the test says so.
#include "transport/endpoint/large_memory.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <map>
#include <utility>
#include <vector>

#include "transport/verbs/verbs_api.h"

namespace sluice::endpoint {
namespace large_memory_test {

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kKiB64 = 64 << 10;
constexpr uint64_t kAnn = 1;
constexpr uint64_t kBob = 2;
constexpr uint64_t kCat = 3;

// Registrations that are there, with the access that was asked for.
std::map<void*, int> registered;
bool refuse = false;

verbs::VerbsApi Table() {
  verbs::VerbsApi table = {};
  table.reg_mr = [](ibv_pd* pd, void* address, size_t bytes, int access) -> ibv_mr* {
    static uint32_t key = 0;
    errno = ENOMEM;
    if (refuse) return nullptr;
    registered[address] = access;
    ++key;
    return new ibv_mr{.pd = pd, .addr = address, .length = bytes, .lkey = key, .rkey = key};
  };
  table.dereg_mr = [](ibv_mr* mr) {
    registered.erase(mr->addr);
    delete mr;
    return 0;
  };
  return table;
}

class HeldCommands final : public poller::Commands {
 public:
  void Submit(Work work, Work done) override {
    items_.emplace_back(std::move(work), std::move(done));
  }
  int Drain() override {
    int count = 0;
    for (auto& [work, done] : std::exchange(items_, {})) {
      work();
      done();
      ++count;
    }
    return count;
  }
  void Finish() override { items_.clear(); }
  int fd() const override { return -1; }

 private:
  std::vector<std::pair<Work, Work>> items_;
};

class LargeMemoryTest : public testing::Test {
 protected:
  LargeMemoryTest() { refuse = false; }
  ~LargeMemoryTest() override { Drain(); }

  void Drain() {
    while (commands_.Drain() != 0) {
    }
  }
  // Registered, if there was room.
  uint32_t Take(uint64_t owner, uint64_t bytes) {
    const uint32_t number = memory_.Take(owner, bytes);
    Drain();
    return number;
  }

  const verbs::VerbsApi table_ = Table();
  HeldCommands commands_;
  std::vector<std::pair<uint32_t, absl::Status>> ready_;
  int room_ = 0;
  LargeMemory memory_{
      table_,
      nullptr,
      commands_,
      4 * kMiB,
      IBV_ACCESS_LOCAL_WRITE,
      {.ready = [this](uint32_t number,
                       const absl::Status& status) { ready_.emplace_back(number, status); },
       .room = [this] { ++room_; }}};
};

TEST_F(LargeMemoryTest, IsThereAtOnceAndReadyLater) {
  const uint32_t number = memory_.Take(kAnn, kMiB);
  memory_.data(number)[kMiB - 1] = std::byte{1};
  EXPECT_FALSE(memory_.ready(number));
  EXPECT_EQ(memory_.bytes(), kMiB);
  Drain();
  EXPECT_TRUE(memory_.ready(number));
  ASSERT_EQ(ready_.size(), 1u);
  EXPECT_EQ(ready_[0].first, number);
  EXPECT_TRUE(ready_[0].second.ok());
  EXPECT_EQ(registered.at(memory_.data(number)), IBV_ACCESS_LOCAL_WRITE);
  memory_.Discard(number);
}

TEST_F(LargeMemoryTest, WhatIsKeptIsItsOwnersAlone) {
  const uint32_t number = Take(kAnn, kMiB);
  memory_.Give(number);
  EXPECT_EQ(memory_.kept(), 1u);
  const uint32_t other = Take(kBob, kMiB);
  EXPECT_NE(other, number);
  EXPECT_EQ(memory_.owner(other), kBob);
  EXPECT_EQ(Take(kAnn, kMiB - 1000), number);
  EXPECT_EQ(ready_.size(), 2u) << "it was registered already";
  memory_.Discard(number);
  memory_.Discard(other);
}

TEST_F(LargeMemoryTest, TheWarmestOfThoseKeptIsTaken) {
  const uint32_t first = Take(kAnn, kMiB);
  const uint32_t second = Take(kAnn, kMiB);
  memory_.Give(first);
  memory_.Give(second);
  EXPECT_EQ(Take(kAnn, kMiB), second);
  EXPECT_EQ(Take(kAnn, kMiB), first);
  memory_.Discard(first);
  memory_.Discard(second);
}

TEST_F(LargeMemoryTest, ABufferThatIsMuchTooLargeIsLeftForOthers) {
  const uint32_t large = Take(kAnn, kMiB);
  memory_.Give(large);
  const uint32_t small = Take(kAnn, kMiB / 8);
  EXPECT_NE(small, large);
  EXPECT_EQ(Take(kAnn, kMiB / 4), large);
  memory_.Discard(large);
  memory_.Discard(small);
}

TEST_F(LargeMemoryTest, WhatIsKeptMakesRoomTheEldestFirstAndNoMoreThanIsNeeded) {
  const uint32_t first = Take(kAnn, kMiB);
  const uint32_t second = Take(kAnn, kMiB);
  const uint32_t third = Take(kCat, kMiB);
  const void* const eldest = memory_.data(first);
  const void* const younger = memory_.data(second);
  for (const uint32_t number : {first, second, third}) memory_.Give(number);
  room_ = 0;
  EXPECT_EQ(memory_.Take(kBob, 2 * kMiB), LargeMemory::kNone);
  EXPECT_EQ(room_, 0) << "it is on its way out still";
  EXPECT_EQ(memory_.bytes(), 3 * kMiB);
  Drain();
  EXPECT_EQ(room_, 1);
  EXPECT_EQ(memory_.bytes(), 2 * kMiB);
  EXPECT_FALSE(registered.contains(const_cast<void*>(eldest)));
  EXPECT_TRUE(registered.contains(const_cast<void*>(younger)));
  const uint32_t bobs = Take(kBob, 2 * kMiB);
  ASSERT_LT(bobs, LargeMemory::kFailed);
  memory_.Discard(bobs);
  memory_.Forget(kAnn);
  memory_.Forget(kCat);
  Drain();
  EXPECT_EQ(memory_.bytes(), 0u);
  EXPECT_TRUE(registered.empty());
}

TEST_F(LargeMemoryTest, AKeyIsRevokedBeforeItsNumberIsUsedAgain) {
  const uint32_t number = Take(kAnn, kMiB);
  memory_.Discard(number);
  const uint32_t other = memory_.Take(kBob, kMiB);
  EXPECT_NE(other, number);
  Drain();
  EXPECT_EQ(registered.size(), 1u);
  EXPECT_EQ(memory_.bytes(), kMiB);
  memory_.Discard(other);
}

// Commands may be at work on it: it goes when that has ended, and nobody is told that it is ready.
TEST_F(LargeMemoryTest, DiscardedWhileItIsRegistered) {
  const uint32_t number = memory_.Take(kAnn, kMiB);
  memory_.Discard(number);
  EXPECT_NE(memory_.data(number), nullptr);
  Drain();
  EXPECT_TRUE(ready_.empty());
  EXPECT_EQ(memory_.bytes(), 0u);
  EXPECT_EQ(room_, 1);
  EXPECT_TRUE(registered.empty());
}

TEST_F(LargeMemoryTest, GivenBackBeforeItIsReadyItIsNotKept) {
  const uint32_t number = memory_.Take(kAnn, kMiB);
  memory_.Give(number);
  EXPECT_EQ(memory_.kept(), 0u);
  Drain();
  EXPECT_EQ(memory_.bytes(), 0u);
}

TEST_F(LargeMemoryTest, MemoryThatTheDeviceRefusesIsToldAndNotKept) {
  refuse = true;
  const uint32_t number = Take(kAnn, kMiB);
  ASSERT_EQ(ready_.size(), 1u);
  EXPECT_FALSE(ready_[0].second.ok());
  EXPECT_FALSE(memory_.ready(number));
  memory_.Give(number);
  EXPECT_EQ(memory_.kept(), 0u);
  Drain();
  EXPECT_EQ(memory_.bytes(), 0u);
}

TEST_F(LargeMemoryTest, OneOwnerIsForgottenTheOthersStay) {
  const uint32_t anns = Take(kAnn, kMiB);
  const uint32_t bobs = Take(kBob, kMiB);
  memory_.Give(anns);
  memory_.Give(bobs);
  memory_.Forget(kAnn);
  Drain();
  EXPECT_EQ(memory_.kept(), 1u);
  EXPECT_EQ(memory_.bytes(), kMiB);
  EXPECT_EQ(Take(kBob, kMiB), bobs);
  memory_.Discard(bobs);
}

// Half of what the others leave; what comes back counts no more, kept or not.
TEST_F(LargeMemoryTest, AnOwnerHasItsShareAndNoMore) {
  const uint32_t first = Take(kAnn, kMiB);
  const uint32_t second = Take(kAnn, kMiB);
  ASSERT_LT(second, LargeMemory::kOverShare);
  EXPECT_EQ(Take(kAnn, kKiB64), LargeMemory::kOverShare);
  const uint32_t bobs = Take(kBob, kMiB);
  ASSERT_LT(bobs, LargeMemory::kOverShare) << "there is room for others";
  EXPECT_EQ(Take(kBob, kMiB), LargeMemory::kOverShare) << "half of two";
  memory_.Discard(second);
  EXPECT_EQ(Take(kAnn, kMiB), LargeMemory::kOverShare) << "half of three: Bob has one";
  const uint32_t third = Take(kAnn, kMiB / 2);
  ASSERT_LT(third, LargeMemory::kOverShare);
  memory_.Give(first);
  EXPECT_EQ(Take(kAnn, kMiB), first);
  EXPECT_EQ(Take(kAnn, kKiB64), LargeMemory::kOverShare) << "what was kept counts again";
  memory_.Give(first);
  const uint32_t again = Take(kAnn, kMiB / 2);
  ASSERT_LT(again, LargeMemory::kOverShare);
  for (const uint32_t number : {third, again, bobs}) memory_.Discard(number);
  memory_.Forget(kAnn);
  Drain();
  EXPECT_EQ(memory_.bytes(), 0u);
}

TEST_F(LargeMemoryTest, OneBufferIsNobodysShareTooMuch) {
  const uint32_t bobs = Take(kBob, kMiB);
  const uint32_t anns = Take(kAnn, 3 * kMiB);
  ASSERT_LT(anns, LargeMemory::kOverShare);
  memory_.Discard(anns);
  memory_.Discard(bobs);
}

// What was kept for it is too large for its share then; what it asks for is not.
TEST_F(LargeMemoryTest, WhatIsKeptForAnOwnerIsOfItsShareToo) {
  const uint32_t large = Take(kAnn, 2 * kMiB);
  EXPECT_EQ(Take(kAnn, kKiB64), LargeMemory::kOverShare);
  memory_.Give(large);
  const uint32_t first = Take(kAnn, kMiB / 4);
  const uint32_t second = Take(kAnn, kMiB / 2);
  ASSERT_LT(first, LargeMemory::kOverShare);
  ASSERT_LT(second, LargeMemory::kOverShare);
  EXPECT_NE(second, large);
  EXPECT_EQ(Take(kAnn, 2 * kMiB), LargeMemory::kOverShare);
  EXPECT_EQ(memory_.kept(), 1u);
  memory_.Discard(first);
  memory_.Discard(second);
  memory_.Forget(kAnn);
}

TEST_F(LargeMemoryTest, EverybodyHasNoShare) {
  const uint32_t first = Take(LargeMemory::kEverybody, 2 * kMiB);
  const uint32_t second = Take(LargeMemory::kEverybody, 2 * kMiB);
  ASSERT_LT(second, LargeMemory::kOverShare);
  EXPECT_EQ(Take(LargeMemory::kEverybody, kMiB), LargeMemory::kNone);
  memory_.Discard(first);
  memory_.Discard(second);
}

// An eighth is lost at most, of small ones less than 64 KiB; never more than there may be.
TEST_F(LargeMemoryTest, SizesAreRoundedUp) {
  for (const auto& [bytes, size] : {std::pair<uint64_t, uint64_t>{1, kKiB64},
                                    {kKiB64 + 1, 2 * kKiB64},
                                    {kMiB + 1, kMiB + 2 * kKiB64},
                                    {4 * kMiB, 4 * kMiB}}) {
    const uint32_t number = Take(kAnn, bytes);
    EXPECT_EQ(memory_.bytes(), size) << bytes;
    memory_.Discard(number);
    Drain();
  }
}

}  // namespace large_memory_test
}  // namespace sluice::endpoint
