// SPDX-License-Identifier: Apache-2.0
#include "transport/peer/states.h"

namespace sluice::peer {
namespace {

using S = State;
using E = Event;

struct Row {
  State from;
  Event event;
  State next;
};

constexpr Row kRows[] = {
    {S::kFree, E::kConnect, S::kConnecting},
    {S::kFree, E::kRequest, S::kAccepting},
    {S::kConnecting, E::kEstablished, S::kUp},
    {S::kConnecting, E::kFailed, S::kDraining},
    {S::kConnecting, E::kDisconnect, S::kDraining},
    {S::kAccepting, E::kEstablished, S::kUp},
    {S::kAccepting, E::kFailed, S::kDraining},
    {S::kAccepting, E::kDisconnect, S::kDraining},
    {S::kUp, E::kFailed, S::kDraining},
    {S::kUp, E::kDisconnect, S::kLeaving},
    {S::kLeaving, E::kFailed, S::kDraining},
    {S::kLeaving, E::kGoodbyeSent, S::kDraining},
    {S::kDraining, E::kQuiet, S::kFree},
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
  static constexpr std::string_view kNames[kStateCount] = {"free", "connecting", "accepting",
                                                           "up",   "leaving",    "draining"};
  return kNames[static_cast<size_t>(state)];
}

std::string_view Name(Event event) {
  static constexpr std::string_view kNames[kEventCount] = {
      "connect", "request", "established", "failed", "disconnect", "goodbye sent", "quiet"};
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

}  // namespace sluice::peer
