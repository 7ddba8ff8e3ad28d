// SPDX-License-Identifier: Apache-2.0
//
// A few short runs of whole nodes; ./dev simulate makes long ones of the same kind.
#include "tests/simulation/run.h"

#include <dirent.h>

#include <algorithm>

#include "gtest/gtest.h"

namespace sluice::simulation {
namespace run_test {

constexpr uint64_t kSeeds = 12;
constexpr uint64_t kMessages = 4'000;

std::string Explain(const Plan& plan, const Result& result) {
  std::string text = ToString(plan);
  for (const Violation& one : result.violations) text += one.invariant + ": " + one.what + "\n";
  return text + result.trail;
}

int OpenDescriptors() {
  DIR* directory = opendir("/proc/self/fd");
  int count = 0;
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

class RunTest : public ::testing::TestWithParam<FaultSet> {};

TEST_P(RunTest, SeedsOfAKind_KeepAllInvariantsAndEndAtRest) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Plan plan = MakePlan({.seed = seed, .messages = kMessages, .faults = GetParam()});
    const Result result = RunPlan(plan);
    EXPECT_TRUE(result.ok()) << Explain(plan, result);
    EXPECT_GE(result.messages, kMessages);
  }
}

TEST_P(RunTest, SameSeedTwice_IsTheSameRunAndKeepsNothingOpen) {
  for (uint64_t seed = 5; seed <= 7; ++seed) {
    const Plan plan = MakePlan({.seed = seed, .messages = 1'000, .faults = GetParam()});
    const Result once = RunPlan(plan);
    const int open_before = OpenDescriptors();
    const Result twice = RunPlan(plan);
    // Commands that a killed process had not carried out keep theirs.
    if (GetParam() == FaultSet::kNone) {
      EXPECT_EQ(OpenDescriptors(), open_before);
    }
    EXPECT_EQ(once.digest, twice.digest);
    EXPECT_EQ(once.events, twice.events);
    EXPECT_EQ(once.virtual_ns, twice.virtual_ns);
  }
}

// Hosts with RC queue pairs, and a network of hosts with DC and hosts with RC.
class DeviceKindTest : public ::testing::TestWithParam<DeviceKind> {};

TEST_P(DeviceKindTest, SeedsOfAKind_KeepAllInvariantsAndEndAtRest) {
  uint64_t downs = 0;
  for (const FaultSet faults : {FaultSet::kNone, FaultSet::kHarmless, FaultSet::kAll}) {
    for (uint64_t seed = 1; seed <= kSeeds / 2; ++seed) {
      const Plan plan =
          MakePlan({.seed = seed, .messages = kMessages, .faults = faults, .device = GetParam()});
      const Result result = RunPlan(plan);
      EXPECT_TRUE(result.ok()) << Explain(plan, result);
      EXPECT_GE(result.messages, kMessages);
      downs += result.peers_down;
    }
  }
  EXPECT_GT(downs, 0u);
}

TEST_P(DeviceKindTest, ProgramsThatDisconnectInsideCallbacks_EndAtRest) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    const Plan plan =
        MakePlan({.seed = seed, .messages = 2'000, .leaves = true, .device = GetParam()});
    const Result result = RunPlan(plan);
    EXPECT_TRUE(result.ok()) << Explain(plan, result);
  }
}

TEST(DeviceKindPlan, MixedHasHostsOfBothKindsAndPairsThatMustBeRefused) {
  uint64_t unlike = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Plan plan = MakePlan({.seed = seed, .device = DeviceKind::kMixed});
    EXPECT_GE(std::count(plan.rc.begin(), plan.rc.end(), true), 2);
    EXPECT_GE(std::count(plan.rc.begin(), plan.rc.end(), false), 2);
    for (const auto& [a, b] : plan.pairs) EXPECT_EQ(plan.rc[a], plan.rc[b]);
    for (const auto& [a, b] : plan.unlike) EXPECT_NE(plan.rc[a], plan.rc[b]);
    unlike += plan.unlike.size();
  }
  EXPECT_GT(unlike, kSeeds);
}

INSTANTIATE_TEST_SUITE_P(Kinds, DeviceKindTest,
                         ::testing::Values(DeviceKind::kRc, DeviceKind::kMixed));

TEST(RunPlanTest, ProgramsDisconnectInsideCallbacks_KeepAllInvariantsAndEndAtRest) {
  uint64_t downs = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Plan plan = MakePlan({.seed = seed, .messages = 2'000, .leaves = true});
    const Result result = RunPlan(plan);
    EXPECT_TRUE(result.ok()) << Explain(plan, result);
    downs += result.peers_down;
  }
  EXPECT_GT(downs, kSeeds);
}

// A request about a lane failed on a send queue that its peer had left, and was not said again: the peer was given up.
TEST(RunPlanTest, ControlMessagesThatAreLostWhereTheirPeerNoLongerIs_AreSaidAgain) {
  const Plan plan = MakePlan({.seed = 33, .messages = 20'000});
  const Result result = RunPlan(plan);
  EXPECT_TRUE(result.ok()) << Explain(plan, result);
}

// The completion queues of a process that was killed and of its successor had one address.
TEST(RunPlanTest, CompletionsToldTwiceToAProcessThatWasKilled_AreNotHeldAgainstTheNext) {
  const Plan plan = MakePlan({.seed = 900494, .messages = 100'000, .device = DeviceKind::kRc});
  const Result result = RunPlan(plan);
  EXPECT_TRUE(result.ok()) << Explain(plan, result);
}

// Pauses of both ends overlapped, and the simulated network changed the order of messages.
TEST(RunPlanTest, PausesThatOverlap_KeepTheOrder) {
  const Plan plan = MakePlan({.seed = 920198, .messages = 100'000, .device = DeviceKind::kRc});
  const Result result = RunPlan(plan);
  EXPECT_TRUE(result.ok()) << Explain(plan, result);
}

TEST(RunPlanTest, OtherSeed_IsAnotherRun) {
  const PlanOptions options{.seed = 5, .messages = 1'000};
  const PlanOptions other{.seed = 6, .messages = 1'000};
  EXPECT_NE(RunPlan(MakePlan(options)).digest, RunPlan(MakePlan(other)).digest);
}

INSTANTIATE_TEST_SUITE_P(Faults, RunTest,
                         ::testing::Values(FaultSet::kNone, FaultSet::kHarmless, FaultSet::kAll));

}  // namespace run_test
}  // namespace sluice::simulation
