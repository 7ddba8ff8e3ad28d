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
  kLeaving,   // reported to the handler; after the goodbye or refusal, the connection is closed
  kDraining,  // no more sends; work requests and commands of the peer are still in flight
};

enum class Event : uint8_t {
  kConnect,
  kRequest,
  kEstablished,
  kProven,       // the peer has proved the secret, and its terms are accepted
  kRefused,      // the peer has proved the secret, but this side refuses its terms
  kFailed,       // connection ended, send failed, handshake refused
  kDisconnect,   // called by the user
  kGoodbyeSent,  // the goodbye is complete, or will never complete
  kQuiet,        // no work request or command of the peer is left
};

// Sets `*next`. Returns false if the event has no meaning in this state.
bool Next(State state, Event event, State* next);

std::string_view Name(State state);
std::string_view Name(Event event);
// Returns one line per transition: "connecting: established -> proving".
std::string PrintTable();

}  // namespace sluice::peer

#endif  // SLUICE_TRANSPORT_PEER_STATES_H_
