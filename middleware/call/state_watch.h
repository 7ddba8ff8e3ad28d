// SPDX-License-Identifier: Apache-2.0
//
// StateWatch: waits until a ClientEngine's state() is another one, or until its time is over.
//
// Who owns it   Who waits, from ClientEngine::Watch() until `done` or ClientEngine::Unwatch().
// Which thread  The one that drives the engine.
// What ends it  `done`, once: in Poll(), AfterSleep() or Close(). It may destroy the watch, and start others.
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
  int64_t deadline_ns = kNoDeadlineNs;  // of the engine's clock
  void (*done)(StateWatch* watch) = nullptr;
  void* argument = nullptr;
  // The first state that was another one than `seen`; `seen` if the time is over.
  ConnectionState now = ConnectionState::kIdle;
  // The rest is the engine's.
  ClientEngine* engine = nullptr;  // nullptr: it does not wait
  base::Timer timer;
};

}  // namespace sluice::call

#endif  // SLUICE_MIDDLEWARE_CALL_STATE_WATCH_H_
