// SPDX-License-Identifier: Apache-2.0
//
// ThreadPool: an Executor with a fixed number of threads and one queue.
//
//   sluice::ThreadPool pool(8);                         // before the server, so that it outlives it
//   auto server = sluice::Server::Create();
//   server->Register(&reports, {.executor = &pool});    // plain handlers that block
//   co_await sluice::RunOn(&pool);                      // coroutines, streaming handlers among them: run_on.h
//
// Order         First in, first out. With one thread the work runs in the order of Run().
// Bounds        None: Run() accepts all work. ExecutorOptions bound the calls that wait for handlers on an executor.
// Ownership     Outlives each Server that it is registered with and each coroutine that runs on it.
// Thread-safety Run() and waiting(): any thread, the pool's own among them.
// Exceptions    An exception that leaves the work ends the process.
// What ends it  The destructor. It runs all work that was given, also what that work gives, then joins the threads. Refused on a
//               thread of the pool itself: a message on standard error, and the process ends.
#ifndef SLUICE_MIDDLEWARE_API_THREAD_POOL_H_
#define SLUICE_MIDDLEWARE_API_THREAD_POOL_H_

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "middleware/api/executor.h"

namespace sluice {

class ThreadPool final : public Executor {
 public:
  // Maximum number of threads of a pool.
  static constexpr unsigned kMaxThreads = 1024;

  // `threads`: number of threads; range: 1 to kMaxThreads, more counts as kMaxThreads; 0, the default: as many as the host has
  // CPUs. If the system refuses to create some of them, the pool runs with those that there are (threads()); if it refuses the
  // first, std::system_error is thrown.
  explicit ThreadPool(unsigned threads = 0);
  ~ThreadPool() override;
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Runs `work` once on a thread of the pool. Does not wait for it.
  void Run(absl::AnyInvocable<void() &&> work) override;

  // Number of threads. Does not change.
  size_t threads() const { return threads_.size(); }
  // Number of pieces of work that no thread has begun.
  size_t waiting() const;

 private:
  void Work();

  mutable std::mutex mutex_;
  std::condition_variable given_;
  std::deque<absl::AnyInvocable<void() &&>> queue_;  // mutex_
  bool ending_ = false;                              // mutex_
  std::vector<std::thread> threads_;
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_THREAD_POOL_H_
