// SPDX-License-Identifier: Apache-2.0
//
// TraceEvent: the events that an engine writes into its trace ring. A record's `id` is the number
// of the call, `code` an absl::StatusCode. A call that is answered at once has one record on each
// side if it failed, arrived at low load, or was selected for timing.
#ifndef SLUICE_MIDDLEWARE_OBSERVE_TRACE_EVENTS_H_
#define SLUICE_MIDDLEWARE_OBSERVE_TRACE_EVENTS_H_

#include <cstdint>

namespace sluice::observe {

enum class TraceEvent : uint16_t {
  kCallWaits = 1,  // caller: waits for a connection or credit; detail: number of the method
  kCallSent,       // caller: a call that waited; number: duration of the wait, in units of 1024 ns
  kCallEnded,      // code; detail: number of the method; number: duration, in units of 1024 ns
  kRequest,   // server: asynchronous call; detail: number of the method; number: index of the peer
  kReply,     // code; detail: number of the method; number: index of the peer
  kPeerUp,    // number: index of the peer
  kPeerDown,  // code: reason; number: index of the peer
};

// Returns the name of the event, "call waits", …; "?" for an unknown number.
const char* Name(TraceEvent event);

}  // namespace sluice::observe

#endif  // SLUICE_MIDDLEWARE_OBSERVE_TRACE_EVENTS_H_
