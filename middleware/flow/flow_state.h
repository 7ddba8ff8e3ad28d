// SPDX-License-Identifier: Apache-2.0
//
// States of a flow at one of its ends, as a table. A flow becomes kFree only when both sides have sent close, or the peer is down: then no
// message in flight can name its place, and another flow may use it.
#ifndef SLUICE_MIDDLEWARE_FLOW_FLOW_STATE_H_
#define SLUICE_MIDDLEWARE_FLOW_FLOW_STATE_H_

#include <cstdint>
#include <string>

namespace sluice::flow {

enum class FlowState : uint8_t {
  kFree,
  kOpening,    // wanted here; the other side has not answered
  kAbandoned,  // the same, and closed here meanwhile
  kOpen,
  kClosing,    // closed here, not said yet
  kLingering,  // closed here, and said
  kEnding,     // closed by the other side, or refused here; this side's close is not said yet
};

enum class FlowEvent : uint8_t {
  kOpen,    // here
  kOffer,   // by the other side, and taken
  kRefuse,  // said no, or closed, before anything was said of it to the other side
  kAccepted,
  kClose,  // here
  kCloseSent,
  kCloseReceived,
  kPeerDown,
};

// True: `*to` is the next state. False: this event can't happen in this state; from the peer it is a fault.
bool NextFlowState(FlowState from, FlowEvent event, FlowState* to);

const char* Name(FlowState state);
const char* Name(FlowEvent event);

// One line per transition, in the order of the table.
std::string PrintFlowStates();

}  // namespace sluice::flow

#endif  // SLUICE_MIDDLEWARE_FLOW_FLOW_STATE_H_
