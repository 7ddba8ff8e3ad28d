// SPDX-License-Identifier: Apache-2.0
#include "transport/peer/states.h"

#include "gtest/gtest.h"

namespace sluice::peer {
namespace {

TEST(PrintTable, Snapshot) {
  EXPECT_EQ(PrintTable(),
            "free: connect -> connecting\n"
            "free: request -> accepting\n"
            "connecting: established -> up\n"
            "connecting: failed -> draining\n"
            "connecting: disconnect -> draining\n"
            "accepting: established -> up\n"
            "accepting: failed -> draining\n"
            "accepting: disconnect -> draining\n"
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

}  // namespace
}  // namespace sluice::peer
