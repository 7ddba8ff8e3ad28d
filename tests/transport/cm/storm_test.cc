// SPDX-License-Identifier: Apache-2.0
//
// Storms over many seeds. A failing seed prints itself; alone, and longer:
//   bazel test //tests/transport/cm:storm_test --test_output=all --test_env=SLUICE_STORM_SEED=17
//       --test_env=SLUICE_STORM_SEEDS=1 --test_env=SLUICE_STORM_CONNECTS=10000
#include "tests/transport/cm/storm.h"

#include <cstdlib>
#include <iostream>

#include "gtest/gtest.h"

namespace sluice::cm {
namespace {

uint64_t Environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// A weakened manager is caught in the first seeds; the sound one gets through all.
StormResult RunSeeds(StormOptions options, uint64_t first_seed, uint64_t seeds) {
  StormResult sum;
  for (uint64_t seed = first_seed; seed < first_seed + seeds; ++seed) {
    options.seed = seed;
    const StormResult one = RunStorm(options);
    Add(one, &sum);
    if (one.violations.empty()) continue;
    sum.violations.back() += " (SLUICE_STORM_SEED=" + std::to_string(seed) +
                             " SLUICE_STORM_CONNECTS=" + std::to_string(options.connects) + ")";
    break;
  }
  return sum;
}

struct Dialled {
  const char* name;
  softdc::Dials::Features features;
  uint64_t seeds;
};

void PrintTo(const Dialled& dialled, std::ostream* out) { *out << dialled.name; }

class StormTest : public ::testing::TestWithParam<Dialled> {};

TEST_P(StormTest, NoNumberComesBackTooEarlyAndEveryConnectEnds) {
  StormOptions options;
  options.dials.features = GetParam().features;
  options.connects = static_cast<int>(Environment("SLUICE_STORM_CONNECTS", 10));
  const uint64_t seeds = Environment("SLUICE_STORM_SEEDS", GetParam().seeds);
  const StormResult sum = RunSeeds(options, Environment("SLUICE_STORM_SEED", 1), seeds);
  std::cout << seeds << " seeds: " << ToString(sum) << std::endl;
  for (const std::string& violation : sum.violations) ADD_FAILURE() << violation;
  EXPECT_EQ(sum.connects, seeds * static_cast<uint64_t>(options.connects));
  EXPECT_EQ(sum.stale, 0u);
  EXPECT_EQ(sum.cm.stale_rejects, 0u);
  if (seeds < 100) return;
  // Everything that can happen has happened.
  EXPECT_GT(sum.up, sum.connects / 2);
  EXPECT_GT(sum.given_up, 0u);
  EXPECT_GT(sum.refused.at(absl::StatusCode::kDeadlineExceeded), 0u);
  EXPECT_GT(sum.refused.at(absl::StatusCode::kUnavailable), 0u);
  EXPECT_GT(sum.cm.retries, 0u);
  EXPECT_GT(sum.cm.half_open_reaped, 0u);
  EXPECT_GT(sum.numbers_taken_again, sum.connects / 10);
  EXPECT_EQ(sum.numbers_reserved > 0, options.dials.features.reserved_qpns);
  if (seeds >= 1000) {
    EXPECT_GT(sum.cm.unanswered_closes, 0u);
  }
  if (options.dials.features.ece) {
    EXPECT_GE(sum.agreed_ece, sum.up);
  } else {
    EXPECT_EQ(sum.agreed_ece, 0u);
  }
  EXPECT_EQ(sum.mapped > 0, options.dials.features.ah_mapping);
  EXPECT_EQ(sum.unmapped > 0, !options.dials.features.ah_mapping);
}

INSTANTIATE_TEST_SUITE_P(Dials, StormTest,
                         ::testing::Values(Dialled{"AllFeatures", {}, 1000},
                                           Dialled{
                                               "NoReservedNumbers", {.reserved_qpns = false}, 300},
                                           Dialled{"NoEce", {.ece = false}, 300},
                                           Dialled{"NoMapping", {.ah_mapping = false}, 300}),
                         [](const auto& info) { return std::string(info.param.name); });

// No quarantine of ours outlives its program, so what firmware hands out again may be refused as
// stale; nothing else may.
TEST(StormOfDeaths, NumbersComeBackTooEarlyOnlyWhereTheirProgramWasKilled) {
  StormOptions options;
  options.kills = 2;
  options.connects = static_cast<int>(Environment("SLUICE_STORM_CONNECTS", 10));
  const uint64_t seeds = Environment("SLUICE_STORM_SEEDS", 500);
  const StormResult sum = RunSeeds(options, Environment("SLUICE_STORM_SEED", 1), seeds);
  std::cout << seeds << " seeds: " << ToString(sum) << std::endl;
  for (const std::string& violation : sum.violations) ADD_FAILURE() << violation;
  EXPECT_EQ(sum.connects, seeds * static_cast<uint64_t>(options.connects));
  if (seeds < 100) return;
  EXPECT_GT(sum.up, sum.connects / 4);
  EXPECT_GT(sum.killed, seeds);
  EXPECT_GT(sum.died, 0u);
  EXPECT_GT(sum.numbers_reissued, 0u);
  EXPECT_GT(sum.stale, 0u);
  EXPECT_LE(sum.cm.stale_rejects, sum.numbers_reissued);
  EXPECT_GT(sum.refused.at(absl::StatusCode::kUnavailable), 0u);
}

TEST(StormRepeats, SameSeedIsTheSameStorm) {
  StormOptions options;
  options.connects = 30;
  options.kills = 2;
  uint64_t last_digest = 0;
  for (options.seed = 1; options.seed <= 5; ++options.seed) {
    const StormResult first = RunStorm(options);
    const StormResult second = RunStorm(options);
    EXPECT_EQ(first.digest, second.digest);
    EXPECT_EQ(ToString(first), ToString(second));
    EXPECT_NE(first.digest, last_digest);
    last_digest = first.digest;
  }
}

// The same storms, and a manager that does less than it should.
TEST(StormSeesIt, NumberThatGoesBackWithItsConnection) {
  for (const bool reserved_qpns : {true, false}) {
    StormOptions options;
    options.kills = reserved_qpns ? 2 : 0;
    options.dials.features.reserved_qpns = reserved_qpns;
    options.cm.number_hold_ns = 0;
    const StormResult sum = RunSeeds(options, 1, 20);
    ASSERT_FALSE(sum.violations.empty());
    EXPECT_NE(sum.violations.back().find(" took number "), std::string::npos)
        << sum.violations.back();
  }
}

TEST(StormSeesIt, NumberThatGoesBackBeforeALostGoodbyeIsRepeated) {
  StormOptions options;
  options.cm.number_hold_ns = 2'000'000'000;  // more than a timewait, less than a repetition
  const StormResult sum = RunSeeds(options, 1, 200);
  ASSERT_FALSE(sum.violations.empty());
  EXPECT_NE(sum.violations.back().find(" took number "), std::string::npos)
      << sum.violations.back();
}

}  // namespace
}  // namespace sluice::cm
