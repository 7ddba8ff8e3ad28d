// SPDX-License-Identifier: Apache-2.0
//
// The life of a peer in the endpoint's table.
#ifndef SLUICE_TRANSPORT_PEER_STATES_H_
#define SLUICE_TRANSPORT_PEER_STATES_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::peer {

enum class State : uint8_t {
  kFree,
  kConnecting,  // outbound, until its welcome was checked and the RTU sent
  kAccepting,   // inbound, until ESTABLISHED or its first message
  kUp,
  kLeaving,   // told the handler; goodbye under way, then the connection is closed
  kDraining,  // no more sends; work requests and commands that name it are still under way
};
inline constexpr int kStateCount = 6;

enum class Event : uint8_t {
  kConnect,
  kRequest,
  kEstablished,
  kFailed,       // connection ended, send failed, handshake refused
  kDisconnect,   // called by the user
  kGoodbyeSent,  // completed, or will never be
  kQuiet,        // nothing names the peer any more
};
inline constexpr int kEventCount = 7;

// False: the event means nothing in this state.
bool Next(State state, Event event, State* next);

std::string_view Name(State state);
std::string_view Name(Event event);
// One line per transition: "connecting: established -> up".
std::string PrintTable();

}  // namespace sluice::peer

#endif  // SLUICE_TRANSPORT_PEER_STATES_H_
