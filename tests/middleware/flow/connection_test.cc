// SPDX-License-Identifier: Apache-2.0
#include "middleware/flow/connection.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <random>
#include <utility>

#include "gtest/gtest.h"

namespace sluice::flow {
namespace connection_test {

TEST(UnderWayTest, MessagesOfOneFlowInARowAreOneRun) {
  UnderWay under_way;
  for (int i = 0; i < 3; ++i) under_way.Push(1, 7);
  under_way.Push(kNone, 0);
  under_way.Push(1, 8);  // another flow in the same place
  under_way.Push(1, 7);
  EXPECT_EQ(under_way.size(), 6u);
  const auto expect = [&](uint32_t most, uint32_t index, uint32_t generation, uint32_t messages) {
    const UnderWay::Run run = under_way.Pop(most);
    EXPECT_EQ(run.index, index);
    EXPECT_EQ(run.generation, generation);
    EXPECT_EQ(run.messages, messages);
  };
  expect(2, 1, 7, 2);
  expect(100, 1, 7, 1);
  expect(100, kNone, 0, 1);
  expect(1, 1, 8, 1);
  expect(1, 1, 7, 1);
  EXPECT_EQ(under_way.size(), 0u);
}

// Compares with a list of single messages.
TEST(UnderWayTest, GivesBackWhatWasPushedInItsOrder) {
  std::mt19937 random(1);
  UnderWay under_way;
  std::deque<std::pair<uint32_t, uint32_t>> model;
  size_t longest = 0;
  for (int step = 0; step < 20'000; ++step) {
    if (random() % 8 < (step / 1000 % 2 == 0 ? 5 : 3)) {
      const uint32_t index = random() % 3 == 0 ? kNone : random() % 2;
      const uint32_t generation = index == kNone ? 0 : 1 + random() % 2;
      under_way.Push(index, generation);
      model.emplace_back(index, generation);
    } else if (!model.empty()) {
      const uint32_t most = 1 + random() % 4;
      const UnderWay::Run run = under_way.Pop(most);
      ASSERT_GE(run.messages, 1u);
      ASSERT_LE(run.messages, most);
      for (uint32_t i = 0; i < run.messages; ++i) {
        ASSERT_FALSE(model.empty());
        ASSERT_EQ(model.front(), std::pair(run.index, run.generation));
        model.pop_front();
      }
    }
    ASSERT_EQ(under_way.size(), model.size());
    longest = std::max(longest, model.size());
  }
  EXPECT_GT(longest, 200u) << "the ring has grown";
}

}  // namespace connection_test
}  // namespace sluice::flow
