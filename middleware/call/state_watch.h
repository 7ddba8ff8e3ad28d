// SPDX-License-Identifier: Apache-2.0
//
// StateWatch: waits until the state() of a ClientEngine changes, or until a deadline.
//
// Ownership     The waiter owns it, from ClientEngine::Watch() until `done` or
//               ClientEngine::Unwatch().
// Threads       The thread that drives the engine.
// End           `done` runs once: in Poll(), AfterSleep(), EndCallsOf() or Close(). It may destroy the watch, and
//               start others.
#ifndef SLUICE_MIDDLEWARE_CALL_STATE_WATCH_H_
#define SLUICE_MIDDLEWARE_CALL_STATE_WATCH_H_

#include <cstdint>

#include "middleware/call/connection_state.h"
#include "middleware/call/method.h"
#include "transport/base/timer_wheel.h"

namespace sluice::call {

class ClientEngine;

struct StateWatch {
  ConnectionState seen = ConnectionState::kIdle;
  int64_t deadline_ns = kNoDeadlineNs;  // in the engine's clock
  void (*done)(StateWatch* watch) = nullptr;
  void* argument = nullptr;
  const void* owner = nullptr;  // for ClientEngine::EndCallsOf()
  // The first state that differed from `seen`; `seen` if the deadline has passed.
  ConnectionState now = ConnectionState::kIdle;
  // The members below belong to the engine.
  ClientEngine* engine = nullptr;  // nullptr: not waiting
  base::Timer timer;
};

}  // namespace sluice::call

#endif  // SLUICE_MIDDLEWARE_CALL_STATE_WATCH_H_
