// SPDX-License-Identifier: Apache-2.0
//
// ConnectionState: the states of a channel's connection.
//
//   state       a call that starts now
//   idle        starts to connect, and waits for the result
//   connecting  waits for the result
//   up          is sent
//   draining    fails at once, or waits with wait_for_ready; calls sent before continue. The server
//               accepts no new calls, and will disconnect
//   backoff     fails at once with the last error, or waits with wait_for_ready
//   closed      fails
//
// A server at its cap of queue pairs asks idle clients to rest: the client disconnects, and the state is idle until the next call. That call
// waits if the server is full then.
//
// If max_reconnect_attempts reconnects have failed in a row, the state is idle as well: a server that
// is gone permanently costs nothing until the next call. If another server takes the calls, a call
// starts one more attempt after each backoff_max.
//
// Threads       Any: pure functions.
#ifndef SLUICE_MIDDLEWARE_CALL_CONNECTION_STATE_H_
#define SLUICE_MIDDLEWARE_CALL_CONNECTION_STATE_H_

#include <cstdint>
#include <string>

namespace sluice::call {

enum class ConnectionState : uint8_t { kIdle, kConnecting, kUp, kDraining, kBackoff, kClosed };

enum class ConnectionEvent : uint8_t {
  kDial,  // a call needs the connection, or the back-off has ended
  kPeerUp,
  kDrain,   // the server is draining
  kLost,    // the attempt failed, or the peer went down: reconnect later
  kGiveUp,  // the same, after the last attempt, or for a removed server
  kRest,    // the server needs the connection for another client, and this side has no calls
  kClose,
};

inline constexpr int kConnectionEvents = 7;

bool NextConnectionState(ConnectionState from, ConnectionEvent event, ConnectionState* to);

const char* Name(ConnectionState state);
const char* Name(ConnectionEvent event);
std::string PrintConnectionStates();

}  // namespace sluice::call

#endif  // SLUICE_MIDDLEWARE_CALL_CONNECTION_STATE_H_
