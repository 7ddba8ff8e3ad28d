// SPDX-License-Identifier: Apache-2.0
#include "transport/lane/watch.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "gtest/gtest.h"

namespace sluice::lane {
namespace watch_test {

constexpr uint32_t kSlots = 4;
constexpr uint32_t kSlotBytes = 128;

struct alignas(kBlockBytes) Block {
  std::byte bytes[kBlockBytes] = {};
};

// A lane of its own into which a test writes stamps.
struct Lane : Watch::Seat {
  explicit Lane(uint32_t value)
      : memory(kSlots),
        reader({Layout::kWhole, kSlots, kSlotBytes}, memory[0].bytes, value, /*in_order=*/true) {}

  void Arrive() { *const_cast<uint64_t*>(reader.stamp()) = Stamp(reader.value(), 8); }

  std::vector<Block> memory;
  Reader reader;
  uint32_t visits = 0;
  uint32_t reports = 0;
};

class WatchTest : public testing::Test {
 protected:
  Lane& Add() {
    lanes_.push_back(std::make_unique<Lane>(static_cast<uint32_t>(100 * lanes_.size() + 1)));
    watch_.Join(lanes_.back().get(), lanes_.back()->reader);
    return *lanes_.back();
  }
  // A pass that takes what is there.
  int Pass(const std::function<void(Lane&)>& meanwhile = [](Lane&) {}) {
    return watch_.Look(
        [&](Watch::Seat* seat) {
          auto& lane = static_cast<Lane&>(*seat);
          ++lane.visits;
          lane.reader.Take();
          watch_.Moved(lane);
          meanwhile(lane);
          return 1;
        },
        [](Watch::Seat* seat) { ++static_cast<Lane*>(seat)->reports; });
  }
  void Passes(uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) Pass();
  }

  Watch watch_;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

TEST_F(WatchTest, WhatIsReadyIsVisitedOnceForEachMessage) {
  Lane& a = Add();
  Lane& b = Add();
  EXPECT_EQ(Pass(), 0);
  b.Arrive();
  EXPECT_EQ(Pass(), 1);
  EXPECT_EQ(b.visits, 1u);
  EXPECT_EQ(Pass(), 0) << "it was taken";
  for (int i = 0; i < 10; ++i) {
    a.Arrive();
    b.Arrive();
    EXPECT_EQ(Pass(), 2);
  }
  EXPECT_EQ(a.visits, 10u);
  EXPECT_EQ(b.visits, 11u);
}

TEST_F(WatchTest, AnIdleOneIsLookedAtInOnePassOfSixteen) {
  Lane& busy = Add();
  Lane& idle = Add();
  for (uint32_t i = 0; i < 2 * Watch::kSweepPasses; ++i) {
    busy.Arrive();
    Pass();
  }
  EXPECT_EQ(watch_.often(), 1u);
  EXPECT_EQ(watch_.size(), 2u);
  idle.Arrive();
  uint32_t passes = 0;
  while (idle.visits == 0) {
    Pass();
    ASSERT_LE(++passes, Watch::kSeldomPasses);
  }
  EXPECT_GT(passes, 1u);
  // And at once in each, since it is busy again.
  Pass();
  EXPECT_EQ(watch_.often(), 2u);
  idle.Arrive();
  EXPECT_EQ(Pass(), 1);
}

TEST_F(WatchTest, OneThatIsIdleForLongIsReportedAndNobodyElse) {
  Lane& busy = Add();
  Lane& idle = Add();
  for (uint32_t i = 0; i < (Watch::kIdleSweeps - 1) * Watch::kSweepPasses; ++i) {
    if (i % 1000 == 0) busy.Arrive();
    Pass();
  }
  EXPECT_EQ(idle.reports, 0u);
  for (uint32_t i = 0; i < 2 * Watch::kSweepPasses; ++i) {
    if (i % 1000 == 0) busy.Arrive();
    Pass();
  }
  EXPECT_GT(idle.reports, 0u);
  EXPECT_EQ(busy.reports, 0u);
}

TEST_F(WatchTest, WhoIsVisitedMayLeaveAndTakeOthersAlong) {
  Lane& a = Add();
  Lane& b = Add();
  Lane& c = Add();
  a.Arrive();
  b.Arrive();
  c.Arrive();
  EXPECT_EQ(Pass([&](Lane& lane) {
              if (&lane != &a) return;
              watch_.Leave(&a);
              watch_.Leave(&b);
            }),
            2);
  EXPECT_EQ(b.visits, 0u);
  EXPECT_FALSE(a.watched());
  Pass();
  EXPECT_EQ(watch_.size(), 1u);
  watch_.Join(&b, b.reader);
  EXPECT_EQ(Pass(), 1) << "its message is still there";
  c.Arrive();
  EXPECT_EQ(Pass(), 1) << "places moved, seats know theirs";
}

TEST_F(WatchTest, WhoStaysKnowsItsPlaceAfterOthersHaveLeft) {
  Lane& a = Add();
  Lane& b = Add();
  Lane& c = Add();
  watch_.Leave(&a);
  for (int i = 0; i < 5; ++i) {
    b.Arrive();
    c.Arrive();
    EXPECT_EQ(Pass(), 2);
  }
}

TEST_F(WatchTest, WhoIsVisitedMayBringOthers) {
  Lane& a = Add();
  a.Arrive();
  EXPECT_EQ(Pass([&](Lane& lane) {
              if (&lane != &a) return;
              for (int i = 0; i < 100; ++i) Add().Arrive();
            }),
            1);
  EXPECT_EQ(Pass(), 100);
}

TEST_F(WatchTest, APassInsideAPassDoesNothing) {
  Lane& a = Add();
  Lane& b = Add();
  a.Arrive();
  b.Arrive();
  EXPECT_EQ(Pass([&](Lane&) { EXPECT_EQ(Pass(), 0); }), 2);
}

TEST_F(WatchTest, JoiningTwiceAndLeavingTwiceAreOnce) {
  Lane& a = Add();
  watch_.Join(&a, a.reader);
  EXPECT_EQ(watch_.size(), 1u);
  watch_.Leave(&a);
  watch_.Leave(&a);
  EXPECT_TRUE(watch_.empty());
  EXPECT_EQ(Pass(), 0);
}

}  // namespace watch_test
}  // namespace sluice::lane
