// SPDX-License-Identifier: Apache-2.0
//
// The states of a peer in the endpoint's table.
#ifndef SLUICE_TRANSPORT_PEER_STATES_H_
#define SLUICE_TRANSPORT_PEER_STATES_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::peer {

enum class State : uint8_t {
  kFree,
  kConnecting,  // outbound, until its welcome was checked and the RTU sent
  kProving,     // outbound, until the answer to the proof
  kAccepting,   // inbound, until ESTABLISHED or its proof, which may overtake it
  kUnproven,    // inbound, until its proof
  kUp,
  kLeaving,   // told the handler; goodbye or refusal under way, then the connection is closed
  kDraining,  // no more sends; work requests and commands that name it are still under way
};

enum class Event : uint8_t {
  kConnect,
  kRequest,
  kEstablished,
  kProven,       // the other side has shown that it holds the secret, and its terms are taken
  kRefused,      // it has shown that, but there is no room
  kFailed,       // connection ended, send failed, handshake refused
  kDisconnect,   // called by the user
  kGoodbyeSent,  // completed, or will never be
  kQuiet,        // nothing names the peer any more
};

// False: the event means nothing in this state.
bool Next(State state, Event event, State* next);

std::string_view Name(State state);
std::string_view Name(Event event);
// One line per transition: "connecting: established -> up".
std::string PrintTable();

}  // namespace sluice::peer

#endif  // SLUICE_TRANSPORT_PEER_STATES_H_
