// SPDX-License-Identifier: Apache-2.0
//
// States of a flow at one of its ends, as a table. A flow becomes kFree only when both sides have sent close, or the peer is down. Then no
// message in flight can name its place, and another flow may use the place.
#ifndef SLUICE_MIDDLEWARE_FLOW_FLOW_STATE_H_
#define SLUICE_MIDDLEWARE_FLOW_FLOW_STATE_H_

#include <cstdint>
#include <string>

namespace sluice::flow {

enum class FlowState : uint8_t {
  kFree,
  kOpening,    // opened by this end; the peer has not answered
  kAbandoned,  // the same, and closed by this end meanwhile
  kOpen,
  kClosing,    // closed by this end; the close is not sent yet
  kLingering,  // closed by this end; the close is sent
  kEnding,     // closed by the peer, or refused by this end, whose close is not sent yet
};

enum class FlowEvent : uint8_t {
  kOpen,    // by this end
  kOffer,   // opened by the peer, and not refused at once
  kRefuse,  // refused or closed by this end before it sent a message about the flow
  kAccepted,
  kClose,  // by this end
  kCloseSent,
  kCloseReceived,
  kPeerDown,
};

// Sets `*to` to the next state and returns true. Returns false if `event` can't happen in state `from`; an event from the peer is then a
// protocol error.
bool NextFlowState(FlowState from, FlowEvent event, FlowState* to);

const char* Name(FlowState state);
const char* Name(FlowEvent event);

// Returns one line per transition, in the order of the table.
std::string PrintFlowStates();

}  // namespace sluice::flow

#endif  // SLUICE_MIDDLEWARE_FLOW_FLOW_STATE_H_
