// SPDX-License-Identifier: Apache-2.0
//
// Task<T>: a coroutine with a result of type T.
//
//   sluice::Task<absl::Status> Serve(...) {
//     absl::StatusOr<Reply> reply = co_await client.CoSay(context, request);
//     …
//     co_return absl::OkStatus();
//   }
//
// It starts when it is awaited, or by Spawn(), on that thread. If the coroutine has a Home (a
// server's polling thread is one), each awaited operation resumes it at its home. Otherwise it
// resumes where the operation ended: for a call, on the thread that drives the channel. run_on.h
// moves it to an executor, sleep.h suspends it for a time, when.h runs several tasks at the same
// time.
//
// Ownership     The Task object owns the coroutine and its frame. A suspended task may be
//               destroyed: the awaited operation is abandoned. Destroy it only on the thread that
//               it runs on: its home's thread, or without a home the thread that drives the awaited
//               operation.
// GCC 12        Compiles a coroutine to nothing if it awaits in a loop and has no local variable:
//               give it one (docs/threads.md).
// Exceptions    An exception that leaves the coroutine leaves the co_await that waits for it. If
//               Spawn() started the coroutine, a result of type Status or StatusOr is UNKNOWN with
//               the exception's text. With other results, and when `done` throws, the process ends,
//               as with a std::thread.
#ifndef SLUICE_MIDDLEWARE_API_TASK_H_
#define SLUICE_MIDDLEWARE_API_TASK_H_

#include <coroutine>
#include <cstdint>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "middleware/api/frame_memory.h"
#include "middleware/call/exceptions.h"
#include "transport/base/mailbox.h"

namespace sluice {
namespace base {
struct Timer;
}

// A thread at which coroutines resume.
class Home {
 public:
  virtual ~Home() = default;
  // Runs `node` at the home. Any thread.
  virtual void Post(base::MailNode* node) = 0;
  // Withdraws `node`, which was posted (base::Mailbox::Remove()). No effect if it has run. Home's
  // thread only.
  virtual void Withdraw(base::MailNode* node) = 0;
  // Returns whether the calling thread is the home's. Any thread.
  virtual bool IsHere() const = 0;
  // Fires `timer` at the home `after_ns` nanoseconds of the home's clock later, or never after
  // StopTimer(). The caller owns the timer, and stops it before it destroys it (base::TimerWheel).
  // Home's thread only.
  virtual void StartTimer(base::Timer* timer, int64_t after_ns) = 0;
  virtual void StopTimer(base::Timer* timer) = 0;
  // Resumes `coroutine`, which belongs to this home, on the calling thread, which is an executor's.
  // The home may be destroyed before this returns.
  virtual void ResumeElsewhere(std::coroutine_handle<> coroutine) { coroutine.resume(); }
};

// Work for a home; part of an awaitable. Destroyed on the home's thread.
class HomeMail : private base::MailNode {
 public:
  HomeMail() = default;
  HomeMail(const HomeMail&) = delete;
  HomeMail& operator=(const HomeMail&) = delete;
  ~HomeMail() {
    if (home_ != nullptr) home_->Withdraw(this);
  }
  // Runs `work(context)` at the home, unless *this is destroyed before. Any thread; not again until
  // `work` runs. *this may be destroyed when Post() returns.
  void Post(Home* home, void (*work)(void* context), void* context) {
    home_ = home;
    work_ = work;
    context_ = context;
    run = [](base::MailNode* node) {
      auto* self = static_cast<HomeMail*>(node);
      self->home_ = nullptr;
      self->work_(self->context_);
    };
    home->Post(this);
  }

 private:
  Home* home_ = nullptr;  // home of the posted work
  void (*work_)(void* context) = nullptr;
  void* context_ = nullptr;
};

// Resumes a coroutine at its home; part of every awaitable.
class Resumption : private base::MailNode {
 public:
  Resumption() = default;
  Resumption(const Resumption&) = delete;
  Resumption& operator=(const Resumption&) = delete;
  // Call at the home. A coroutine that is destroyed while it waits does not resume; no thread may
  // be in Resume().
  ~Resumption() {
    if (posted_) home_->Withdraw(this);
  }
  template <typename Promise>
  void Set(std::coroutine_handle<Promise> handle) {
    handle_ = handle;
    if constexpr (requires { handle.promise().home; }) home_ = handle.promise().home;
  }
  // The coroutine's home; nullptr: none.
  Home* home() const { return home_; }
  // Resumes the coroutine. Any thread. The coroutine and *this may be destroyed when it returns.
  void Resume() {
    if (home_ == nullptr) return handle_.resume();
    run = [](base::MailNode* node) {
      auto* self = static_cast<Resumption*>(node);
      self->posted_ = false;
      self->handle_.resume();
    };
    posted_ = true;
    home_->Post(this);
  }

