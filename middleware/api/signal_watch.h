// SPDX-License-Identifier: Apache-2.0
//
// SignalWatch: a thread sleeps until the process gets one of some signals, or another thread wakes it. Used by Server::Wait().
//
// What it is    Handlers for the signals while it exists, which wake the thread. The calling thread's mask lets them through
//               meanwhile. Several watches may have the same signals: each hears of them.
// Which thread  The one that creates it waits and destroys it; Wake() any.
// Bound         16 at a time in a process.
// What ends it  Its destructor: the signals then do what they did before, when no other watch has them.
#ifndef SLUICE_MIDDLEWARE_API_SIGNAL_WATCH_H_
#define SLUICE_MIDDLEWARE_API_SIGNAL_WATCH_H_

#include <signal.h>

#include <memory>
#include <vector>

#include "absl/status/statusor.h"

namespace sluice {

class SignalWatch {
 public:
  // INVALID_ARGUMENT: one of `signals` can't be handled. RESOURCE_EXHAUSTED: there are too many watches.
  static absl::StatusOr<std::unique_ptr<SignalWatch>> Create(const std::vector<int>& signals);
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // Returns the signal that came, or 0 after Wake().
  int Wait();
  void Wake();

 private:
  explicit SignalWatch(int slot);

  const int slot_;
  std::vector<int> signals_;  // that have its handler
  sigset_t mask_before_;
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_SIGNAL_WATCH_H_
