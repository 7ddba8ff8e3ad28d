// SPDX-License-Identifier: Apache-2.0
#include "middleware/flow/flow_state.h"

namespace sluice::flow {
namespace {

struct Transition {
  FlowState from;
  FlowEvent event;
  FlowState to;
};

using S = FlowState;
using E = FlowEvent;

constexpr Transition kTransitions[] = {
    {S::kFree, E::kOpen, S::kOpening},             //
    {S::kFree, E::kOffer, S::kOpen},               //
    {S::kFree, E::kRefuse, S::kEnding},            //
    {S::kOpening, E::kAccepted, S::kOpen},         //
    {S::kOpening, E::kClose, S::kAbandoned},       //
    {S::kOpening, E::kCloseReceived, S::kFree},    //
    {S::kOpening, E::kPeerDown, S::kFree},         //
    {S::kAbandoned, E::kAccepted, S::kClosing},    //
    {S::kAbandoned, E::kCloseReceived, S::kFree},  //
    {S::kAbandoned, E::kPeerDown, S::kFree},       //
    {S::kOpen, E::kRefuse, S::kEnding},            //
    {S::kOpen, E::kClose, S::kClosing},            //
    {S::kOpen, E::kCloseReceived, S::kEnding},     //
    {S::kOpen, E::kPeerDown, S::kFree},            //
    {S::kClosing, E::kCloseSent, S::kLingering},   //
    {S::kClosing, E::kCloseReceived, S::kEnding},  //
    {S::kClosing, E::kPeerDown, S::kFree},         //
    {S::kLingering, E::kCloseReceived, S::kFree},  //
    {S::kLingering, E::kPeerDown, S::kFree},       //
    {S::kEnding, E::kCloseSent, S::kFree},         //
    {S::kEnding, E::kPeerDown, S::kFree},          //
};

}  // namespace

bool NextFlowState(FlowState from, FlowEvent event, FlowState* to) {
  for (const Transition& t : kTransitions) {
    if (t.from == from && t.event == event) {
      *to = t.to;
      return true;
    }
  }
  return false;
}

const char* Name(FlowState state) {
  switch (state) {
    case S::kFree:
      return "free";
    case S::kOpening:
      return "opening";
    case S::kAbandoned:
      return "abandoned";
    case S::kOpen:
      return "open";
    case S::kClosing:
      return "closing";
    case S::kLingering:
      return "lingering";
    case S::kEnding:
      return "ending";
  }
  return "?";
}

const char* Name(FlowEvent event) {
  switch (event) {
    case E::kOpen:
      return "open";
    case E::kOffer:
      return "offer";
    case E::kRefuse:
      return "refuse";
    case E::kAccepted:
      return "accepted";
    case E::kClose:
      return "close";
    case E::kCloseSent:
      return "close sent";
    case E::kCloseReceived:
      return "close received";
    case E::kPeerDown:
      return "peer down";
  }
  return "?";
}

std::string PrintFlowStates() {
  std::string text;
  for (const Transition& t : kTransitions) {
    text += std::string(Name(t.from)) + " --" + Name(t.event) + "--> " + Name(t.to) + "\n";
  }
  return text;
}

}  // namespace sluice::flow
