// SPDX-License-Identifier: Apache-2.0
//
// Drain: how far a server is on its way to its end.
//
//   phase       new calls   what it waits for
//   serving     are run
//   telling     refused     peers to answer that no more requests follow: after that none can be lost with the goodbye
//   waiting     refused     calls under way to end by themselves, and their replies to find credit
//   cancelling  refused     the same; the handlers have been told that nobody waits
//   drained     refused     nothing: all of it has ended
//   overdue     refused     nothing: the time was over before; whose fault it is, is in the counts
//
// Who owns it   ServerEngine, whose thread uses it. Time is an argument.
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
// One line per transition, in the order of the table.
std::string PrintDrainPhases();

// The phase of several pollers that drain beside each other, of which there is one at least: the earliest of any; at the
// end, overdue if one was.
DrainPhase PhaseOfAll(std::span<const DrainPhase> phases);

class Drain {
 public:
  DrainPhase phase() const { return phase_; }
  bool started() const { return phase_ != DrainPhase::kServing; }
  bool over() const { return phase_ == DrainPhase::kDrained || phase_ == DrainPhase::kOverdue; }
  // When to look again though nothing has happened.
  int64_t next_ns() const { return phase_ == DrainPhase::kCancelling ? end_by_ns_ : cancel_at_ns_; }

  void Start(int64_t cancel_at_ns, int64_t end_by_ns);
  // True: it is in the next phase now; ask again.
  // `untold`: peers that have not answered.
  bool Step(int64_t now_ns, uint64_t untold, uint64_t waiting_replies, size_t calls_under_way);

 private:
  bool Move(DrainEvent event);

  DrainPhase phase_ = DrainPhase::kServing;
  int64_t cancel_at_ns_ = 0;
  int64_t end_by_ns_ = 0;
};

}  // namespace sluice::call

#endif  // SLUICE_MIDDLEWARE_CALL_DRAIN_H_
