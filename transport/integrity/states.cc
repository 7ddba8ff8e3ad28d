// SPDX-License-Identifier: Apache-2.0
#include "transport/integrity/states.h"

#include <string_view>

namespace sluice::integrity {
namespace {

struct Row {
  QueueState from;
  QueueEvent event;
  QueueState next;
};

using S = QueueState;
using E = QueueEvent;
constexpr Row kRows[] = {
    {S::kRunning, E::kDrained, S::kAsking},   {S::kRunning, E::kQuiet, S::kAsking},
    {S::kAsking, E::kIsRts, S::kRunning},     {S::kAsking, E::kIsSqd, S::kCancelling},
    {S::kAsking, E::kIsErr, S::kRunning},     {S::kCancelling, E::kCancelled, S::kResuming},
    {S::kResuming, E::kResumed, S::kRunning}, {S::kRunning, E::kFailed, S::kFailing},
    {S::kAsking, E::kFailed, S::kFailing},    {S::kCancelling, E::kFailed, S::kFailing},
    {S::kResuming, E::kFailed, S::kFailing},  {S::kFailing, E::kStopped, S::kEnding},
    {S::kEnding, E::kGone, S::kDown},
};

constexpr std::string_view kStates[] = {"running", "asking", "cancelling", "resuming",
                                        "failing", "ending", "down"};
constexpr std::string_view kEvents[] = {"drained",   "quiet",   "is RTS", "is SQD",  "is ERR",
                                        "cancelled", "resumed", "failed", "stopped", "gone"};

}  // namespace

bool Next(QueueState state, QueueEvent event, QueueState* next) {
  for (const Row& row : kRows) {
    if (row.from == state && row.event == event) {
      *next = row.next;
      return true;
    }
  }
  return false;
}

std::string PrintTable() {
  std::string text;
  for (const Row& row : kRows) {
    text.append(kStates[static_cast<size_t>(row.from)])
        .append(": ")
        .append(kEvents[static_cast<size_t>(row.event)])
        .append(" -> ")
        .append(kStates[static_cast<size_t>(row.next)])
        .append("\n");
  }
  return text;
}

}  // namespace sluice::integrity
