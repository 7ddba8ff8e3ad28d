// SPDX-License-Identifier: Apache-2.0
//
// SignalWatch: lets a thread sleep until the process receives one of the given signals, or another thread wakes it. Used by
// Server::Wait().
//
// Purpose       While it exists, handlers of the signals wake the thread, and the thread does not block the signals. If several
//               watches have the same signal, it wakes all their threads.
// Threads       One thread creates it, waits and destroys it. Wake(): any.
// Limits        16 at a time in a process.
// End           The destructor restores the earlier handlers when no other watch has the signals. A forked child has the earlier handlers from
//               the beginning, and no watches. A handler that the program has set since then stays. A signal handler must not fork.
#ifndef SLUICE_MIDDLEWARE_API_SIGNAL_WATCH_H_
#define SLUICE_MIDDLEWARE_API_SIGNAL_WATCH_H_

#include <signal.h>

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "middleware/api/fork_count.h"

namespace sluice {

class SignalWatch {
 public:
  // Creates a watch for this thread. INVALID_ARGUMENT: one of `signals` cannot be handled. RESOURCE_EXHAUSTED: too many watches.
  static absl::StatusOr<std::unique_ptr<SignalWatch>> Create(const std::vector<int>& signals);
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // Blocks until a signal arrives or Wake() is called. Returns the signal, or 0 after Wake().
  int Wait();
  void Wake();

 private:
  explicit SignalWatch(int slot);

  const internal::Creator creator_;
  const int slot_;
  std::vector<int> signals_;  // signals whose handler this watch needs
  sigset_t mask_before_;
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_SIGNAL_WATCH_H_
