// SPDX-License-Identifier: Apache-2.0
#include "middleware/call/drain.h"

namespace sluice::call {
namespace {

using P = DrainPhase;
using E = DrainEvent;

struct Transition {
  DrainPhase from;
  DrainEvent event;
  DrainPhase to;
};

constexpr Transition kTransitions[] = {
    {P::kServing, E::kStart, P::kTelling},          //
    {P::kTelling, E::kTold, P::kWaiting},           //
    {P::kTelling, E::kCancelTime, P::kCancelling},  //
    {P::kWaiting, E::kIdle, P::kDrained},           //
    {P::kWaiting, E::kCancelTime, P::kCancelling},  //
    {P::kCancelling, E::kIdle, P::kDrained},        //
    {P::kCancelling, E::kDeadline, P::kOverdue},    //
};

}  // namespace

const char* Name(DrainPhase phase) {
  switch (phase) {
    case P::kServing:
      return "serving";
    case P::kTelling:
      return "telling";
    case P::kWaiting:
      return "waiting";
    case P::kCancelling:
      return "cancelling";
    case P::kDrained:
      return "drained";
    case P::kOverdue:
      return "overdue";
  }
  return "?";
}

const char* Name(DrainEvent event) {
  switch (event) {
    case E::kStart:
      return "start";
    case E::kTold:
      return "told";
    case E::kIdle:
      return "idle";
    case E::kCancelTime:
      return "time to cancel";
    case E::kDeadline:
      return "deadline";
  }
  return "?";
}

std::string PrintDrainPhases() {
  std::string text;
  for (const Transition& t : kTransitions) {
    text += std::string(Name(t.from)) + " --" + Name(t.event) + "--> " + Name(t.to) + "\n";
  }
  return text;
}

bool Drain::Move(DrainEvent event) {
  for (const Transition& t : kTransitions) {
    if (t.from != phase_ || t.event != event) continue;
    phase_ = t.to;
    return true;
  }
  return false;
}

void Drain::Start(int64_t cancel_at_ns, int64_t end_by_ns) {
  cancel_at_ns_ = cancel_at_ns;
  end_by_ns_ = end_by_ns;
  Move(E::kStart);
}

bool Drain::Step(int64_t now_ns, uint64_t untold, uint64_t waiting_replies,
                 size_t calls_under_way) {
  if (untold == 0 && Move(E::kTold)) return true;
  // When calls are cancelled nobody who is silent is waited for any more.
  const bool heard = untold == 0 || phase_ == P::kCancelling;
  if (heard && waiting_replies == 0 && calls_under_way == 0 && Move(E::kIdle)) return true;
  if (now_ns >= cancel_at_ns_ && Move(E::kCancelTime)) return true;
  return now_ns >= end_by_ns_ && Move(E::kDeadline);
}

}  // namespace sluice::call
