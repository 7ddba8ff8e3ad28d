// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/shrink.h"

#include <algorithm>

#include "gtest/gtest.h"

namespace sluice::simulation {
namespace shrink_test {

TEST(ShrinkTest, PlanThatFailsBecauseOfTwoFaultsAndAThousandMessages_LosesAllElse) {
  Plan plan;
  for (uint64_t seed = 1; plan.faults.size() < 8; ++seed) plan = MakePlan({.seed = seed});
  const Fault first = plan.faults[2];
  const Fault second = plan.faults[6];
  const auto has = [](const Plan& of, const Fault& fault) {
    return std::find(of.faults.begin(), of.faults.end(), fault) != of.faults.end();
  };
  const Plan least = Shrink(plan, [&](const Plan& smaller) {
    return smaller.stop_after >= 1'000 && has(smaller, first) && has(smaller, second);
  });
  EXPECT_EQ(least.faults.size(), 2u);
  EXPECT_LE(least.stop_after, 1'070u);
  const std::string command = CommandOf(least);
  EXPECT_NE(command.find("--only 2,6"), std::string::npos) << command;
}

TEST(ShrinkTest, PlanThatDoesNotFail_StaysAsItIs) {
  const Plan plan = MakePlan({.seed = 3});
  const Plan least = Shrink(plan, [](const Plan&) { return false; });
  EXPECT_EQ(ToString(least), ToString(plan));
}

}  // namespace shrink_test
}  // namespace sluice::simulation
