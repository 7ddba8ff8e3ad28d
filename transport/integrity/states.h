// SPDX-License-Identifier: Apache-2.0
//
// States and transitions of a signed queue, as a table.
#ifndef SLUICE_TRANSPORT_INTEGRITY_STATES_H_
#define SLUICE_TRANSPORT_INTEGRITY_STATES_H_

#include <cstdint>
#include <string>

namespace sluice::integrity {

enum class QueueState : uint8_t {
  kRunning,
  kAsking,      // may have stopped: a command queries the state of the queue pair
  kCancelling,  // in SQD: a command cancels the OKs of wrong transfers
  kResuming,    // error replies are posted: the queue pair returns to RTS
  kFailing,     // the queue pair goes to ERR, so that all posted requests end
  kEnding,      // the queue pair is being destroyed: afterwards it accesses no memory
  kDown,
};

enum class QueueEvent : uint8_t {
  kDrained,  // IBV_EVENT_SQ_DRAINED, or another event about this queue
  kQuiet,    // transfers are open and nothing has completed for a while: the event may be lost
  kIsRts,    // result of the state query
  kIsSqd,
  kIsErr,      // for the first time: the completion of the failed request will give the reason
  kCancelled,  // for each wrong transfer exactly one request, its OK, was cancelled
  kResumed,
  // A request or a command failed, the device reports ERR and no completion explains it, or a cancellation did not cancel exactly the OK.
  kFailed,
  kStopped,  // in ERR
  kGone,     // destroyed
};

// Sets `next` and returns true. Returns false if the event has no transition in this state.
bool Next(QueueState state, QueueEvent event, QueueState* next);

// Returns one line per transition.
std::string PrintTable();

}  // namespace sluice::integrity

#endif  // SLUICE_TRANSPORT_INTEGRITY_STATES_H_
