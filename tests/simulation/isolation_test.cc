// SPDX-License-Identifier: Apache-2.0
//
// A small run of benchmarks/isolation.cc.
#include "tests/simulation/isolation.h"

#include <string>

#include "gtest/gtest.h"
#include "transport/softdc/config/config.h"
#include "transport/softdc/config/personalities/personalities.h"

namespace sluice::simulation {
namespace isolation_test {

IsolationOptions Small() {
  return {.peers = 60, .dead = 6, .after_ns = 200'000'000, .dci_count = 4, .dci_depth = 256};
}

IsolationResult Alone(IsolationOptions options) {
  options.dead = 0;
  return MeasureIsolation(options);
}

// Everybody who lives was served.
void ExpectServed(const IsolationResult& result) {
  EXPECT_EQ(result.lost_peers, 0u);
  EXPECT_EQ(result.unanswered, 0u);
  EXPECT_EQ(result.sleepless, 0u);
}

TEST(MeasureIsolation, OneInTenDies_CostsTheOthersNothing) {
  const IsolationResult alone = Alone(Small());
  const IsolationResult with = MeasureIsolation(Small());
  ExpectServed(with);
  ASSERT_GT(with.during.calls, 100u);
  ASSERT_GT(with.known.calls, 100u);
  EXPECT_LE(with.during.p99_ns, alone.known.p99_ns * 3 / 2);
  EXPECT_LE(with.known.p99_ns, alone.known.p99_ns * 3 / 2);
  EXPECT_GE(with.stream_resets, 6u);
  EXPECT_EQ(with.recoveries, 0u);
}

// The first error costs an attempt; afterwards it holds.
TEST(MeasureIsolation, NoErroredStreamIsBorne_HoldsOnceTheDeadAreKnown) {
  IsolationOptions options = Small();
  options.dials.streams.max_log_errored = 0;
  const IsolationResult alone = Alone(options);
  const IsolationResult with = MeasureIsolation(options);
  ExpectServed(with);
  EXPECT_LE(with.known.p99_ns, alone.known.p99_ns * 3 / 2);
  EXPECT_GT(with.recoveries, 0u);
}

TEST(MeasureIsolation, NoStreams_HoldsOnceTheDeadAreKnown) {
  IsolationOptions options = Small();
  options.dials.streams.enabled = false;
  const IsolationResult alone = Alone(options);
  const IsolationResult with = MeasureIsolation(options);
  ExpectServed(with);
  EXPECT_LE(with.known.p99_ns, alone.known.p99_ns * 3 / 2);
  EXPECT_GT(with.during.max_ns, 10 * alone.known.max_ns);  // what streams are good for
}

// Other firmware: it holds once the dead are known. benchmarks/isolation measures any personality.
class IsolationPersonality : public testing::TestWithParam<std::string> {
 protected:
  static softdc::Dials Dials() {
    for (const softdc::Personality& personality : softdc::Personalities()) {
      if (personality.name == GetParam()) return softdc::ParseDials(personality.dials).value();
    }
    ADD_FAILURE() << "there is no personality " << GetParam();
    return {};
  }
};
INSTANTIATE_TEST_SUITE_P(All, IsolationPersonality, testing::Values("slow_retries", "every_maybe"),
                         [](const auto& info) { return info.param; });

TEST_P(IsolationPersonality, HoldsOnceTheDeadAreKnown) {
  IsolationOptions options = Small();
  options.dials = Dials();
  const IsolationResult alone = Alone(options);
  const IsolationResult with = MeasureIsolation(options);
  ExpectServed(with);
  ASSERT_GT(with.known.calls, 100u);
  EXPECT_LE(with.known.p99_ns, alone.known.p99_ns * 3 / 2);
}

// Everything that could be said waits behind the dead: the caller sleeps all the same.
TEST(MeasureIsolation, OneStreamADciAndMoreDeadThanDcis_EverybodyElseIsServedInTheEnd) {
  IsolationOptions options = Small();
  options.peers = 100;
  options.dead = 10;
  options.dials.streams.max_log_concurrent = options.dials.streams.max_log_errored = 0;
  const IsolationResult with = MeasureIsolation(options);
  ExpectServed(with);
  EXPECT_GT(with.known.calls, 100u);
}

}  // namespace isolation_test
}  // namespace sluice::simulation
