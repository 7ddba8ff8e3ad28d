// SPDX-License-Identifier: Apache-2.0
#include "transport/cm/states.h"

#include <array>

namespace sluice::cm {
namespace {

using enum State;
using S = State;
using E = Event;
using A = Action;

struct Row {
  State from;
  Event event;
  Action action;
  State next;
};

constexpr Row kRows[] = {
    {S::kIdle, E::kConnectCalled, A::kWait, S::kBackingOff},
    {S::kBackingOff, E::kTryAgain, A::kResolveName, S::kResolvingName},
    {S::kBackingOff, E::kNextAddress, A::kResolveAddress, S::kResolvingAddress},
    {S::kResolvingName, E::kNameResolved, A::kResolveAddress, S::kResolvingAddress},
    {S::kResolvingAddress, E::kAddressResolved, A::kResolveRoute, S::kResolvingRoute},
    {S::kResolvingRoute, E::kRouteResolved, A::kConnect, S::kConnecting},
    {S::kConnecting, E::kResponse, A::kReadPath, S::kResponding},
    {S::kResponding, E::kPathRead, A::kTellResponse, S::kResponded},
    {S::kResponded, E::kEstablishCalled, A::kEstablish, S::kEstablishing},
    {S::kResponded, E::kRejectCalled, A::kReject, S::kDestroying},
    {S::kEstablishing, E::kEstablishSent, A::kTellUp, S::kEstablished},

    {S::kIdle, E::kRequest, A::kReadPath, S::kRequesting},
    {S::kRequesting, E::kPathRead, A::kTellRequest, S::kRequested},
    {S::kRequested, E::kAcceptCalled, A::kAccept, S::kAccepting},
    {S::kRequested, E::kRejectCalled, A::kReject, S::kDestroying},
    {S::kAccepting, E::kEstablishedSeen, A::kTellUp, S::kEstablished},

    {S::kResolvingName, E::kRetryable, A::kWait, S::kBackingOff},
    {S::kResolvingAddress, E::kRetryable, A::kWait, S::kBackingOff},
    {S::kResolvingRoute, E::kRetryable, A::kWait, S::kBackingOff},
    {S::kConnecting, E::kRetryable, A::kWait, S::kBackingOff},

    // There is no row for kFailed: a late event of the last try does not end the attempt.
    {S::kBackingOff, E::kDeadline, A::kTellDownAndDestroy, S::kDestroying},
    {S::kBackingOff, E::kCloseCalled, A::kDestroy, S::kDestroying},

    {S::kEstablished, E::kDisconnected, A::kTellDownAndAnswer, S::kTimewait},
    {S::kEstablished, E::kFailed, A::kTellDownAndDestroy, S::kDestroying},
    {S::kEstablished, E::kCloseCalled, A::kDisconnect, S::kClosing},
    {S::kClosing, E::kDisconnected, A::kAnswerAndKeep, S::kTimewait},
    {S::kClosing, E::kFailed, A::kDestroy, S::kDestroying},
    {S::kClosing, E::kDeadline, A::kDestroy, S::kDestroying},
    {S::kTimewait, E::kTimewaitExit, A::kDestroy, S::kDestroying},
    {S::kTimewait, E::kFailed, A::kDestroy, S::kDestroying},
    {S::kTimewait, E::kDeadline, A::kDestroy, S::kDestroying},
    {S::kDestroying, E::kDestroyed, A::kFree, S::kIdle},
};

// States before kEstablished: each failure ends the attempt, and Close() sends no DREQ.
constexpr State kAttempts[] = {kResolvingName, kResolvingAddress, kResolvingRoute, kConnecting,
                               kResponding,    kResponded,        kEstablishing,   kRequesting,
                               kRequested,     kAccepting};
constexpr Event kEnds[] = {E::kFailed, E::kDisconnected, E::kDeadline};

using Table = std::array<std::array<Transition, kEventCount>, kStateCount>;

constexpr Table MakeTable() {
  Table table = {};
  for (int state = 0; state < kStateCount; ++state) {
    for (Transition& cell : table[state]) cell.next = static_cast<State>(state);
  }
  for (const Row& row : kRows) {
    table[static_cast<int>(row.from)][static_cast<int>(row.event)] = {row.action, row.next};
  }
  for (State state : kAttempts) {
    auto& cells = table[static_cast<int>(state)];
    // If a request ends before OnRequest(), the user gets no OnDown().
    const Action end = state == kRequesting ? A::kDestroy : A::kTellDownAndDestroy;
    for (Event event : kEnds) cells[static_cast<int>(event)] = {end, S::kDestroying};
    cells[static_cast<int>(E::kCloseCalled)] = {A::kDestroy, S::kDestroying};
  }
  return table;
}

constexpr Table kTable = MakeTable();

}  // namespace

Transition Next(State state, Event event) {
  return kTable[static_cast<size_t>(state)][static_cast<size_t>(event)];
}

std::string_view Name(State state) {
  static constexpr std::string_view kNames[kStateCount] = {
      "idle",       "backing off", "resolving name", "resolving address", "resolving route",
      "connecting", "responding",  "responded",      "establishing",      "requesting",
      "requested",  "accepting",   "established",    "closing",           "timewait",
      "destroying"};
  return kNames[static_cast<size_t>(state)];
}

std::string_view Name(Event event) {
  static constexpr std::string_view kNames[kEventCount] = {
      "connect called", "try again",     "next address",  "name resolved",    "address resolved",
      "route resolved", "response",      "path read",     "establish called", "establish sent",
      "request",        "accept called", "reject called", "established seen", "retryable",
      "failed",         "disconnected",  "timewait exit", "close called",     "deadline",
      "destroyed"};
  return kNames[static_cast<size_t>(event)];
}

std::string_view Name(Action action) {
  static constexpr std::string_view kNames[] = {"ignore",
                                                "wait",
                                                "resolve name",
                                                "resolve address",
                                                "resolve route",
                                                "connect",
                                                "read path",
                                                "tell response",
                                                "establish",
                                                "tell request",
                                                "accept",
                                                "reject",
                                                "tell up",
                                                "tell down, destroy",
                                                "tell down, answer",
                                                "disconnect",
                                                "answer, keep",
                                                "destroy",
                                                "free"};
  return kNames[static_cast<size_t>(action)];
}

std::string PrintTable() {
  std::string text;
  for (int state = 0; state < kStateCount; ++state) {
    for (int event = 0; event < kEventCount; ++event) {
      const Transition& cell = kTable[static_cast<size_t>(state)][static_cast<size_t>(event)];
      if (cell.action == Action::kIgnore) continue;
      text += std::string(Name(static_cast<State>(state))) + ": " +
              std::string(Name(static_cast<Event>(event))) + " -> " +
              std::string(Name(cell.action)) + " -> " + std::string(Name(cell.next)) + "\n";
    }
  }
  return text;
}

}  // namespace sluice::cm
