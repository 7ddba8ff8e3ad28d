// SPDX-License-Identifier: Apache-2.0
#include "middleware/call/call_state.h"

namespace sluice::call {
namespace {

using S = CallState;
using E = CallEvent;

}  // namespace

const char* Name(CallState state) {
  switch (state) {
    case S::kFree:
      return "free";
    case S::kWaiting:
      return "waiting";
    case S::kSent:
      return "sent";
    case S::kPausing:
      return "pausing";
  }
  return "?";
}

const char* Name(CallEvent event) {
  switch (event) {
    case E::kStart:
      return "start";
    case E::kSend:
      return "send";
    case E::kReply:
      return "reply";
    case E::kFail:
      return "fail";
    case E::kDeadline:
      return "deadline";
    case E::kCancel:
      return "cancel";
    case E::kPeerDown:
      return "peer down";
    case E::kRetry:
      return "retry";
    case E::kAgain:
      return "again";
  }
  return "?";
}

std::string PrintCallStates() {
  std::string text;
  for (const CallTransition& t : kCallTransitions) {
    text += std::string(Name(t.from)) + " --" + Name(t.event) + "--> " + Name(t.to) + "\n";
  }
  return text;
}

}  // namespace sluice::call
