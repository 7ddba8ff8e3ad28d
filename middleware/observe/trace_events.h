// SPDX-License-Identifier: Apache-2.0
//
// TraceEvent: what an engine writes into its trace ring, as a table. A record's `id` is the call's number, `code` an
// absl::StatusCode. A call that is answered at once has one record on each side, if it failed, came when little was going on,
// or is in the sample of those that were timed.
#ifndef SLUICE_MIDDLEWARE_OBSERVE_TRACE_EVENTS_H_
#define SLUICE_MIDDLEWARE_OBSERVE_TRACE_EVENTS_H_

#include <cstdint>

namespace sluice::observe {

enum class TraceEvent : uint16_t {
  kCallWaits = 1,  // at the caller: for a connection or a credit; detail: the method's number
  kCallSent,       // one that has waited; number: for how long, in 1024 ns
  kCallEnded,      // code; detail: the method's number; number: since when, in 1024 ns, about
  kRequest,  // at the server: one that is answered later; detail: the method's number; number: the peer's index
  kReply,     // code; detail: the method's number; number: the peer's index
  kPeerUp,    // number: the peer's index
  kPeerDown,  // code: why; number: the peer's index
};

// "call started", …; "?" for a number that is none.
const char* Name(TraceEvent event);

}  // namespace sluice::observe

#endif  // SLUICE_MIDDLEWARE_OBSERVE_TRACE_EVENTS_H_
