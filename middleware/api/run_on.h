// SPDX-License-Identifier: Apache-2.0
//
// RunOn(), ComeHome(): run the blocking parts of a coroutine on an executor, and return to its
// home.
//
//   sluice::Task<absl::Status> Export(sluice::ServerContext&, const Query& query, sluice::ServerWriter<Row> writer) override {
//     Row row;
//     for (int i = 0; i < query.rows(); ++i) {
//       co_await sluice::RunOn(&pool_);          // from here on the pool's thread
//       row = ReadFromDisk(i);
//       if (!co_await writer.Write(row)) break;  // comes home by itself
//     }
//     co_return absl::OkStatus();                // from either thread
//   }
//
// or, for one piece of work with a result:
//
//     Row row = co_await sluice::RunOn(&pool_, [&] { return ReadFromDisk(i); });
//
// Ownership     The executor outlives the coroutine, and runs all work that it is given. Do not
//               destroy a coroutine that is on an executor or waits for it.
// Threads       After RunOn(executor): a thread of the executor. The coroutine returns to its home
//               with ComeHome(), RunOn(executor, function), SleepFor(), ServerReader::Read() and
//               ServerWriter::Write(). Another awaitable returns it to its home only if it suspends
//               the coroutine. Data that handlers share without a lock, and Signal, belong to the
//               home's thread: call ComeHome() before you use them. A handler may co_return on
//               either thread.
// Without home  A coroutine without a home (task.h) stays on the executor's thread until an awaited
//               operation resumes it elsewhere. ComeHome() does nothing.
// Limits        None here: the work waits in the executor's own queue. ExecutorOptions
//               (max_waiting_calls, max_wait) do not apply.
// End           On the executor's thread, Server::Drain() and Server::Shutdown() fail with
//               FAILED_PRECONDITION, as in a handler. On other threads they wait until the work has
//               ended.
#ifndef SLUICE_MIDDLEWARE_API_RUN_ON_H_
#define SLUICE_MIDDLEWARE_API_RUN_ON_H_

#include <coroutine>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

#include "middleware/api/executor.h"
#include "middleware/api/task.h"

namespace sluice {
namespace internal {

class RunOnAwaiter {
 public:
  explicit RunOnAwaiter(Executor* executor) : executor_(executor) {}

  bool await_ready() const { return false; }
  template <typename Promise>
  void await_suspend(std::coroutine_handle<Promise> handle) {
    Home* home = nullptr;
    if constexpr (requires { handle.promise().home; }) home = handle.promise().home;
    // *this may be destroyed before Run() returns.
    executor_->Run([home, coroutine = std::coroutine_handle<>(handle)] {
      if (home == nullptr) return coroutine.resume();
      home->ResumeElsewhere(coroutine);
    });
  }
  void await_resume() const {}

 private:
  Executor* const executor_;
};

class ComeHomeAwaiter {
 public:
  ComeHomeAwaiter() = default;
  ComeHomeAwaiter(const ComeHomeAwaiter&) = delete;
  ComeHomeAwaiter& operator=(const ComeHomeAwaiter&) = delete;

  bool await_ready() const { return false; }
  template <typename Promise>
  bool await_suspend(std::coroutine_handle<Promise> handle) {
    resumption_.Set(handle);
    if (resumption_.home() == nullptr || resumption_.home()->IsHere()) return false;
    resumption_.Resume();  // *this may be destroyed now
    return true;
  }
  void await_resume() const {}

 private:
  Resumption resumption_;
};

}  // namespace internal

// co_await it: continues the coroutine on a thread of `executor`.
[[nodiscard]] inline internal::RunOnAwaiter RunOn(Executor* executor) {
  return internal::RunOnAwaiter(executor);
}

// co_await it: continues the coroutine at its home, without suspending if it is there. Does nothing
// without a home.
[[nodiscard]] inline internal::ComeHomeAwaiter ComeHome() { return {}; }

// co_await it: runs `function()` on a thread of `executor`, returns to the home, and gives the
// result or rethrows the exception.
template <typename Function>
Task<std::invoke_result_t<Function&>> RunOn(Executor* executor, Function function) {
  using Result = std::invoke_result_t<Function&>;
  std::exception_ptr exception;
  std::optional<std::conditional_t<std::is_void_v<Result>, bool, Result>> result;
  co_await RunOn(executor);
  try {
    if constexpr (std::is_void_v<Result>) {
      function();
    } else {
      result.emplace(function());
    }
  } catch (...) {
    exception = std::current_exception();
  }
  co_await ComeHome();
  if (exception) std::rethrow_exception(exception);
  if constexpr (!std::is_void_v<Result>) co_return *std::move(result);
}

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_RUN_ON_H_
