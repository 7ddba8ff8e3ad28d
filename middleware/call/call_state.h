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
  kWaiting,  // waits for a connection, a credit or its turn; nothing has been sent
  kSent,     // the request was sent: the peer may have run it
  kPausing,  // an attempt has failed; the next attempt follows after a pause
};

enum class CallEvent : uint8_t {
  kStart,
  kSend,
  kReply,  // the peer's answer: success or its error
  kFail,   // it can't be sent: too large, no memory, or no connection without wait_for_ready
  kDeadline,
  kCancel,
  kPeerDown,
  kRetry,  // the attempt has failed; another attempt follows
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

// In the header, so that the compiler can inline its lookups: several for each call.
inline constexpr base::StateTable kCallTable(kCallTransitions,
                                             {"free", "waiting", "sent", "pausing"},
                                             {"start", "send", "reply", "fail", "deadline",
                                              "cancel", "peer down", "retry", "again"});

// Sets `*to` to the next state and returns true. Returns false if `event` can't happen in state `from`.
inline bool NextCallState(CallState from, CallEvent event, CallState* to) {
  return kCallTable.Next(from, event, to);
}

// Returns the next state at compile time, for code that knows the present state. An event that can't happen does not compile.
consteval CallState CallStateAfter(CallState from, CallEvent event) {
  CallState to = from;
  if (!kCallTable.Next(from, event, &to)) throw "this event means nothing in this state";
  return to;
}

const char* Name(CallState state);
const char* Name(CallEvent event);

// Returns one line per transition, in the order of the table.
std::string PrintCallStates();

}  // namespace sluice::call

#endif  // SLUICE_MIDDLEWARE_CALL_CALL_STATE_H_
