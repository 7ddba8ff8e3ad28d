// SPDX-License-Identifier: Apache-2.0
//
// The states of a call at its caller, as a table. Every way to kFree ends the call, once: its
// callback runs, and the place gets a new generation, so that nothing that arrives later can name
// it.
#ifndef SLUICE_MIDDLEWARE_CALL_CALL_STATE_H_
#define SLUICE_MIDDLEWARE_CALL_CALL_STATE_H_

#include <array>
#include <cstdint>
#include <string>

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

inline constexpr int kCallStates = 4;
inline constexpr int kCallEvents = 9;

struct CallTransition {
  CallState from;
  CallEvent event;
  CallState to;
};

inline constexpr CallTransition kCallTransitions[] = {
    {CallState::kFree, CallEvent::kStart, CallState::kWaiting},     //
    {CallState::kWaiting, CallEvent::kSend, CallState::kSent},      //
    {CallState::kWaiting, CallEvent::kFail, CallState::kFree},      //
    {CallState::kWaiting, CallEvent::kDeadline, CallState::kFree},  //
    {CallState::kWaiting, CallEvent::kCancel, CallState::kFree},    //
    {CallState::kSent, CallEvent::kReply, CallState::kFree},        //
    {CallState::kSent, CallEvent::kDeadline, CallState::kFree},     //
    {CallState::kSent, CallEvent::kCancel, CallState::kFree},       //
    {CallState::kSent, CallEvent::kPeerDown, CallState::kFree},     //
    {CallState::kSent, CallEvent::kRetry, CallState::kPausing},     //
    {CallState::kPausing, CallEvent::kAgain, CallState::kWaiting},  //
    {CallState::kPausing, CallEvent::kFail, CallState::kFree},      //
    {CallState::kPausing, CallEvent::kDeadline, CallState::kFree},  //
    {CallState::kPausing, CallEvent::kCancel, CallState::kFree},    //
};

// The same, by state and event: looked up several times per call.
inline constexpr uint8_t kNoTransition = 0xff;
using CallMatrix = std::array<std::array<uint8_t, kCallEvents>, kCallStates>;

constexpr CallMatrix MakeCallMatrix() {
  CallMatrix matrix{};
  for (auto& row : matrix) row.fill(kNoTransition);
  for (const CallTransition& t : kCallTransitions) {
    matrix[static_cast<int>(t.from)][static_cast<int>(t.event)] = static_cast<uint8_t>(t.to);
  }
  return matrix;
}

inline constexpr CallMatrix kCallMatrix = MakeCallMatrix();

// True: `*to` is the next state. False: this event can't happen in this state.
inline bool NextCallState(CallState from, CallEvent event, CallState* to) {
  const uint8_t next = kCallMatrix[static_cast<int>(from)][static_cast<int>(event)];
  if (next == kNoTransition) return false;
  *to = static_cast<CallState>(next);
  return true;
}

const char* Name(CallState state);
const char* Name(CallEvent event);

// One line per transition, in the order of the table.
std::string PrintCallStates();

}  // namespace sluice::call

#endif  // SLUICE_MIDDLEWARE_CALL_CALL_STATE_H_
