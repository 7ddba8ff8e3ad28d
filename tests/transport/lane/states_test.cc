// SPDX-License-Identifier: Apache-2.0
#include "transport/lane/states.h"

#include "gtest/gtest.h"

namespace sluice::lane {
namespace states_test {

TEST(PrintTable, Snapshot) {
  EXPECT_EQ(PrintTable(),
            "making: made -> offered\n"
            "making: lost -> freeing\n"
            "offered: answered -> polled\n"
            "offered: hush -> hushing\n"
            "offered: lost -> freeing\n"
            "polled: hush -> hushing\n"
            "polled: close -> closing\n"
            "polled: lost -> freeing\n"
            "hushing: empty -> announced\n"
            "hushing: lost -> freeing\n"
            "announced: wake -> waking\n"
            "announced: close -> closing\n"
            "announced: lost -> freeing\n"
            "waking: answered -> polled\n"
            "waking: hush -> hushing\n"
            "waking: lost -> freeing\n"
            "closing: empty -> freeing\n"
            "closing: lost -> freeing\n"
            "freeing: freed -> gone\n");
}

TEST(Next, WhatIsNotInTheTableChangesNothing) {
  State state = State::kAnnounced;
  EXPECT_FALSE(Next(State::kAnnounced, Event::kHush, &state));
  EXPECT_EQ(state, State::kAnnounced);
}

TEST(IsWatched, ExactlyWhereAMessageMayComeWithoutACompletion) {
  for (const State state : {State::kMaking, State::kAnnounced, State::kFreeing, State::kGone}) {
    EXPECT_FALSE(IsWatched(state)) << Name(state);
  }
  for (const State state :
       {State::kOffered, State::kPolled, State::kHushing, State::kWaking, State::kClosing}) {
    EXPECT_TRUE(IsWatched(state)) << Name(state);
  }
}

}  // namespace states_test
}  // namespace sluice::lane
