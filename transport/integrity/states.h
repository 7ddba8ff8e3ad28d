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
  kAsking,      // it may have stopped: the device is asked what state it is in
  kCancelling,  // it stands in SQD: the replies of wrong transfers are being cancelled
  kResuming,    // error replies are posted, it goes back to RTS
  kFailing,     // it goes to ERR, so that whatever is posted ends
  kEnding,      // it is being destroyed: nothing of it touches memory afterwards
  kDown,
};

enum class QueueEvent : uint8_t {
  kDrained,  // IBV_EVENT_SQ_DRAINED, or another event about this queue
  kQuiet,    // transfers are open and nothing has completed for a while: the event may be lost
  kIsRts,    // the device's answer
  kIsSqd,
  kIsErr,      // for the first time: the request that failed will say why
  kCancelled,  // each wrong transfer's reply, and nothing else
  kResumed,
  kFailed,  // a request failed, the device says ERR and nothing else does, a cancellation took nothing, a command was refused
  kStopped,  // in ERR
  kGone,     // destroyed
};

// False: the event means nothing in this state.
bool Next(QueueState state, QueueEvent event, QueueState* next);

// One line per transition.
std::string PrintTable();

}  // namespace sluice::integrity

#endif  // SLUICE_TRANSPORT_INTEGRITY_STATES_H_
