// SPDX-License-Identifier: Apache-2.0
//
// Questions for a sign of life that fail, or stand in a send queue that is dead, in virtual time.
#include <memory>

#include "gtest/gtest.h"
#include "tests/transport/endpoint/sim_endpoint.h"

namespace sluice::endpoint {
namespace keepalive_sim_test {

using softdc::sim::Simulation;

constexpr int64_t kRoundNs = 1'000'000'000;

// Host 0 asks host 1, which asks nobody.
class KeepaliveSimTest : public ::testing::Test {
 protected:
  KeepaliveSimTest() {
    softdc::sim::Options sim;
    sim.nodes = 2;
    simulation_ = Simulation::Create(sim).value();
    Options options = SimEndpointOptions();
    options.keepalive_ns = 0;
    asked_ = std::make_unique<SimEndpoint>(*simulation_, 1, 1, options);
    options.keepalive_ns = 3 * kRoundNs;
    asking_ = std::make_unique<SimEndpoint>(*simulation_, 0, 1, options);
    asked_->Listen();
    EXPECT_TRUE(asking_->Connect(1).ok());
    EXPECT_TRUE(
        Run([&] { return asking_->recorder.ups.size() + asked_->recorder.ups.size() == 2; }));
    // A question that is answered as it should: what is said at the beginning has been said.
    EXPECT_TRUE(Run([&] { return Counts().probes == 1; }));
    Pass(kRoundNs / 2);
    EXPECT_EQ(Counts().probes, 1u);
  }
  bool Run(const std::function<bool()>& done) {
    return RunUntil(*simulation_, {asking_.get(), asked_.get()}, done, 10 * kRoundNs);
  }
  void Pass(int64_t ns) {
    const int64_t end_ns = simulation_->NowNs() + ns;
    simulation_->After(ns, [] {});
    EXPECT_TRUE(Run([&] { return simulation_->NowNs() >= end_ns; }));
  }
  Counters Counts() { return asking_->endpoint().Counts(); }
  void ExpectUp() {
    EXPECT_TRUE(asking_->recorder.downs.empty()) << asking_->recorder.downs[0].why;
    EXPECT_TRUE(asked_->recorder.downs.empty()) << asked_->recorder.downs[0].why;
  }

  std::unique_ptr<Simulation> simulation_;
  std::unique_ptr<SimEndpoint> asked_, asking_;
};

TEST_F(KeepaliveSimTest, QuestionThatFailedIsAskedAgain) {
  simulation_->FailNext({.node = 0, .peer = 1});
  ASSERT_TRUE(Run([&] { return Counts().probes == 2; }));
  const int64_t asked_ns = simulation_->NowNs();
  const uint64_t heard = Counts().control_received;
  ASSERT_TRUE(Run([&] { return Counts().resends == 1; }));
  // At once, not at the next look.
  ASSERT_TRUE(Run([&] { return Counts().control_received > heard; }));
  EXPECT_LT(simulation_->NowNs(), asked_ns + kRoundNs / 2);
  EXPECT_EQ(Counts().probes, 2u);
  Pass(3 * kRoundNs);
  ExpectUp();
  EXPECT_EQ(Counts().silent_peers, 0u);
}

// It stood in a dead DCI for a part of the round that there is for its answer.
TEST_F(KeepaliveSimTest, QuestionThatGoesOutLateHasARoundForItsAnswer) {
  for (uint32_t dci = 0; simulation_->MakeDciDeadInRts(0, dci); ++dci) {
  }
  ASSERT_TRUE(Run([&] { return Counts().probes == 2; }));
  const int64_t asked_ns = simulation_->NowNs();
  ASSERT_TRUE(Run([&] { return Counts().resends == 1; }));
  ASSERT_LT(simulation_->NowNs(), asked_ns + kRoundNs);
  // The other program stands still until the next look has passed, and answers within a round from there.
  const int64_t end_ns = asked_ns + kRoundNs + kRoundNs / 2;
  simulation_->After(end_ns - simulation_->NowNs(), [] {});
  ASSERT_TRUE(RunUntil(
      *simulation_, {asking_.get()}, [&] { return simulation_->NowNs() >= end_ns; },
      kRoundNs * 10));
  ExpectUp();
  Pass(3 * kRoundNs);
  ExpectUp();
  EXPECT_EQ(Counts().silent_peers, 0u);
}

}  // namespace keepalive_sim_test
}  // namespace sluice::endpoint
