// SPDX-License-Identifier: Apache-2.0
//
// Seeds of the simulation that failed once, with what had been wrong.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "tests/simulation/plan.h"
#include "tests/simulation/run.h"

namespace sluice::simulation {
namespace {

// The first ones were found before plans had late things.
void ExpectOk(uint64_t seed, uint64_t messages, bool late = false) {
  const Plan plan =
      MakePlan({.seed = seed, .messages = messages, .faults = FaultSet::kAll, .late = late});
  const Result result = RunPlan(plan);
  for (const Violation& one : result.violations) {
    ADD_FAILURE() << ToString(plan) << one.invariant << ": " << one.what << "\n" << result.trail;
  }
}

// One that was shrunk: so many of its 100,000 messages, and those of its faults.
void ExpectOk(uint64_t seed, uint64_t stop_after, const std::vector<size_t>& faults) {
  Plan plan = MakePlan({.seed = seed, .messages = 100'000, .faults = FaultSet::kAll});
  plan.stop_after = stop_after;
  std::vector<Fault> kept;
  for (const size_t index : faults) {
    ASSERT_LT(index, plan.faults.size());
    kept.push_back(plan.faults[index]);
  }
  plan.faults = kept;
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
TEST(Seed, TailsOnDcisThatItLeftAreNotItsCap) { ExpectOk(600'044, 70'313, {37, 57}); }

// A question for a sign of life stood in a dead DCI for most of the time that there was for its answer.
TEST(Seed, QuestionForASignOfLifeGoesOutLate) {
  ExpectOk(600'088, 82'398, {14, 16, 18, 19, 21, 22, 51, 61, 66, 75, 84});
}

// A lane was lost with its sender's requests, and what had been sent behind messages of that lane arrived late: with nothing to
// wait for it passed for next.
TEST(Seed, SentBehindALaneThatIsLost) { ExpectOk(701'471, 100'000, /*late=*/true); }

// The oracle's own: a process had been killed with a connection's last event unread, and when its remains were cleared away that
// connection was counted as one that lives.
TEST(Seed, ConnectionOfAProcessThatIsDead) {
  ExpectOk(800'531, 75'000, {0, 1, 2, 3, 5, 6, 7, 8, 11, 13, 15, 17, 18, 20, 23, 25, 28, 30, 31});
}

// The plan's own: a failure that is told milliseconds later, and two more before it, are three in a row.
TEST(Seed, FailureThatIsToldLateAndTwoMore) {
  ExpectOk(900'059, 10'255, {1, 2, 3, 5, 6, 7, 8, 9, 10, 12});
}

// The same of an answer to keepalive that stood in a dead DCI, failed, and stood in a second dead DCI.
TEST(Seed, AnswerInTwoDeadDcis) {
  ExpectOk(910'639, 75'000, {41, 42, 43, 45, 46, 48, 49, 50, 51, 52, 54, 57, 60, 72, 85});
}

// And of one that waited until its host went on, and then stood in a dead DCI.
TEST(Seed, AnswerThatIsLateAndInADeadDci) {
  ExpectOk(1'323'482, 75'000, {22, 23, 25, 26, 30, 31, 33, 34, 35, 39, 49, 50, 59, 60, 61});
}

// The oracle's again: a host that stood still found a connection, its messages and its end all at once, of a process that had
// died long before.
TEST(Seed, ConnectionThatCameUpAfterItsPeersDeath) {
  ExpectOk(912'404, 100'000, {29, 31, 32, 44, 46, 50, 51, 52, 53, 54, 57, 61, 62, 67, 69});
}

// After an error a report and the answer that ends a handshake went out together. The report's completion ended the peer's probation,
// and the first message left by another DCI and overtook the answer: it was dropped, and the second came first.
TEST(Seed, MessageThatOvertakesTheAnswer) {
  ExpectOk(1'300'174, 12'500, {0, 1, 3, 5, 6, 7, 8, 11, 12, 13, 14});
}

}  // namespace
}  // namespace sluice::simulation
