// SPDX-License-Identifier: Apache-2.0
//
// SleepFor(): suspends a coroutine for a time, and blocks no thread.
//
//   absl::Status slept = co_await sluice::SleepFor(absl::Seconds(1), context.stop_token());
//   if (!slept.ok()) co_return slept;      // the caller no longer waits
//
// Name          Write sluice::SleepFor. Otherwise the compiler also finds absl::SleepFor(), which
//               blocks the thread, and reports an ambiguity.
// Ownership     A sleeping coroutine may be destroyed at its home.
// Threads       May be awaited on any thread; the coroutine resumes at its home. Any thread may
//               request the stop.
// Clock         The home's clock: for a handler the server's, with a resolution of 16 us. A sleep
//               never ends early, except by a stop.
// End           Without a stop token a handler sleeps to the end, and Server::Shutdown() waits for
//               it.
#ifndef SLUICE_MIDDLEWARE_API_SLEEP_H_
#define SLUICE_MIDDLEWARE_API_SLEEP_H_

#include <algorithm>
#include <coroutine>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "middleware/api/task.h"
#include "transport/base/timer_wheel.h"

namespace sluice {
namespace internal {

// Results of SleepFor() without a home, and after a stop request.
absl::Status NoHomeToSleepAt();
absl::Status SleepStopped();

class [[nodiscard]] SleepAwaiter {
 public:
  SleepAwaiter(int64_t after_ns, std::stop_token stop)
      : after_ns_(after_ns), stop_(std::move(stop)), timer_(&SleepAwaiter::OnTimer, this) {}
  SleepAwaiter(const SleepAwaiter&) = delete;
  SleepAwaiter& operator=(const SleepAwaiter&) = delete;
  ~SleepAwaiter() {
    on_stop_.reset();  // no more mail is posted
    if (timer_.armed()) resumption_.home()->StopTimer(&timer_);
  }

  bool await_ready() const { return false; }
  template <typename Promise>
  bool await_suspend(std::coroutine_handle<Promise> handle) {
    resumption_.Set(handle);
    Home* const home = resumption_.home();
    if (home == nullptr) {
      status_ = NoHomeToSleepAt();
      return false;
    }
    if (home->IsHere()) return Begin();
    arrival_.Post(home, &SleepAwaiter::OnArrival, this);  // *this may be destroyed now
    return true;
  }
  absl::Status await_resume() { return std::move(status_); }

 private:
  struct Stop {
    void operator()() const {
      self->stopping_.Post(self->resumption_.home(), &SleepAwaiter::OnStop, self);
    }
    SleepAwaiter* self;
  };

  // Runs at home, as all functions below. Returns false if there is nothing to wait for.
  bool Begin() {
    if (stop_.stop_requested()) {
      status_ = SleepStopped();
      return false;
    }
    resumption_.home()->StartTimer(&timer_, after_ns_);
    on_stop_.emplace(stop_, Stop{this});
    return true;
  }
  static void OnArrival(void* context) {
    auto* self = static_cast<SleepAwaiter*>(context);
    if (!self->Begin()) self->resumption_.Resume();
  }
  // The coroutine resumes in the next pass, since no timer may be destroyed while timers fire.
  static void OnTimer(base::Timer* /*timer*/, void* context) {
    static_cast<SleepAwaiter*>(context)->resumption_.Resume();
  }
  static void OnStop(void* context) {
    auto* self = static_cast<SleepAwaiter*>(context);
    if (!self->timer_.armed()) return;  // the timer has fired; the coroutine resumes soon
    self->resumption_.home()->StopTimer(&self->timer_);
    self->status_ = SleepStopped();
    self->resumption_.Resume();
  }

  const int64_t after_ns_;
  const std::stop_token stop_;
  absl::Status status_;
  base::Timer timer_;
  Resumption resumption_;
  HomeMail arrival_;   // from an executor
  HomeMail stopping_;  // a stop was requested
  std::optional<std::stop_callback<Stop>> on_stop_;
};

}  // namespace internal

// co_await it at once: gives an absl::Status; OK after `duration`.
// `duration`: zero or less: resumes in a later pass of its home. Infinite: until a stop.
// `stop`: ends the sleep early.
// Errors:
// - CANCELLED: a stop was requested, before the sleep or during it.
// - FAILED_PRECONDITION: the coroutine has no home, and therefore no timers (task.h). Handlers have
//   a home.
[[nodiscard]] inline internal::SleepAwaiter SleepFor(absl::Duration duration,
                                                     std::stop_token stop = {}) {
  constexpr int64_t kLongestNs = INT64_MAX / 4;  // any clock's time plus it does not overflow
  return internal::SleepAwaiter(
      std::clamp<int64_t>(absl::ToInt64Nanoseconds(duration), 0, kLongestNs), std::move(stop));
}

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_SLEEP_H_
