// SPDX-License-Identifier: Apache-2.0
//
// Activity: reports that a program on a node has something to look at. A driver of many programs then need not look at all of them after each
// step.
//
// Threads       One thread.
#ifndef SLUICE_TRANSPORT_SOFTDC_SIM_ACTIVITY_H_
#define SLUICE_TRANSPORT_SOFTDC_SIM_ACTIVITY_H_

#include <cstdint>

namespace sluice::softdc::sim {

enum class Activity : uint8_t {
  kCompletion,  // a completion queue has one more
  kFailure,     // likewise, with an error: it may be one that nobody asked for
  kEvent,       // a descriptor may be readable
  kWritten,  // bytes of a WRITE have landed: whoever polls memory sees them, whoever sleeps does not
};

// Told inside Simulation::Step and calls of verbs, so it only takes note.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void OnActivity(uint32_t node, Activity what) = 0;
};

}  // namespace sluice::softdc::sim

#endif  // SLUICE_TRANSPORT_SOFTDC_SIM_ACTIVITY_H_
