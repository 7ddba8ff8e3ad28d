// SPDX-License-Identifier: Apache-2.0
#include "transport/integrity/states.h"

#include "transport/base/state_table.h"

namespace sluice::integrity {
namespace {

using S = QueueState;
using E = QueueEvent;

constexpr base::Transition<S, E> kRows[] = {
    {S::kRunning, E::kDrained, S::kAsking},   {S::kRunning, E::kQuiet, S::kAsking},
    {S::kAsking, E::kIsRts, S::kRunning},     {S::kAsking, E::kIsSqd, S::kCancelling},
    {S::kAsking, E::kIsErr, S::kRunning},     {S::kCancelling, E::kCancelled, S::kResuming},
    {S::kResuming, E::kResumed, S::kRunning}, {S::kRunning, E::kFailed, S::kFailing},
    {S::kAsking, E::kFailed, S::kFailing},    {S::kCancelling, E::kFailed, S::kFailing},
    {S::kResuming, E::kFailed, S::kFailing},  {S::kFailing, E::kStopped, S::kEnding},
    {S::kEnding, E::kGone, S::kDown},
};

constexpr base::StateTable kTable(kRows,
                                  {"running", "asking", "cancelling", "resuming", "failing",
                                   "ending", "down"},
                                  {"drained", "quiet", "is RTS", "is SQD", "is ERR", "cancelled",
                                   "resumed", "failed", "stopped", "gone"});

}  // namespace

bool Next(QueueState state, QueueEvent event, QueueState* next) {
  return kTable.Next(state, event, next);
}

std::string PrintTable() { return kTable.Print(); }

}  // namespace sluice::integrity