 private:
  std::coroutine_handle<> handle_;
  Home* home_ = nullptr;
  bool posted_ = false;
};

template <typename T>
class Task;

namespace internal {

struct TaskPromiseBase : FrameMemory {
  Home* home = nullptr;
  std::coroutine_handle<> continuation;
  std::exception_ptr exception;

  std::suspend_always initial_suspend() noexcept { return {}; }
  struct FinalAwaiter {
    bool await_ready() noexcept { return false; }
    template <typename Promise>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> handle) noexcept {
      return handle.promise().continuation;
    }
    void await_resume() noexcept {}
  };
  FinalAwaiter final_suspend() noexcept { return {}; }
  void unhandled_exception() { exception = std::current_exception(); }
};

template <typename T>
struct TaskPromise : TaskPromiseBase {
  std::optional<T> value;
  Task<T> get_return_object();
  template <typename U>
  void return_value(U&& result) {
    value.emplace(std::forward<U>(result));
  }
  T Take() {
    if (exception) std::rethrow_exception(exception);
    return *std::move(value);
  }
};

template <>
struct TaskPromise<void> : TaskPromiseBase {
  Task<void> get_return_object();
  void return_void() {}
  void Take() {
    if (exception) std::rethrow_exception(exception);
  }
};

// A coroutine that starts at once and owns itself.
struct Detached {
  struct promise_type : FrameMemory {
    Home* home = nullptr;
    // The coroutine's first argument is its home.
    template <typename... Rest>
    explicit promise_type(Home* the_home, Rest&&...) : home(the_home) {}
    Detached get_return_object() { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
};

}  // namespace internal

template <typename T = void>
class [[nodiscard]] Task {
 public:
  using promise_type = internal::TaskPromise<T>;

  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    if (this != &other) {
      if (handle_) handle_.destroy();
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  ~Task() {
    if (handle_) handle_.destroy();
  }

  struct Awaiter {
    std::coroutine_handle<promise_type> handle;
    bool await_ready() { return false; }
    template <typename Promise>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> awaiting) {
      handle.promise().continuation = awaiting;
      if constexpr (requires { awaiting.promise().home; }) {
        handle.promise().home = awaiting.promise().home;
      }
      return handle;
    }
    T await_resume() { return handle.promise().Take(); }
  };
  // Await a task once.
  Awaiter operator co_await() const { return Awaiter{handle_}; }

 private:
  friend promise_type;
  explicit Task(std::coroutine_handle<promise_type> handle) : handle_(handle) {}

  std::coroutine_handle<promise_type> handle_;
};

namespace internal {

template <typename T>
Task<T> TaskPromise<T>::get_return_object() {
  return Task<T>(std::coroutine_handle<TaskPromise<T>>::from_promise(*this));
}
inline Task<void> TaskPromise<void>::get_return_object() {
  return Task<void>(std::coroutine_handle<TaskPromise<void>>::from_promise(*this));
}

template <typename Done>
Detached RunDetached(Home*, Task<void> task, Done done) {
  co_await std::move(task);
  done();
}
template <typename T>
inline constexpr bool kTellsErrors = std::is_same_v<T, absl::Status>;
template <typename T>
inline constexpr bool kTellsErrors<absl::StatusOr<T>> = true;

template <typename T, typename Done>
Detached RunDetached(Home*, Task<T> task, Done done) {
  if constexpr (kTellsErrors<T>) {
    T result = absl::UnknownError("");
    try {
      result = co_await std::move(task);
    } catch (...) {
      result = call::StatusOfException("coroutine", "coroutine", "");
    }
    done(std::move(result));
  } else {
    done(co_await std::move(task));
  }
}

}  // namespace internal

// Starts `task` now, on this thread; `done` gets its result. `home`: home of the task; nullptr
// (default): no home.
template <typename T, typename Done>
void Spawn(Task<T> task, Done done, Home* home = nullptr) {
  internal::RunDetached(home, std::move(task), std::move(done));
}

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_TASK_H_
