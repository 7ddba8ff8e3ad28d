// SPDX-License-Identifier: Apache-2.0
#include "transport/lane/states.h"

namespace sluice::lane {
namespace {

using S = State;
using E = Event;

struct Row {
  State from;
  Event event;
  State next;
};

constexpr Row kRows[] = {
    {S::kMaking, E::kMade, S::kOffered},     {S::kMaking, E::kLost, S::kFreeing},
    {S::kOffered, E::kAnswered, S::kPolled}, {S::kOffered, E::kHush, S::kHushing},
    {S::kOffered, E::kLost, S::kFreeing},    {S::kPolled, E::kHush, S::kHushing},
    {S::kPolled, E::kClose, S::kClosing},    {S::kPolled, E::kLost, S::kFreeing},
    {S::kHushing, E::kEmpty, S::kAnnounced}, {S::kHushing, E::kLost, S::kFreeing},
    {S::kAnnounced, E::kWake, S::kWaking},   {S::kAnnounced, E::kClose, S::kClosing},
    {S::kAnnounced, E::kLost, S::kFreeing},  {S::kWaking, E::kAnswered, S::kPolled},
    {S::kWaking, E::kHush, S::kHushing},     {S::kWaking, E::kLost, S::kFreeing},
    {S::kClosing, E::kEmpty, S::kFreeing},   {S::kClosing, E::kLost, S::kFreeing},
    {S::kFreeing, E::kFreed, S::kGone},
};

}  // namespace

bool Next(State state, Event event, State* next) {
  for (const Row& row : kRows) {
    if (row.from == state && row.event == event) {
      *next = row.next;
      return true;
    }
  }
  return false;
}

std::string_view Name(State state) {
  static constexpr std::string_view kNames[kStateCount] = {"making",  "offered",   "polled",
                                                           "hushing", "announced", "waking",
                                                           "closing", "freeing",   "gone"};
  return kNames[static_cast<size_t>(state)];
}

std::string_view Name(Event event) {
  static constexpr std::string_view kNames[kEventCount] = {"made",  "answered", "hush", "wake",
                                                           "close", "empty",    "lost", "freed"};
  return kNames[static_cast<size_t>(event)];
}

std::string PrintTable() {
  std::string text;
  for (const Row& row : kRows) {
    text += std::string(Name(row.from)) + ": " + std::string(Name(row.event)) + " -> " +
            std::string(Name(row.next)) + "\n";
  }
  return text;
}

}  // namespace sluice::lane
