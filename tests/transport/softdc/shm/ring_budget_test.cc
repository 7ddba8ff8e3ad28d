// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/shm/ring_budget.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace sluice::softdc::shm {
namespace ring_budget_test {

constexpr uint32_t kOfTheDeepestCq = 2 << 16;  // Cq asks for twice its depth, at most 65,536

TEST(RingBudgetTest, TwoThousandSendersToTheDeepestCqStayUnder256MiB) {
  RingBudget budget;
  uint64_t bytes = 0;
  for (int sender = 0; sender < 2000; ++sender) {
    bytes += RingBudget::Bytes(budget.Take(kOfTheDeepestCq));
  }
  EXPECT_LT(bytes, uint64_t{256} << 20);
}

TEST(RingBudgetTest, FewSendersGetAllTheyWantAndNobodyLessThanANarrowRing) {
  RingBudget budget;
  EXPECT_EQ(budget.Take(kOfTheDeepestCq), kOfTheDeepestCq);
  EXPECT_EQ(budget.Take(kOfTheDeepestCq), kOfTheDeepestCq);
  EXPECT_EQ(budget.Take(8), 8u);
  uint32_t last = kOfTheDeepestCq;
  for (int sender = 0; sender < 500; ++sender) {
    const uint32_t capacity = budget.Take(kOfTheDeepestCq);
    EXPECT_TRUE(internal::ValidCqeRingCapacity(capacity));
    EXPECT_LE(capacity, last);
    EXPECT_GE(capacity, kNarrowCapacity);
    last = capacity;
  }
  EXPECT_EQ(last, kNarrowCapacity);
}

TEST(RingBudgetTest, WhatIsGivenBackIsHadAgain) {
  RingBudget budget;
  std::vector<uint32_t> taken;
  for (int sender = 0; sender < 2000; ++sender) taken.push_back(budget.Take(kOfTheDeepestCq));
  for (const uint32_t capacity : taken) budget.GiveBack(capacity);
  EXPECT_EQ(budget.Take(kOfTheDeepestCq), kOfTheDeepestCq);
}

}  // namespace ring_budget_test
}  // namespace sluice::softdc::shm
