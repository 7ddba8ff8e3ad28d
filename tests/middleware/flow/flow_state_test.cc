// SPDX-License-Identifier: Apache-2.0
//
// A snapshot of the state table in flow_state.h: a change to it shows up here as text.
#include "middleware/flow/flow_state.h"

#include <gtest/gtest.h>

namespace sluice::flow {
namespace flow_state_test {

TEST(FlowStateTest, Snapshot) {
  EXPECT_EQ(PrintFlowStates(),
            "free: open -> opening\n"
            "free: offer -> open\n"
            "free: refuse -> ending\n"
            "opening: accepted -> open\n"
            "opening: close -> abandoned\n"
            "opening: close received -> free\n"
            "opening: peer down -> free\n"
            "abandoned: accepted -> closing\n"
            "abandoned: close received -> free\n"
            "abandoned: peer down -> free\n"
            "open: refuse -> ending\n"
            "open: close -> closing\n"
            "open: close received -> ending\n"
            "open: peer down -> free\n"
            "closing: close sent -> lingering\n"
            "closing: close received -> ending\n"
            "closing: peer down -> free\n"
            "lingering: close received -> free\n"
            "lingering: peer down -> free\n"
            "ending: close sent -> free\n"
            "ending: peer down -> free\n");
}

TEST(FlowStateTest, EveryFlowEndsWithItsPeer) {
  for (int state = 1; state <= static_cast<int>(FlowState::kEnding); ++state) {
    FlowState to = FlowState::kOpen;
    EXPECT_TRUE(NextFlowState(static_cast<FlowState>(state), FlowEvent::kPeerDown, &to));
    EXPECT_EQ(to, FlowState::kFree);
  }
}

TEST(FlowStateTest, WhatIsNotInTheTableIsRefused) {
  FlowState to = FlowState::kOpen;
  EXPECT_FALSE(NextFlowState(FlowState::kLingering, FlowEvent::kClose, &to));
  EXPECT_FALSE(NextFlowState(FlowState::kEnding, FlowEvent::kCloseReceived, &to));
  EXPECT_FALSE(NextFlowState(FlowState::kOpen, FlowEvent::kAccepted, &to));
  EXPECT_EQ(to, FlowState::kOpen) << "and leaves the state alone";
}

}  // namespace flow_state_test
}  // namespace sluice::flow
