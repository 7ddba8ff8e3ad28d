// SPDX-License-Identifier: Apache-2.0
#include "transport/peer/states.h"

#include "gtest/gtest.h"

namespace sluice::peer {
namespace states_test {

TEST(PrintTable, Snapshot) {
  EXPECT_EQ(PrintTable(),
            "free: connect -> connecting\n"
            "free: request -> accepting\n"
            "connecting: established -> proving\n"
            "connecting: failed -> draining\n"
            "connecting: disconnect -> draining\n"
            "proving: proven -> up\n"
            "proving: failed -> draining\n"
            "proving: disconnect -> draining\n"
            "accepting: established -> unproven\n"
            "accepting: proven -> up\n"
            "accepting: refused -> leaving\n"
            "accepting: failed -> draining\n"
            "accepting: disconnect -> draining\n"
            "unproven: proven -> up\n"
            "unproven: refused -> leaving\n"
            "unproven: failed -> draining\n"
            "unproven: disconnect -> draining\n"
            "up: failed -> draining\n"
            "up: disconnect -> leaving\n"
            "leaving: failed -> draining\n"
            "leaving: goodbye sent -> draining\n"
            "draining: quiet -> free\n");
}

TEST(Next, WhatIsNotInTheTableChangesNothing) {
  State state = State::kUp;
  EXPECT_FALSE(Next(State::kUp, Event::kQuiet, &state));
  EXPECT_EQ(state, State::kUp);
  EXPECT_FALSE(Next(State::kDraining, Event::kFailed, &state));
}

}  // namespace states_test
}  // namespace sluice::peer
