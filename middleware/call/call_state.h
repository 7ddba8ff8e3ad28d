// SPDX-License-Identifier: Apache-2.0
//
// The states of a call at its caller, as a table. Each transition to kFree ends the call once: its callback runs, and its place gets a new
// generation, so a later message cannot name it.
#ifndef SLUICE_MIDDLEWARE_CALL_CALL_STATE_H_
#define SLUICE_MIDDLEWARE_CALL_CALL_STATE_H_

#include <cstdint>
#include <string>

#include "transport/base/state_table.h"

namespace sluice::call {

enum class CallState : uint8_t {
  kFree,     // no call in this place
  kWaiting,  // for a connection, a credit or its turn; nothing of it has been sent
  kSent,     // the peer may run it, or have run it
  kPausing,  // an attempt has failed; there will be another one
};

enum class CallEvent : uint8_t {
  kStart,
  kSend,
  kReply,  // the peer's answer: success or its error
  kFail,   // it can't be sent: too large, or no connection and not told to wait for one
  kDeadline,
  kCancel,
  kPeerDown,
  kRetry,  // this attempt has failed
  kAgain,  // the pause is over
};

inline constexpr base::Transition<CallState, CallEvent> kCallTransitions[] = {
    {CallState::kFree, CallEvent::kStart, CallState::kWaiting},
    {CallState::kWaiting, CallEvent::kSend, CallState::kSent},
    {CallState::kWaiting, CallEvent::kFail, CallState::kFree},
    {CallState::kWaiting, CallEvent::kDeadline, CallState::kFree},
    {CallState::kWaiting, CallEvent::kCancel, CallState::kFree},
    {CallState::kSent, CallEvent::kReply, CallState::kFree},
    {CallState::kSent, CallEvent::kDeadline, CallState::kFree},
    {CallState::kSent, CallEvent::kCancel, CallState::kFree},
    {CallState::kSent, CallEvent::kPeerDown, CallState::kFree},
    {CallState::kSent, CallEvent::kRetry, CallState::kPausing},
    {CallState::kPausing, CallEvent::kAgain, CallState::kWaiting},
    {CallState::kPausing, CallEvent::kFail, CallState::kFree},
    {CallState::kPausing, CallEvent::kDeadline, CallState::kFree},
    {CallState::kPausing, CallEvent::kCancel, CallState::kFree},
};

// Looked up several times per call, so it is here.
inline constexpr base::StateTable kCallTable(kCallTransitions,
                                             {"free", "waiting", "sent", "pausing"},
                                             {"start", "send", "reply", "fail", "deadline",
                                              "cancel", "peer down", "retry", "again"});

// True: `*to` is the next state. False: this event can't happen in this state.
inline bool NextCallState(CallState from, CallEvent event, CallState* to) {
  return kCallTable.Next(from, event, to);
}

// At compile time, for code that knows the state: what Next() would say. An event that means nothing does not compile.
consteval CallState CallStateAfter(CallState from, CallEvent event) {
  CallState to = from;
  if (!kCallTable.Next(from, event, &to)) throw "this event means nothing in this state";
  return to;
}

const char* Name(CallState state);
const char* Name(CallEvent event);

// One line per transition, in the order of the table.
std::string PrintCallStates();

}  // namespace sluice::call

#endif  // SLUICE_MIDDLEWARE_CALL_CALL_STATE_H_
