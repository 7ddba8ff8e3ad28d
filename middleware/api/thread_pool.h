// SPDX-License-Identifier: Apache-2.0
//
// ThreadPool: an Executor with a fixed number of threads and one queue.
//
//   sluice::ThreadPool pool(8);                         // before the server, so that it outlives it
//   auto server = sluice::Server::Create();
//   server->Register(&reports, {.executor = &pool});    // plain handlers that block
//   co_await sluice::RunOn(&pool);                      // coroutines, streaming handlers among them: run_on.h
//
// Ownership     The user owns it. It outlives each Server that uses it and each coroutine that runs
//               on it.
// Threads       Run() and waiting(): any thread, the pool's included.
// Order         First in, first out. With one thread, work runs in the order of Run().
// Limits        None: Run() accepts all work. ExecutorOptions limit the number of calls that wait
//               for a handler on an executor.
// Exceptions    An exception that leaves the work ends the process.
// End           The destructor runs all queued work, and work that this work adds, then joins the
//               threads. On a thread of the pool it writes a message to standard error and ends the
//               process.
// Processes     In a forked child the pool has no threads: Run() destroys the work, and the destructor
//               returns at once. The parent's pool is not affected.
#ifndef SLUICE_MIDDLEWARE_API_THREAD_POOL_H_
#define SLUICE_MIDDLEWARE_API_THREAD_POOL_H_

#include <cstddef>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "middleware/api/executor.h"

namespace sluice {

class ThreadPool final : public Executor {
 public:
  // Maximum number of threads of a pool.
  static constexpr unsigned kMaxThreads = 1024;

  // `threads`: number of threads. Range: 1 to kMaxThreads; a larger value counts as kMaxThreads. 0
  // (default): number of CPUs of the host. If the system refuses to create some threads, the pool
  // runs with the others (threads()). If it refuses the first, the constructor throws
  // std::system_error.
  explicit ThreadPool(unsigned threads = 0);
  ~ThreadPool() override;
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Runs `work` once on a thread of the pool. Does not wait for it.
  void Run(absl::AnyInvocable<void() &&> work) override;

  // Number of threads. Does not change, except that it is 0 in a forked child.
  size_t threads() const;
  // Number of pieces of work that no thread has started.
  size_t waiting() const;

 private:
  struct State;

  std::unique_ptr<State> state_;
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_THREAD_POOL_H_
