// SPDX-License-Identifier: Apache-2.0
//
// A few seeds in every build; SLUICE_SOAK_SEEDS and SLUICE_SOAK_TRANSFERS (of each) for more, SLUICE_SOAK_FIRST_SEED for
// others.
#include "tests/transport/integrity/soak.h"

#include <cstdlib>
#include <iostream>

#include "gtest/gtest.h"

namespace sluice::integrity {
namespace {

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

TEST(Soak, EveryTransferHasItsOneRightReply) {
  const uint64_t seeds = FromEnvironment("SLUICE_SOAK_SEEDS", 20);
  const uint64_t transfers = FromEnvironment("SLUICE_SOAK_TRANSFERS", 300);
  const uint64_t first = FromEnvironment("SLUICE_SOAK_FIRST_SEED", 1);
  SoakCounts all;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    all += Soak(seed, transfers);
    if (HasFailure()) return;
  }
  std::cout << all.transfers << " transfers, " << all.wrong << " wrong, "
            << all.rounds_with_none_wrong << " rounds with none wrong, "
            << all.rounds_with_one_wrong << " with one, " << all.rounds_with_many_wrong
            << " with many at once, " << all.stops << " stops, " << all.lost_events
            << " rounds with a lost event, " << all.found_at_target << " found by the target\n";
  EXPECT_GE(all.transfers, seeds * transfers);
  EXPECT_GT(all.wrong, all.transfers / 10);
  EXPECT_GT(all.rounds_with_none_wrong, 0u);
  EXPECT_GT(all.rounds_with_one_wrong, 0u);
  EXPECT_GT(all.rounds_with_many_wrong, 0u);
  EXPECT_GT(all.stops, 0u);
  EXPECT_GT(all.lost_events, 0u);
  EXPECT_GT(all.found_at_target, 0u);
}

}  // namespace
}  // namespace sluice::integrity
