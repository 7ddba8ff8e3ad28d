// SPDX-License-Identifier: Apache-2.0
//
// Snapshots of the state tables in call_state.h and connection_state.h: a change to one shows up
// here as text.
#include <gtest/gtest.h>

#include "middleware/call/call_state.h"
#include "middleware/call/connection_state.h"
#include "middleware/call/drain.h"

namespace sluice::call {
namespace state_tables_test {

TEST(CallStateTest, Snapshot) {
  EXPECT_EQ(PrintCallStates(),
            "free: start -> waiting\n"
            "waiting: send -> sent\n"
            "waiting: fail -> free\n"
            "waiting: deadline -> free\n"
            "waiting: cancel -> free\n"
            "sent: reply -> free\n"
            "sent: deadline -> free\n"
            "sent: cancel -> free\n"
            "sent: peer down -> free\n"
            "sent: retry -> pausing\n"
            "pausing: again -> waiting\n"
            "pausing: fail -> free\n"
            "pausing: deadline -> free\n"
            "pausing: cancel -> free\n");
}

TEST(CallStateTest, WhatIsNotInTheTableIsRefused) {
  CallState to = CallState::kSent;
  EXPECT_FALSE(NextCallState(CallState::kFree, CallEvent::kReply, &to));
  EXPECT_FALSE(NextCallState(CallState::kWaiting, CallEvent::kReply, &to));
  EXPECT_FALSE(NextCallState(CallState::kSent, CallEvent::kSend, &to));
  EXPECT_EQ(to, CallState::kSent) << "and leaves the state alone";
}

TEST(ConnectionStateTest, Snapshot) {
  EXPECT_EQ(PrintConnectionStates(),
            "idle: dial -> connecting\n"
            "idle: close -> closed\n"
            "connecting: peer up -> up\n"
            "connecting: lost -> backoff\n"
            "connecting: give up -> idle\n"
            "connecting: close -> closed\n"
            "up: drain -> draining\n"
            "up: lost -> backoff\n"
            "up: give up -> idle\n"
            "up: rest -> idle\n"
            "up: close -> closed\n"
            "draining: lost -> backoff\n"
            "draining: give up -> idle\n"
            "draining: close -> closed\n"
            "backoff: dial -> connecting\n"
            "backoff: close -> closed\n");
}

TEST(DrainStateTest, Snapshot) {
  EXPECT_EQ(PrintDrainPhases(),
            "serving: start -> telling\n"
            "telling: told -> waiting\n"
            "telling: time to cancel -> cancelling\n"
            "waiting: idle -> drained\n"
            "waiting: time to cancel -> cancelling\n"
            "cancelling: idle -> drained\n"
            "cancelling: deadline -> overdue\n");
}

TEST(ConnectionStateTest, ClosedIsTheEnd) {
  for (int event = 0; event < kConnectionEvents; ++event) {
    ConnectionState to = ConnectionState::kUp;
    EXPECT_FALSE(
        NextConnectionState(ConnectionState::kClosed, static_cast<ConnectionEvent>(event), &to));
  }
}

}  // namespace state_tables_test
}  // namespace sluice::call
