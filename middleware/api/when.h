// SPDX-License-Identifier: Apache-2.0
//
// WhenAll(), WhenAny(): run several tasks at the same time in a coroutine.
//
//   std::stop_source rest;
//   std::stop_callback too(context.stop_token(), [&rest] { rest.request_stop(); });   // the caller's stop stops them, too
//   sluice::CallContext onward = sluice::CallContext::FromServer(context);
//   onward.set_stop_token(rest.get_token());
//   auto [price, stock] = co_await sluice::WhenAll(rest, AskPrice(&onward), AskStock(&onward));
//   auto first = co_await sluice::WhenAny(rest, AskOne(&onward), AskOther(&onward));   // first.value, first.index
//
// WhenAll       Gives all results, in the order of the tasks. Requests the stop when a task returns
//               an absl::Status or absl::StatusOr that is not OK, or throws. After all tasks have
//               ended, rethrows the exception of the first task that threw.
// WhenAny       Gives result and index of the task that ended first, successful or not, and then
//               requests the stop. If that task threw, rethrows its exception. Discards results and
//               exceptions of the other tasks.
// Results       A void result is std::monostate. All tasks of a list have the same type.
// Ownership     A suspended coroutine may be destroyed as task.h describes, and its tasks with it,
//               if none of them is on an executor.
// Threads       Tasks start one after another on the awaiting thread; each runs until it is first
//               suspended. All tasks have the home of the awaiting coroutine, which resumes there.
//               Without a home it resumes where the last task ended.
// End           Both wait until all tasks have ended, so tasks may use data of the waiting
//               coroutine. They end the remaining tasks early by a stop request at `rest`: give its
//               token to the calls and sleeps of the tasks. A task that does not check the token
//               runs to its end.
#ifndef SLUICE_MIDDLEWARE_API_WHEN_H_
#define SLUICE_MIDDLEWARE_API_WHEN_H_

#include <atomic>
#include <coroutine>
#include <cstddef>
#include <exception>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "middleware/api/run_on.h"
#include "middleware/api/task.h"

namespace sluice {

// Result of WhenAny().
template <typename T>
struct FirstOf {
  size_t index;  // index of the task that ended first
  T value;
};

namespace internal {

template <typename T>
using ResultOf = std::conditional_t<std::is_void_v<T>, std::monostate, T>;

inline bool Failed(const absl::Status& status) { return !status.ok(); }
template <typename T>
bool Failed(const absl::StatusOr<T>& result) {
  return !result.ok();
}
template <typename T>
bool Failed(const T&) {
  return false;
}

// State that branches share with the waiting coroutine.
class Join {
 public:
  Join(std::stop_source rest, bool first_ends) : rest_(std::move(rest)), first_ends_(first_ends) {}
  Join(const Join&) = delete;
  Join& operator=(const Join&) = delete;

  // A task has ended; its branch has not. Any thread.
  void OnTaskEnd(size_t index, bool failed) {
    size_t none = kNone;
    const bool first = first_.compare_exchange_strong(none, index, std::memory_order_acq_rel);
    if (first_ends_ ? first : failed) rest_.request_stop();
  }
  // A branch has ended. Returns the coroutine to resume. Any thread.
  std::coroutine_handle<> OnBranchEnd() {
    if (left_.fetch_sub(1, std::memory_order_acq_rel) != 1) return std::noop_coroutine();
    Home* const home = resumption_.home();
    if (home == nullptr || home->IsHere()) return waiting_;
    resumption_.Resume();
    return std::noop_coroutine();
  }
  size_t first() const { return first_.load(std::memory_order_relaxed); }

 protected:
  template <typename Promise>
  void Begin(size_t branches, std::coroutine_handle<Promise> waiting) {
    left_.store(branches + 1, std::memory_order_relaxed);  // one more for the start itself
    waiting_ = waiting;
    resumption_.Set(waiting);
  }
  Home* home() const { return resumption_.home(); }

 private:
  static constexpr size_t kNone = static_cast<size_t>(-1);

  std::stop_source rest_;
  const bool first_ends_;
  std::atomic<size_t> left_{0};
  std::atomic<size_t> first_{kNone};
  std::coroutine_handle<> waiting_;
  Resumption resumption_;
};

// The coroutine that runs one of the tasks.
class Branch {
 public:
  struct promise_type {
    Home* home = nullptr;
    Join* join;

    template <typename... Rest>
    explicit promise_type(Join* the_join, Rest&&...) : join(the_join) {}
    Branch get_return_object() {
      return Branch(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_always initial_suspend() noexcept { return {}; }
    struct FinalAwaiter {
      bool await_ready() noexcept { return false; }
      // The resumed coroutine may destroy the branch.
      std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> handle) noexcept {
        return handle.promise().join->OnBranchEnd();
      }
      void await_resume() noexcept {}
    };
    FinalAwaiter final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }  // exceptions of the task are caught
  };

