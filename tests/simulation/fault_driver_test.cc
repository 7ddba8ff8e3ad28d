// SPDX-License-Identifier: Apache-2.0
//
// What a host is not put to: faults that together end a peer for good reason, and would look like a defect.
#include "tests/simulation/fault_driver.h"

#include <memory>
#include <vector>

#include "gtest/gtest.h"

namespace sluice::simulation {
namespace fault_driver_test {

constexpr int64_t kMs = 1'000'000;
constexpr uint32_t kSent = 1'000;

Plan PlanOf(const std::vector<Fault>& faults) {
  Plan plan = MakePlan({.seed = 1, .messages = 10 * kSent, .faults = FaultSet::kNone});
  plan.faults = faults;
  return plan;
}

// The first two hosts have a connection over which many messages went.
class World {
 public:
  explicit World(const std::vector<Fault>& faults) : scene(PlanOf(faults)) {
    for (uint32_t index = 0; index < scene.plan.network.nodes; ++index) {
      nodes_.push_back(std::make_unique<Node>(scene, index));
      nodes_.back()->Start();
    }
    driver = std::make_unique<FaultDriver>(scene, nodes_);
    first_ = scene.ledger.Up(0, 1);
    second_ = scene.ledger.Up(1, 0);
    for (uint32_t i = 0; i < kSent; ++i) Deliver();
  }
  void Deliver() {
    const uint32_t number = scene.ledger.Sent(first_);
    scene.ledger.Delivered(second_, first_, number);
    scene.ledger.Acknowledged(first_, number + 1);
  }
  // As far as the plan goes with so many messages.
  uint64_t HappenedAfter(uint32_t messages) {
    while (scene.ledger.sent() < messages) Deliver();
    driver->Advance();
    return driver->happened();
  }

  void LosePeer() { scene.ledger.Down(second_, "no sign of life", /*announced=*/false); }
  Node& node(uint32_t index) { return *nodes_[index]; }

  Scene scene;

 private:
  std::vector<std::unique_ptr<Node>> nodes_;
  uint32_t first_ = 0;
  uint32_t second_ = 0;

 public:
  std::unique_ptr<FaultDriver> driver;  // goes first
};

Fault DeadDci(uint32_t node, uint64_t at_message = 0) {
  return {.kind = FaultKind::kDeadDci, .node = node, .at_message = at_message};
}

Fault Stall() { return {.kind = FaultKind::kStall, .node = 0, .length_ns = 10 * kMs}; }
Fault Failure(uint64_t at_message = 0) {
  return {.kind = FaultKind::kRequestError, .node = 0, .peer = 1, .at_message = at_message};
}

TEST(FaultDriver, HostThatStoodStillIsNotGivenADeadDciAtOnce) {
  World world({Stall(), DeadDci(0), DeadDci(1)});
  EXPECT_EQ(world.HappenedAfter(kSent), 2u);  // the third is of another host
}

TEST(FaultDriver, HostWithADeadDciDoesNotStandStillAtOnce) {
  World world({DeadDci(0), Stall()});
  EXPECT_EQ(world.HappenedAfter(kSent), 1u);
}

TEST(FaultDriver, TwoDeadDcisAndAFailureAreTooMuch) {
  World world({DeadDci(0), Failure(), DeadDci(0, kSent + 1)});
  EXPECT_EQ(world.HappenedAfter(kSent), 2u);
  EXPECT_EQ(world.HappenedAfter(kSent + 1), 2u);
}

TEST(FaultDriver, TwoDeadDcisWithoutAFailureAreNot) {
  World world({DeadDci(0), DeadDci(0, kSent + 1)});
  EXPECT_EQ(world.HappenedAfter(kSent), 1u);
  EXPECT_EQ(world.HappenedAfter(kSent + 1), 2u);
}

// Its peers may ask for a sign of life, and do not wait until the DCI is found (docs/decisions/0017).
TEST(FaultDriver, DeadDciMayCostItsHostAnyPeer) {
  for (const bool dies : {false, true}) {
    World world(dies ? std::vector<Fault>{DeadDci(0)} : std::vector<Fault>{});
    EXPECT_EQ(world.HappenedAfter(kSent), dies ? 1u : 0u);
    world.LosePeer();
    EXPECT_EQ(world.scene.ledger.violations().empty(), dies);
  }
}

// A run that breaks an invariant ends in the middle of faults.
TEST(FaultDriver, HostThatHasEndedIsNotStartedAgainWhenItsFaultEnds) {
  constexpr Fault kKill = {.kind = FaultKind::kKill, .node = 0, .length_ns = kMs};
  for (const bool ends : {false, true}) {
    World world({kKill});
    EXPECT_EQ(world.HappenedAfter(kSent), 1u);
    EXPECT_FALSE(world.node(0).running());
    if (ends) world.node(0).End();
    world.scene.simulation->RunFor(2 * kMs);
    EXPECT_EQ(world.node(0).running(), !ends);
  }
}

// A failure counts until its host has been told of it: the next rule waits.
TEST(FaultDriver, NextFailureWaitsForTheOneThatIsNotToldYet) {
  World world({Failure(), Failure(2 * kSent)});
  EXPECT_EQ(world.HappenedAfter(kSent), 1u);
  EXPECT_EQ(world.HappenedAfter(2 * kSent), 1u);
}

}  // namespace fault_driver_test
}  // namespace sluice::simulation
