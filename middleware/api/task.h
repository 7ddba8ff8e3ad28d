// SPDX-License-Identifier: Apache-2.0
//
// Task<T>: a coroutine that gives a T.
//
//   sluice::Task<absl::Status> Serve(...) {
//     absl::StatusOr<Reply> reply = co_await client.CoSay(context, request);
//     …
//     co_return absl::OkStatus();
//   }
//
// It starts when it is awaited, or by Spawn(), and runs where it was started: what it awaits brings it back there, if
// "there" has a Home (a server's polling thread has one); else it goes on where the awaited thing ended, for a call the
// thread that drives its channel. run_on.h has it go on on an executor meanwhile, sleep.h has it wait for a time, when.h
// has it wait for several others.
//
// Who owns it   The Task object owns the coroutine, with all that is in its frame. Destroying one that waits is allowed:
//               what it waits for is given up. It must not be destroyed by another thread than the one it runs on: its
//               home's, and without a home the one that drives what it waits for.
// GCC 12        compiles a coroutine that awaits in a loop and has no local variable to nothing: give it one (docs/threads.md).
// Exceptions    One that leaves the coroutine leaves the co_await that waits for it. Where Spawn() started the coroutine, a
//               result that is a Status or a StatusOr is UNKNOWN then, with the exception's text; with other results, and when
//               `done` throws, the process ends, as with a std::thread: nobody could be told.
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
#include "middleware/call/exceptions.h"
#include "transport/base/mailbox.h"

namespace sluice {
namespace base {
struct Timer;
}

// A thread that coroutines come back to.
class Home {
 public:
  virtual ~Home() = default;
  // Any thread. `node` runs there.
  virtual void Post(base::MailNode* node) = 0;
  // The home's own thread. `node`, which was posted, does not run (base::Mailbox::Remove()). Nothing happens if it has run.
  virtual void TakeBack(base::MailNode* node) = 0;
  // Any thread. Returns whether the calling thread is the home's own.
  virtual bool IsHere() const = 0;
  // The home's own thread. Fires `timer` there after `after_ns` of the home's clock, or never after StopTimer(). The timer
  // belongs to the caller, who stops it before it is destroyed (base::TimerWheel).
  virtual void StartTimer(base::Timer* timer, int64_t after_ns) = 0;
  virtual void StopTimer(base::Timer* timer) = 0;
  // A thread of an executor. Resumes `coroutine`, which belongs to this home, on that thread. The home may be destroyed before
  // it returns.
  virtual void ResumeElsewhere(std::coroutine_handle<> coroutine) { coroutine.resume(); }
};

// Work for a home; part of what a coroutine awaits. Destroyed on the home's own thread.
class HomeMail : private base::MailNode {
 public:
  HomeMail() = default;
  HomeMail(const HomeMail&) = delete;
  HomeMail& operator=(const HomeMail&) = delete;
  ~HomeMail() {
    if (home_ != nullptr) home_->TakeBack(this);
  }
  // Any thread; once until `work` runs. Runs `work(context)` at home, unless this is destroyed before. `this` may be gone when
  // Post() returns.
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
  Home* home_ = nullptr;  // of the work that is posted
  void (*work_)(void* context) = nullptr;
  void* context_ = nullptr;
};

// What is needed to go on with a coroutine at home; part of whatever it awaits.
class Resumption : private base::MailNode {
 public:
  Resumption() = default;
  Resumption(const Resumption&) = delete;
  Resumption& operator=(const Resumption&) = delete;
  // At home. A coroutine that is destroyed while it waits does not go on; by then nobody is in Resume().
  ~Resumption() {
    if (posted_) home_->TakeBack(this);
  }
  template <typename Promise>
  void Set(std::coroutine_handle<Promise> handle) {
    handle_ = handle;
    if constexpr (requires { handle.promise().home; }) home_ = handle.promise().home;
  }
  // nullptr: the coroutine has none.
  Home* home() const { return home_; }
  // Any thread. The coroutine, and this with it, may be gone when it returns.
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

struct TaskPromiseBase {
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

// Runs by itself and owns itself.
struct Detached {
  struct promise_type {
    Home* home = nullptr;
    // The first argument of the coroutine is its home.
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
  // Once.
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

// Starts it now, on this thread; `done` gets its result. `home`: where it comes back to; nullptr: nowhere.
template <typename T, typename Done>
void Spawn(Task<T> task, Done done, Home* home = nullptr) {
  internal::RunDetached(home, std::move(task), std::move(done));
}

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_TASK_H_
