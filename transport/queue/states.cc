// SPDX-License-Identifier: Apache-2.0
#include "transport/queue/states.h"

namespace sluice::queue {
namespace {

template <typename S, typename E>
struct Row {
  S from;
  E event;
  S next;
};

using D = DciState;
using DE = DciEvent;
constexpr Row<D, DE> kDciRows[] = {
    {D::kReady, DE::kFatal, D::kDraining},       {D::kReady, DE::kStuck, D::kResetting},
    {D::kDraining, DE::kDrained, D::kResetting}, {D::kDraining, DE::kStuck, D::kResetting},
    {D::kDraining, DE::kRefused, D::kDead},      {D::kResetting, DE::kRecovered, D::kReady},
    {D::kResetting, DE::kRefused, D::kDead},
};

using S = StreamState;
using SE = StreamEvent;
constexpr Row<S, SE> kStreamRows[] = {
    {S::kFree, SE::kBind, S::kBound},
    {S::kBound, SE::kIdle, S::kFree},
    {S::kBound, SE::kLeave, S::kLeft},
    {S::kLeft, SE::kIdle, S::kFree},
    {S::kBound, SE::kError, S::kErrored},
    {S::kLeft, SE::kError, S::kErrored},
    {S::kErrored, SE::kFlushed, S::kResetting},
    {S::kResetting, SE::kReset, S::kFree},
    // Whole-DCI recovery clears whatever there was.
    {S::kErrored, SE::kReset, S::kFree},
    {S::kBound, SE::kReset, S::kFree},
    {S::kLeft, SE::kReset, S::kFree},
};

constexpr std::string_view kDciStates[] = {"ready", "draining", "resetting", "dead"};
constexpr std::string_view kDciEvents[] = {"fatal", "stuck", "drained", "recovered", "refused"};
constexpr std::string_view kStreamStates[] = {"free", "bound", "left", "errored", "resetting"};
constexpr std::string_view kStreamEvents[] = {"bind", "idle", "leave", "error", "flushed", "reset"};

template <typename Rows, typename St, typename Ev>
bool Find(const Rows& rows, St state, Ev event, St* next) {
  for (const auto& row : rows) {
    if (row.from == state && row.event == event) {
      *next = row.next;
      return true;
    }
  }
  return false;
}

template <typename Rows>
void Print(const char* who, const Rows& rows, const std::string_view* states,
           const std::string_view* events, std::string* text) {
  for (const auto& row : rows) {
    *text += std::string(who) + " " + std::string(states[static_cast<size_t>(row.from)]) + ": " +
             std::string(events[static_cast<size_t>(row.event)]) + " -> " +
             std::string(states[static_cast<size_t>(row.next)]) + "\n";
  }
}

}  // namespace

bool Next(DciState state, DciEvent event, DciState* next) {
  return Find(kDciRows, state, event, next);
}

bool Next(StreamState state, StreamEvent event, StreamState* next) {
  return Find(kStreamRows, state, event, next);
}

std::string_view Name(DciState state) { return kDciStates[static_cast<size_t>(state)]; }

std::string PrintTables() {
  std::string text;
  Print("dci", kDciRows, kDciStates, kDciEvents, &text);
  Print("stream", kStreamRows, kStreamStates, kStreamEvents, &text);
  return text;
}

}  // namespace sluice::queue
