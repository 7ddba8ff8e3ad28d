// SPDX-License-Identifier: Apache-2.0
#include "transport/integrity/states.h"

#include "gtest/gtest.h"

namespace sluice::integrity {
namespace states_test {

TEST(PrintTable, Snapshot) {
  EXPECT_EQ(PrintTable(),
            "running: drained -> asking\n"
            "running: quiet -> asking\n"
            "asking: is RTS -> running\n"
            "asking: is SQD -> cancelling\n"
            "asking: is ERR -> running\n"
            "cancelling: cancelled -> resuming\n"
            "resuming: resumed -> running\n"
            "running: failed -> failing\n"
            "asking: failed -> failing\n"
            "cancelling: failed -> failing\n"
            "resuming: failed -> failing\n"
            "failing: stopped -> ending\n"
            "ending: gone -> down\n");
}

TEST(Next, NothingElseMeansAnything) {
  int known = 0;
  for (uint8_t state = 0; state <= static_cast<uint8_t>(QueueState::kDown); ++state) {
    for (uint8_t event = 0; event <= static_cast<uint8_t>(QueueEvent::kGone); ++event) {
      QueueState next = static_cast<QueueState>(state);
      if (Next(next, static_cast<QueueEvent>(event), &next)) ++known;
    }
  }
  EXPECT_EQ(known, 13);
}

}  // namespace states_test
}  // namespace sluice::integrity
