// SPDX-License-Identifier: Apache-2.0
//
// The states of a channel's connection, as a table.
//
//   state       a call that starts now
//   idle        dials, and waits for the outcome
//   connecting  waits for the outcome
//   up          is sent
//   draining    fails at once, or waits if it was told to; those that were sent before go on. The server has said
//               that it takes no new ones, and will say goodbye
//   backoff     fails at once with what went wrong last, or waits if it was told to (wait_for_ready)
//   closed      fails
//
// idle is also where it rests after too many failed attempts in a row: a server that is gone for good costs
// nothing until somebody calls it.
#ifndef SLUICE_MIDDLEWARE_CALL_CONNECTION_STATE_H_
#define SLUICE_MIDDLEWARE_CALL_CONNECTION_STATE_H_

#include <cstdint>
#include <string>

namespace sluice::call {

enum class ConnectionState : uint8_t { kIdle, kConnecting, kUp, kDraining, kBackoff, kClosed };

enum class ConnectionEvent : uint8_t {
  kDial,  // somebody wants it, or the back-off is over
  kPeerUp,
  kDrain,   // the server says so
  kLost,    // the attempt failed, or the peer went down: try again later
  kGiveUp,  // the same, and the attempts are used up
  kClose,
};

inline constexpr int kConnectionEvents = 6;

bool NextConnectionState(ConnectionState from, ConnectionEvent event, ConnectionState* to);

const char* Name(ConnectionState state);
const char* Name(ConnectionEvent event);
std::string PrintConnectionStates();

}  // namespace sluice::call

#endif  // SLUICE_MIDDLEWARE_CALL_CONNECTION_STATE_H_
