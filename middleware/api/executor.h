// SPDX-License-Identifier: Apache-2.0
//
// Executor: interface to threads of the user, for handlers that block or take long.
//
//   absl::Status status = server->Register(&reports, {.executor = &pool});  // plain handlers
//   co_await sluice::RunOn(&pool);                                           // coroutines: run_on.h
//
// ThreadPool (thread_pool.h) is an implementation; a user may write another.
//
// Ownership     The user owns it. It outlives the server, and runs all work that it was given.
// Threads       The server's polling thread calls Run(), and so does any thread that awaits
//               RunOn(). The work runs on any other thread.
#ifndef SLUICE_MIDDLEWARE_API_EXECUTOR_H_
#define SLUICE_MIDDLEWARE_API_EXECUTOR_H_

#include "absl/functional/any_invocable.h"

namespace sluice {

class Executor {
 public:
  virtual ~Executor() = default;
  // Runs `work` once on another thread. Must not block. If Run() throws, it must not run `work`:
  // the call ends with UNKNOWN.
  virtual void Run(absl::AnyInvocable<void() &&> work) = 0;
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_EXECUTOR_H_
