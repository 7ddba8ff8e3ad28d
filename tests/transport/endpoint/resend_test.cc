// SPDX-License-Identifier: Apache-2.0
//
// What an endpoint says of a device that retries for longer than it was asked to, in virtual time.
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "tests/support/kept_log.h"
#include "tests/transport/endpoint/sim_endpoint.h"

namespace sluice::endpoint {
namespace resend_test {

using softdc::sim::Simulation;

// A client that has two servers, of which the second dies.
void LoseAPeer(uint8_t timeout_factor, testing_support::KeptLog* log) {
  softdc::sim::Options sim;
  sim.nodes = 3;
  sim.dials.retries.timeout_factor = timeout_factor;
  const auto simulation = Simulation::Create(sim).value();
  Options options = SimEndpointOptions();
  options.log = log;
  SimEndpoint client(*simulation, 0, /*seed=*/1, options);
  SimEndpoint living(*simulation, 1);
  auto dying = std::make_unique<SimEndpoint>(*simulation, 2);
  living.Listen();
  dying->Listen();
  const auto first = client.Connect(1);
  const auto second = client.Connect(2);
  ASSERT_TRUE(first.ok() && second.ok());
  ASSERT_TRUE(RunUntil(*simulation, {&client, &living, dying.get()},
                       [&] { return client.recorder.ups.size() == 2; }));
  simulation->CutLink(0, 2);
  ASSERT_TRUE(client.Send(*second, "into the dark").ok());
  ASSERT_TRUE(RunUntil(*simulation, {&client, &living, dying.get()},
                       [&] { return !client.recorder.downs.empty(); }));
  RunUntil(
      *simulation, {&client, &living, dying.get()}, [&] { return log->Has("slow retries"); },
      100'000'000);
  EXPECT_EQ(client.recorder.downs[0].id.index, second->index);
  simulation->HealLink(0, 2);
}

TEST(SlowRetries, AreReportedOnceWithTheLeastTimeoutThatCanBeMet) {
  testing_support::KeptLog log;
  LoseAPeer(/*timeout_factor=*/4, &log);
  int told = 0;
  for (size_t i = 0; i < log.size(); ++i) {
    if (log[i].event != "slow retries") continue;
    ++told;
    EXPECT_EQ(log[i].severity, base::Severity::kWarning);
    EXPECT_NE(log[i].message.find("where 16 ms were asked for"), std::string::npos)
        << log[i].message;
    EXPECT_NE(log[i].message.find("the least that can be is about"), std::string::npos)
        << log[i].message;
  }
  EXPECT_EQ(told, 1) << log.Lines();
}

TEST(SlowRetries, RetriesOfTheRightTimeAreNotReported) {
  testing_support::KeptLog log;
  LoseAPeer(/*timeout_factor=*/1, &log);
  EXPECT_FALSE(log.Has("slow retries")) << log.Lines();
}

}  // namespace resend_test
}  // namespace sluice::endpoint
