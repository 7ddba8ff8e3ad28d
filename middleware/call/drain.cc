// SPDX-License-Identifier: Apache-2.0
#include "middleware/call/drain.h"

#include <algorithm>

#include "transport/base/state_table.h"

namespace sluice::call {
namespace {

using P = DrainPhase;
using E = DrainEvent;

constexpr base::Transition<P, E> kTransitions[] = {
    {P::kServing, E::kStart, P::kTelling},         {P::kTelling, E::kTold, P::kWaiting},
    {P::kTelling, E::kCancelTime, P::kCancelling}, {P::kWaiting, E::kIdle, P::kDrained},
    {P::kWaiting, E::kCancelTime, P::kCancelling}, {P::kCancelling, E::kIdle, P::kDrained},
    {P::kCancelling, E::kDeadline, P::kOverdue},
};

constexpr base::StateTable kTable(kTransitions,
                                  {"serving", "telling", "waiting", "cancelling", "drained",
                                   "overdue"},
                                  {"start", "told", "idle", "time to cancel", "deadline"});

}  // namespace

const char* Name(DrainPhase phase) { return kTable.NameOf(phase); }
const char* Name(DrainEvent event) { return kTable.NameOf(event); }
std::string PrintDrainPhases() { return kTable.Print(); }

DrainPhase PhaseOfAll(std::span<const DrainPhase> phases) {
  const auto [least, most] = std::minmax_element(phases.begin(), phases.end());
  return *least == P::kDrained ? *most : *least;
}

bool Drain::Move(DrainEvent event) { return kTable.Next(phase_, event, &phase_); }

void Drain::Start(int64_t cancel_at_ns, int64_t end_by_ns) {
  cancel_at_ns_ = cancel_at_ns;
  end_by_ns_ = end_by_ns;
  Move(E::kStart);
}

bool Drain::Step(int64_t now_ns, uint64_t untold, uint64_t waiting_replies,
                 size_t calls_under_way) {
  if (untold == 0 && Move(E::kTold)) return true;
  // Once calls are cancelled, the drain no longer waits for peers that have not acknowledged it.
  const bool all_told = untold == 0 || phase_ == P::kCancelling;
  if (all_told && waiting_replies == 0 && calls_under_way == 0 && Move(E::kIdle)) return true;
  if (now_ns >= cancel_at_ns_ && Move(E::kCancelTime)) return true;
  return now_ns >= end_by_ns_ && Move(E::kDeadline);
}

}  // namespace sluice::call