  Branch(Branch&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Branch& operator=(Branch&&) = delete;
  ~Branch() {
    if (handle_) handle_.destroy();
  }
  void Begin(Home* home) {
    handle_.promise().home = home;
    handle_.resume();
  }

 private:
  explicit Branch(std::coroutine_handle<promise_type> handle) : handle_(handle) {}

  std::coroutine_handle<promise_type> handle_;
};

// The result of a task, or its exception.
template <typename T>
struct Outcome {
  ResultOf<T> Take() {
    if (exception) std::rethrow_exception(exception);
    return *std::move(value);
  }

  std::optional<ResultOf<T>> value;
  std::exception_ptr exception;
};

template <typename T>
Branch RunBranch(Join* join, size_t index, Task<T> task, Outcome<T>* outcome) {
  bool failed = false;
  try {
    if constexpr (std::is_void_v<T>) {
      co_await task;
      outcome->value.emplace();
    } else {
      outcome->value.emplace(co_await task);
      failed = Failed(*outcome->value);
    }
  } catch (...) {
    outcome->exception = std::current_exception();
    failed = true;
  }
  co_await ComeHome();  // stop callbacks, for example of Signal, run at the home only
  join->OnTaskEnd(index, failed);
}

// co_await it: starts all branches; resumes when all have ended.
class Branches : public Join {
 public:
  using Join::Join;

  template <typename T>
  void Add(Task<T> task, Outcome<T>* outcome) {
    branches_.push_back(RunBranch<T>(this, branches_.size(), std::move(task), outcome));
  }
  bool await_ready() const { return false; }
  template <typename Promise>
  std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> waiting) {
    Begin(branches_.size(), waiting);
    for (Branch& branch : branches_) branch.Begin(home());
    return OnBranchEnd();
  }
  void await_resume() const {}

 private:
  std::vector<Branch> branches_;
};

template <typename... Ts, size_t... kIndexes>
Task<std::tuple<ResultOf<Ts>...>> AllOf(std::stop_source rest, std::tuple<Task<Ts>...> tasks,
                                        std::index_sequence<kIndexes...>) {
  std::tuple<Outcome<Ts>...> outcomes;
  Branches branches(std::move(rest), /*first_ends=*/false);
  (branches.Add(std::move(std::get<kIndexes>(tasks)), &std::get<kIndexes>(outcomes)), ...);
  co_await branches;
  // Braces evaluate in the order of the tasks.
  co_return std::tuple<ResultOf<Ts>...>{std::get<kIndexes>(outcomes).Take()...};
}

}  // namespace internal

// `rest`: a stop is requested here when a task fails.
template <typename... Ts>
Task<std::tuple<internal::ResultOf<Ts>...>> WhenAll(std::stop_source rest, Task<Ts>... tasks) {
  return internal::AllOf(std::move(rest), std::tuple<Task<Ts>...>(std::move(tasks)...),
                         std::index_sequence_for<Ts...>());
}
// The same without a stop request.
template <typename... Ts>
Task<std::tuple<internal::ResultOf<Ts>...>> WhenAll(Task<Ts>... tasks) {
  return WhenAll(std::stop_source(std::nostopstate), std::move(tasks)...);
}

// The same for a list of tasks, which may be empty.
template <typename T>
Task<std::vector<internal::ResultOf<T>>> WhenAll(std::stop_source rest,
                                                 std::vector<Task<T>> tasks) {
  std::vector<internal::Outcome<T>> outcomes(tasks.size());
  internal::Branches branches(std::move(rest), /*first_ends=*/false);
  for (size_t i = 0; i < tasks.size(); ++i) branches.Add(std::move(tasks[i]), &outcomes[i]);
  co_await branches;
  std::vector<internal::ResultOf<T>> results;
  results.reserve(outcomes.size());
  for (internal::Outcome<T>& outcome : outcomes) results.push_back(outcome.Take());
  co_return results;
}
template <typename T>
Task<std::vector<internal::ResultOf<T>>> WhenAll(std::vector<Task<T>> tasks) {
  return WhenAll(std::stop_source(std::nostopstate), std::move(tasks));
}

// `rest`: a stop is requested here when the first task has ended. Throws std::invalid_argument if
// `tasks` is empty.
template <typename T>
Task<FirstOf<internal::ResultOf<T>>> WhenAny(std::stop_source rest, std::vector<Task<T>> tasks) {
  if (tasks.empty()) throw std::invalid_argument("WhenAny: the list of tasks is empty");
  std::vector<internal::Outcome<T>> outcomes(tasks.size());
  internal::Branches branches(std::move(rest), /*first_ends=*/true);
  for (size_t i = 0; i < tasks.size(); ++i) branches.Add(std::move(tasks[i]), &outcomes[i]);
  co_await branches;
  const size_t first = branches.first();
  co_return FirstOf<internal::ResultOf<T>>{first, outcomes[first].Take()};
}
template <typename T, typename... Ts>
requires(std::is_same_v<T, Ts>&&...) Task<FirstOf<internal::ResultOf<T>>> WhenAny(
    std::stop_source rest, Task<T> first, Task<Ts>... others) {
  std::vector<Task<T>> tasks;
  tasks.reserve(1 + sizeof...(others));
  tasks.push_back(std::move(first));
  (tasks.push_back(std::move(others)), ...);
  return WhenAny(std::move(rest), std::move(tasks));
}

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_WHEN_H_
