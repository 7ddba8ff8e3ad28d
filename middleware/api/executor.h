// SPDX-License-Identifier: Apache-2.0
//
// Executor: threads of the user's on which handlers may run that take long or block.
//
//   absl::Status status = server->Register(&reports, {.executor = &pool});  // plain handlers
//   co_await sluice::RunOn(&pool);                                           // coroutines: run_on.h
//
// ThreadPool (thread_pool.h) is one; a user may write another.
//
// Thread-safety Run() is called by the server's polling thread, and by whatever thread RunOn() is awaited on. What it is given
//               runs on any other.
// What ends it  The executor outlives the server, and runs everything that it was given.
#ifndef SLUICE_MIDDLEWARE_API_EXECUTOR_H_
#define SLUICE_MIDDLEWARE_API_EXECUTOR_H_

#include "absl/functional/any_invocable.h"

namespace sluice {

class Executor {
 public:
  virtual ~Executor() = default;
  // Must not block. If it throws, it must not run `work` any more: the call ends with UNKNOWN.
  virtual void Run(absl::AnyInvocable<void() &&> work) = 0;
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_EXECUTOR_H_
