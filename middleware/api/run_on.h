// SPDX-License-Identifier: Apache-2.0
//
// RunOn() and ComeHome(): a coroutine does on an executor what takes long or blocks, and comes back.
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
// or, if it is one piece of work with a result:
//
//     Row row = co_await sluice::RunOn(&pool_, [&] { return ReadFromDisk(i); });
//
// Which thread  After RunOn(executor): the executor's. The coroutine comes home with ComeHome(), RunOn(executor, function),
//               SleepFor(), ServerReader::Read() and ServerWriter::Write(). Another awaitable brings it home if it suspends the
//               coroutine, and leaves it where it is otherwise. Data that handlers share without a lock, and Signal, belong to
//               the home's thread: call ComeHome() before you use them. A handler may co_return from either.
// Without home  A coroutine without a home (task.h) stays on the executor's thread until something that it awaits resumes it
//               elsewhere. ComeHome() does nothing.
// Ownership     The executor outlives the coroutine, and runs everything that it is given. Do not destroy a coroutine that is
//               on an executor or waits for it.
// Bounds        None here: the work waits in the executor's own queue. ExecutorOptions (max_waiting_calls, max_wait) do not
//               apply.
// Ending        Server::Drain() and Server::Shutdown() answer FAILED_PRECONDITION on the executor's thread meanwhile, as in
//               a handler. Elsewhere they wait for the work to end.
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
    // This may be gone before Run() returns.
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
    resumption_.Resume();  // this may be gone now
    return true;
  }
  void await_resume() const {}

 private:
  Resumption resumption_;
};

}  // namespace internal

// co_await it: the coroutine goes on on a thread of `executor`.
[[nodiscard]] inline internal::RunOnAwaiter RunOn(Executor* executor) {
  return internal::RunOnAwaiter(executor);
}

// co_await it: the coroutine goes on at home, at once if it is there. Does nothing without a home.
[[nodiscard]] inline internal::ComeHomeAwaiter ComeHome() { return {}; }

// Runs `function()` on a thread of `executor`, comes home, and gives its result, or throws its exception there.
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
