// SPDX-License-Identifier: Apache-2.0
#include "middleware/call/connection_state.h"

namespace sluice::call {
namespace {

struct Transition {
  ConnectionState from;
  ConnectionEvent event;
  ConnectionState to;
};

using S = ConnectionState;
using E = ConnectionEvent;

constexpr Transition kTransitions[] = {
    {S::kIdle, E::kDial, S::kConnecting},     //
    {S::kIdle, E::kClose, S::kClosed},        //
    {S::kConnecting, E::kPeerUp, S::kUp},     //
    {S::kConnecting, E::kLost, S::kBackoff},  //
    {S::kConnecting, E::kGiveUp, S::kIdle},   //
    {S::kConnecting, E::kClose, S::kClosed},  //
    {S::kUp, E::kDrain, S::kDraining},        //
    {S::kUp, E::kLost, S::kBackoff},          //
    {S::kUp, E::kGiveUp, S::kIdle},           //
    {S::kUp, E::kClose, S::kClosed},          //
    {S::kDraining, E::kLost, S::kBackoff},    //
    {S::kDraining, E::kGiveUp, S::kIdle},     //
    {S::kDraining, E::kClose, S::kClosed},    //
    {S::kBackoff, E::kDial, S::kConnecting},  //
    {S::kBackoff, E::kClose, S::kClosed},     //
};

}  // namespace

bool NextConnectionState(ConnectionState from, ConnectionEvent event, ConnectionState* to) {
  for (const Transition& t : kTransitions) {
    if (t.from == from && t.event == event) {
      *to = t.to;
      return true;
    }
  }
  return false;
}

const char* Name(ConnectionState state) {
  switch (state) {
    case S::kIdle:
      return "idle";
    case S::kConnecting:
      return "connecting";
    case S::kUp:
      return "up";
    case S::kDraining:
      return "draining";
    case S::kBackoff:
      return "backoff";
    case S::kClosed:
      return "closed";
  }
  return "?";
}

const char* Name(ConnectionEvent event) {
  switch (event) {
    case E::kDial:
      return "dial";
    case E::kPeerUp:
      return "peer up";
    case E::kDrain:
      return "drain";
    case E::kLost:
      return "lost";
    case E::kGiveUp:
      return "give up";
    case E::kClose:
      return "close";
  }
  return "?";
}

std::string PrintConnectionStates() {
  std::string text;
  for (const Transition& t : kTransitions) {
    text += std::string(Name(t.from)) + " --" + Name(t.event) + "--> " + Name(t.to) + "\n";
  }
  return text;
}

}  // namespace sluice::call
