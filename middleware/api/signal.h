// SPDX-License-Identifier: Apache-2.0
//
// Signal: coroutines of one thread wait until another coroutine notifies them.
//
//   while (!stop.stop_requested() && !HasNews()) co_await news.Wait(stop);     // in one handler
//   news.NotifyAll();                                                          // in another
//
// Ownership     Outlives the coroutines that wait.
// Threads       One: the home of all waiting coroutines. NotifyAll() is called and stops are
//               requested there. For handlers' contexts this is the server's polling thread.
#ifndef SLUICE_MIDDLEWARE_API_SIGNAL_H_
#define SLUICE_MIDDLEWARE_API_SIGNAL_H_

#include <coroutine>
#include <optional>
#include <stop_token>
#include <utility>

#include "middleware/api/task.h"

namespace sluice {

class Signal {
 public:
  class Waiter {
   public:
    Waiter(Signal* signal, std::stop_token stop) : signal_(signal), stop_(std::move(stop)) {}
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;
    ~Waiter() { Unlink(); }

    bool await_ready() { return stop_.stop_requested(); }
    template <typename Promise>
    void await_suspend(std::coroutine_handle<Promise> handle) {
      resumption_.Set(handle);
      previous_ = &signal_->first_;
      next_ = signal_->first_;
      if (next_ != nullptr) next_->previous_ = &next_;
      signal_->first_ = this;
      on_stop_.emplace(stop_, Stop{this});
    }
    void await_resume() {}

   private:
    friend class Signal;
    struct Stop {
      void operator()() const { self->GoOn(); }
      Waiter* self;
    };

    // Returns false if the coroutine was resumed before.
    bool Unlink() {
      if (previous_ == nullptr) return false;
      *previous_ = next_;
      if (next_ != nullptr) next_->previous_ = previous_;
      previous_ = nullptr;
      return true;
    }
    void GoOn() {
      if (Unlink()) resumption_.Resume();
    }

    Signal* const signal_;
    const std::stop_token stop_;
    Resumption resumption_;
    Waiter** previous_ = nullptr;  // pointer to this waiter; nullptr: not linked
    Waiter* next_ = nullptr;
    std::optional<std::stop_callback<Stop>> on_stop_;
  };

  Signal() = default;
  Signal(const Signal&) = delete;
  Signal& operator=(const Signal&) = delete;

  // co_await it: resumes after the next NotifyAll(), or when a stop is requested.
  Waiter Wait(std::stop_token stop = {}) { return Waiter(this, std::move(stop)); }

  void NotifyAll() {
    // Coroutines that wait again during this call are not notified again.
    Waiter* list = std::exchange(first_, nullptr);
    if (list != nullptr) list->previous_ = &list;
    while (list != nullptr) list->GoOn();
  }

 private:
  Waiter* first_ = nullptr;
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_SIGNAL_H_
