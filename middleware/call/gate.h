// SPDX-License-Identifier: Apache-2.0
//
// Gate: sees each request of a ServerEngine before its handler, and each reply. The interceptors of the API implement it.
//
// Ownership     The owner of the engine. The gate outlives the engine.
// Threads       The engine's.
#ifndef SLUICE_MIDDLEWARE_CALL_GATE_H_
#define SLUICE_MIDDLEWARE_CALL_GATE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "middleware/call/method.h"

namespace sluice::call {

class Gate {
 public:
  virtual ~Gate() = default;
  // Called before the handler. If the status is not OK, the engine refuses the request with it.
  virtual absl::Status OnCall(const Incoming& incoming) = 0;
  // Called once for each request that OnCall() accepted, when its call ends.
  virtual void OnEnd(const Incoming& incoming, const absl::Status& status, int64_t now_ns) = 0;
};

}  // namespace sluice::call

#endif  // SLUICE_MIDDLEWARE_CALL_GATE_H_
