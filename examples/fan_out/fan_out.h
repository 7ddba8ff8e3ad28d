// SPDX-License-Identifier: Apache-2.0
//
// FanOut: starts many calls at the same time. A coroutine waits until the last of them has ended.
//
//   FanOut calls(shards.size());
//   for (size_t i = 0; i < shards.size(); ++i) {
//     calls.Started(i, shards[i].StartFind(context, query, &replies[i], calls.Callback(i)));
//   }
//   co_await calls.All();
//
// Ownership     The coroutine. It must await All() once, because the calls report their end to this object. The calls need deadlines.
// Threads       Callbacks: the threads that drive the channels. The coroutine continues at its home.
#ifndef SLUICE_EXAMPLES_FAN_OUT_FAN_OUT_H_
#define SLUICE_EXAMPLES_FAN_OUT_FAN_OUT_H_

#include <atomic>
#include <coroutine>
#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "middleware/api/client_call.h"
#include "middleware/api/own_copy.h"
#include "middleware/api/task.h"

namespace sluice::examples::fan_out {

class FanOut {
 public:
  explicit FanOut(size_t calls) : statuses_(calls), left_(calls + 1) {}
  FanOut(const FanOut&) = delete;
  FanOut& operator=(const FanOut&) = delete;

  CallCallback Callback(size_t call) {
    return [this, call](const absl::Status& status) { End(call, status); };
  }
  // What StartX() said: a call that did not start has ended.
  void Started(size_t call, const absl::Status& status) {
    if (!status.ok()) End(call, status);
  }
  // After All().
  const absl::Status& status(size_t call) const { return statuses_[call]; }

  auto All() { return Awaiter{this}; }

 private:
  struct Awaiter {
    bool await_ready() { return false; }
    template <typename Promise>
    bool await_suspend(std::coroutine_handle<Promise> handle) {
      self->resumption_.Set(handle);
      return self->left_.fetch_sub(1) != 1;  // 1: all have ended before
    }
    void await_resume() {}
    FanOut* self;
  };

  void End(size_t call, const absl::Status& status) {
    statuses_[call] = OwnCopy(status);
    if (left_.fetch_sub(1) == 1) resumption_.Resume();
  }

  std::vector<absl::Status> statuses_;
  std::atomic<size_t> left_;  // calls, and the coroutine until it waits
  Resumption resumption_;
};

}  // namespace sluice::examples::fan_out

#endif  // SLUICE_EXAMPLES_FAN_OUT_FAN_OUT_H_
