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
    {S::kFree, E::kConnect, S::kConnecting},        {S::kFree, E::kRequest, S::kAccepting},
    {S::kConnecting, E::kEstablished, S::kProving}, {S::kConnecting, E::kFailed, S::kDraining},
    {S::kConnecting, E::kDisconnect, S::kDraining}, {S::kProving, E::kProven, S::kUp},
    {S::kProving, E::kFailed, S::kDraining},        {S::kProving, E::kDisconnect, S::kDraining},
    {S::kAccepting, E::kEstablished, S::kUnproven}, {S::kAccepting, E::kProven, S::kUp},
    {S::kAccepting, E::kRefused, S::kLeaving},      {S::kAccepting, E::kFailed, S::kDraining},
    {S::kAccepting, E::kDisconnect, S::kDraining},  {S::kUnproven, E::kProven, S::kUp},
    {S::kUnproven, E::kRefused, S::kLeaving},       {S::kUnproven, E::kFailed, S::kDraining},
    {S::kUnproven, E::kDisconnect, S::kDraining},   {S::kUp, E::kFailed, S::kDraining},
    {S::kUp, E::kDisconnect, S::kLeaving},          {S::kLeaving, E::kFailed, S::kDraining},
    {S::kLeaving, E::kGoodbyeSent, S::kDraining},   {S::kDraining, E::kQuiet, S::kFree},
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
  static constexpr std::string_view kNames[kStateCount] = {
      "free", "connecting", "proving", "accepting", "unproven", "up", "leaving", "draining"};
  return kNames[static_cast<size_t>(state)];
}

std::string_view Name(Event event) {
  static constexpr std::string_view kNames[kEventCount] = {
      "connect", "request",    "established",  "proven", "refused",
      "failed",  "disconnect", "goodbye sent", "quiet"};
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
