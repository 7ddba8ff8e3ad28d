// SPDX-License-Identifier: Apache-2.0
//
// Seeds of the simulation that failed once, with what had been wrong.
#include "gtest/gtest.h"
#include "tests/simulation/plan.h"
#include "tests/simulation/run.h"

namespace sluice::simulation {
namespace {

void ExpectOk(uint64_t seed, uint64_t messages) {
  // They were found before plans had late things.
  const Plan plan =
      MakePlan({.seed = seed, .messages = messages, .faults = FaultSet::kAll, .late = false});
  const Result result = RunPlan(plan);
  for (const Violation& one : result.violations) {
    ADD_FAILURE() << ToString(plan) << one.invariant << ": " << one.what << "\n" << result.trail;
  }
}

// The message that used the last credit stood unsignalled in a DCI that was dead in RTS: nothing was owed,
// so nobody watched.
TEST(Seed, DeadDciThatOwesNothing) { ExpectOk(147, 20'000); }

// The same, with the peers waiting for each other: only a request that nobody had asked about stood there.
TEST(Seed, DeadDciWhosePeersWaitForEachOther) { ExpectOk(11, 4'000); }

// The request that failed was keepalive's question.
TEST(Seed, QuestionForASignOfLifeIsLost) { ExpectOk(33, 20'000); }

// A peer had left a DCI with its last messages unsignalled; it was asked for a report, which went the way that it goes
// now, and nobody else used that DCI: two send buffers were never free again.
TEST(Seed, TailOfAPeerThatWentAnotherWay) { ExpectOk(189, 20'000); }

// Without streams a peer had gone from one DCI to the next, and left so many messages behind on those before, none of which
// anybody had asked for, that they alone were its cap: it could neither post nor leave, and nobody asked for them.
TEST(Seed, TailsOnDcisThatItLeftAreNotItsCap) {
  Plan plan = MakePlan({.seed = 600'044, .messages = 100'000, .faults = FaultSet::kAll});
  ASSERT_GT(plan.faults.size(), 57u);
  plan.stop_after = 70'313;
  plan.faults = {plan.faults[37], plan.faults[57]};
  const Result result = RunPlan(plan);
  for (const Violation& one : result.violations) {
    ADD_FAILURE() << ToString(plan) << one.invariant << ": " << one.what << "\n" << result.trail;
  }
}

}  // namespace
}  // namespace sluice::simulation
