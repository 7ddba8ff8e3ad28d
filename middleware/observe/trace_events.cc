// SPDX-License-Identifier: Apache-2.0
#include "middleware/observe/trace_events.h"

namespace sluice::observe {

const char* Name(TraceEvent event) {
  switch (event) {
    case TraceEvent::kCallWaits:
      return "call waits";
    case TraceEvent::kCallSent:
      return "call sent";
    case TraceEvent::kCallEnded:
      return "call ended";
    case TraceEvent::kRequest:
      return "request";
    case TraceEvent::kReply:
      return "reply";
    case TraceEvent::kPeerUp:
      return "peer up";
    case TraceEvent::kPeerDown:
      return "peer down";
  }
  return "?";
}

}  // namespace sluice::observe
