// SPDX-License-Identifier: Apache-2.0
#include "middleware/call/call_state.h"

#include <array>

namespace sluice::call {
namespace {

struct Transition {
  CallState from;
  CallEvent event;
  CallState to;
};

using S = CallState;
using E = CallEvent;

constexpr Transition kTransitions[] = {
    {S::kFree, E::kStart, S::kWaiting},     //
    {S::kWaiting, E::kSend, S::kSent},      //
    {S::kWaiting, E::kFail, S::kFree},      //
    {S::kWaiting, E::kDeadline, S::kFree},  //
    {S::kWaiting, E::kCancel, S::kFree},    //
    {S::kSent, E::kReply, S::kFree},        //
    {S::kSent, E::kDeadline, S::kFree},     //
    {S::kSent, E::kCancel, S::kFree},       //
    {S::kSent, E::kPeerDown, S::kFree},     //
};

constexpr uint8_t kNone = 0xff;
using Matrix = std::array<std::array<uint8_t, kCallEvents>, kCallStates>;

constexpr Matrix MakeMatrix() {
  Matrix matrix{};
  for (auto& row : matrix) row.fill(kNone);
  for (const Transition& t : kTransitions) {
    matrix[static_cast<int>(t.from)][static_cast<int>(t.event)] = static_cast<uint8_t>(t.to);
  }
  return matrix;
}

constexpr Matrix kMatrix = MakeMatrix();

}  // namespace

bool NextCallState(CallState from, CallEvent event, CallState* to) {
  const uint8_t next = kMatrix[static_cast<int>(from)][static_cast<int>(event)];
  if (next == kNone) return false;
  *to = static_cast<CallState>(next);
  return true;
}

const char* Name(CallState state) {
  switch (state) {
    case S::kFree:
      return "free";
    case S::kWaiting:
      return "waiting";
    case S::kSent:
      return "sent";
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
  }
  return "?";
}

std::string PrintCallStates() {
  std::string text;
  for (const Transition& t : kTransitions) {
    text += std::string(Name(t.from)) + " --" + Name(t.event) + "--> " + Name(t.to) + "\n";
  }
  return text;
}

}  // namespace sluice::call
