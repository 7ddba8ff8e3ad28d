// SPDX-License-Identifier: Apache-2.0
//
// Activity: an event that a program on a node can observe. The simulation reports it to an Observer, so that
// a driver of many programs need not check all of them after each step.
//
// Threads       One thread.
#ifndef SLUICE_TRANSPORT_SOFTDC_SIM_ACTIVITY_H_
#define SLUICE_TRANSPORT_SOFTDC_SIM_ACTIVITY_H_

#include <cstdint>

namespace sluice::softdc::sim {

enum class Activity : uint8_t {
  kCompletion,  // a completion queue has a new entry
  kFailure,     // as kCompletion, with an error; the request may be unsignaled
  kEvent,       // a descriptor may be readable
  kWritten,     // bytes of a WRITE have landed: visible to a poll of memory; wakes no thread
};

// Called from Simulation::Step and from verbs calls. Implementations only record the event.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void OnActivity(uint32_t node, Activity what) = 0;
};

}  // namespace sluice::softdc::sim

#endif  // SLUICE_TRANSPORT_SOFTDC_SIM_ACTIVITY_H_
