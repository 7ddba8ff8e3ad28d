// SPDX-License-Identifier: Apache-2.0
//
// Drain: the phases in which a server shuts down.
//
//   phase       new calls   waits for
//   serving     accepted
//   telling     refused     peers to acknowledge the drain: they send no more requests, so that the
//                           disconnect loses none
//   waiting     refused     calls in progress to end, and their replies to get credit
//   cancelling  refused     the same; the handlers have been asked to stop
//   drained     refused     nothing: all calls have ended
//   overdue     refused     nothing: the timeout has passed; the counters show the cause
//
// Ownership     ServerEngine owns it.
// Threads       The engine's thread. Time is an argument.
#ifndef SLUICE_MIDDLEWARE_CALL_DRAIN_H_
#define SLUICE_MIDDLEWARE_CALL_DRAIN_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace sluice::call {

enum class DrainPhase : uint8_t { kServing, kTelling, kWaiting, kCancelling, kDrained, kOverdue };

enum class DrainEvent : uint8_t { kStart, kTold, kIdle, kCancelTime, kDeadline };

const char* Name(DrainPhase phase);
const char* Name(DrainEvent event);
// Returns one line per transition, in the order of the table.
std::string PrintDrainPhases();

// Returns the common phase of several pollers (at least one) that drain at the same time: the earliest phase of any poller.
// If all drains are over: overdue if at least one poller is overdue.
DrainPhase PhaseOfAll(std::span<const DrainPhase> phases);

class Drain {
 public:
  DrainPhase phase() const { return phase_; }
  bool started() const { return phase_ != DrainPhase::kServing; }
  bool over() const { return phase_ == DrainPhase::kDrained || phase_ == DrainPhase::kOverdue; }
  // Returns the time of the next Step() if nothing happens before.
  int64_t next_ns() const { return phase_ == DrainPhase::kCancelling ? end_by_ns_ : cancel_at_ns_; }

  void Start(int64_t cancel_at_ns, int64_t end_by_ns);
  // Enters the next phase if its condition holds. Returns true if the phase has changed: call Step() again.
  // `untold`: number of peers that have not acknowledged the drain.
  bool Step(int64_t now_ns, uint64_t untold, uint64_t waiting_replies, size_t calls_under_way);

 private:
  bool Move(DrainEvent event);

  DrainPhase phase_ = DrainPhase::kServing;
  int64_t cancel_at_ns_ = 0;
  int64_t end_by_ns_ = 0;
};

}  // namespace sluice::call

#endif  // SLUICE_MIDDLEWARE_CALL_DRAIN_H_
