// SPDX-License-Identifier: Apache-2.0
//
// Gate: who sees each request of a ServerEngine before its handler does, and its answer. The API's interceptors stand
// behind it.
//
// Who owns it   Whoever made the engine; it outlives it.
// Which thread  The engine's.
#ifndef SLUICE_MIDDLEWARE_CALL_GATE_H_
#define SLUICE_MIDDLEWARE_CALL_GATE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "middleware/call/method.h"

namespace sluice::call {

class Gate {
 public:
  virtual ~Gate() = default;
  // Not OK: the request is refused with it.
  virtual absl::Status OnCall(const Incoming& incoming) = 0;
  // Once for each that was let in.
  virtual void OnEnd(const Incoming& incoming, const absl::Status& status, int64_t now_ns) = 0;
};

}  // namespace sluice::call

#endif  // SLUICE_MIDDLEWARE_CALL_GATE_H_
