// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/sim/event_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "transport/softdc/sim/random.h"

namespace sluice::softdc::sim {
namespace event_queue_test {

TEST(EventQueueTest, ScheduleAtRunsInOrderOfTimeThenOfScheduling) {
  EventQueue queue(/*start_ns=*/1000);
  std::vector<std::pair<int64_t, int>> expected;
  std::vector<int> order;
  Random random(7);
  for (int i = 0; i < 5000; ++i) {
    const auto when_ns = static_cast<int64_t>(1000 + random.Below(200));
    expected.emplace_back(when_ns, i);
    queue.ScheduleAt(when_ns, [&order, i] { order.push_back(i); });
  }
  std::stable_sort(expected.begin(), expected.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [when_ns, i] : expected) {
    ASSERT_TRUE(queue.Step());
    ASSERT_EQ(queue.now_ns(), when_ns);
    ASSERT_EQ(order.back(), i);
  }
  EXPECT_FALSE(queue.Step());
  EXPECT_EQ(queue.executed(), 5000u);
}

TEST(EventQueueTest, CancelledEventNeverRunsAndGivesItsTaskBack) {
  EventQueue queue(0);
  auto held = std::make_shared<int>(1);
  bool ran = false;
  const uint64_t id = queue.ScheduleAt(10, [held, &ran] { ran = true; });
  EXPECT_EQ(held.use_count(), 2);
  EXPECT_TRUE(queue.Cancel(id));
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_FALSE(queue.Cancel(id));
  EXPECT_EQ(queue.pending(), 0u);
  EXPECT_FALSE(queue.Step());
  EXPECT_FALSE(ran);
}

TEST(EventQueueTest, CancelOfAnIdWhoseSlotIsUsedAgainLeavesTheNewEventAlone) {
  EventQueue queue(0);
  int ran = 0;
  const uint64_t old_id = queue.ScheduleAt(1, [&ran] { ++ran; });
  ASSERT_TRUE(queue.Step());
  queue.ScheduleAt(2, [&ran] { ++ran; });
  EXPECT_FALSE(queue.Cancel(old_id));
  EXPECT_TRUE(queue.Step());
  EXPECT_EQ(ran, 2);
}

TEST(EventQueueTest, StepUntilLeavesLaterEventsAndTheClock) {
  EventQueue queue(5);
  int ran = 0;
  queue.ScheduleAt(100, [&ran] { ++ran; });
  EXPECT_FALSE(queue.StepUntil(99));
  EXPECT_EQ(queue.now_ns(), 5);
  EXPECT_EQ(queue.NextNs(), 100);
  EXPECT_TRUE(queue.StepUntil(100));
  EXPECT_EQ(ran, 1);
  EXPECT_EQ(queue.NextNs(), INT64_MAX);
}

TEST(EventQueueTest, TaskMayScheduleMoreAndThePastIsNow) {
  EventQueue queue(50);
  std::vector<int64_t> times;
  queue.ScheduleAt(60, [&] {
    times.push_back(queue.now_ns());
    queue.ScheduleAt(10, [&] { times.push_back(queue.now_ns()); });
  });
  while (queue.Step()) {
  }
  EXPECT_EQ(times, (std::vector<int64_t>{60, 60}));
}

TEST(RandomTest, SameSeedSameNumbersAndOtherSeedOthers) {
  Random a(1), b(1), c(2);
  bool differs = false;
  for (int i = 0; i < 100; ++i) {
    const uint64_t next = a.Next();
    EXPECT_EQ(next, b.Next());
    differs |= next != c.Next();
  }
  EXPECT_TRUE(differs);
}

TEST(RandomTest, ChanceIsAboutRightAndCertainAtTheEnds) {
  Random random(3);
  int hits = 0;
  for (int i = 0; i < 100'000; ++i) hits += random.Chance(100'000) ? 1 : 0;
  EXPECT_GT(hits, 9'000);
  EXPECT_LT(hits, 11'000);
  EXPECT_FALSE(random.Chance(0));
  EXPECT_TRUE(random.Chance(kMillion));
}

}  // namespace event_queue_test
}  // namespace sluice::softdc::sim
