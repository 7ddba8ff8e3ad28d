// SPDX-License-Identifier: Apache-2.0
//
// OpenCalls: counts the calls that a gateway has open, and limits them.
//
// Purpose       Admit() and Leave() enclose each call. WaitUntilNone() is the end of a gateway: afterwards no call refers to its
//               channel. Calls that have no end of their own, such as a watch of health, give a function that ends them when the
//               gateway drains.
// Ownership     Gateway. It outlives the calls.
// Threads       Any.
#ifndef SLUICE_TOOLS_GATEWAY_OPEN_CALLS_H_
#define SLUICE_TOOLS_GATEWAY_OPEN_CALLS_H_

#include <condition_variable>
#include <cstdint>
#include <list>
#include <mutex>
#include <stop_token>
#include <utility>

namespace sluice::gateway {

class OpenCalls {
 public:
  explicit OpenCalls(uint32_t limit) : limit_(limit) {}
  OpenCalls(const OpenCalls&) = delete;
  OpenCalls& operator=(const OpenCalls&) = delete;

  uint32_t limit() const { return limit_; }
  // True: the call counts until Leave(). False: the limit is reached; Leave() is needed all the same.
  bool Admit() {
    const std::lock_guard lock(mutex_);
    ++open_;
    return open_ <= limit_;
  }
  void Leave() {
    // Notified with the mutex: the waiter may destroy *this as soon as it has it.
    const std::lock_guard lock(mutex_);
    if (--open_ == 0) none_.notify_all();
  }

  // Requests a stop of `stop` when the gateway drains, or now if it does. The state of a stop_source is shared, so the call may
  // end before.
  void EndWhenDraining(const std::stop_source& stop) {
    {
      const std::lock_guard lock(mutex_);
      std::erase_if(endless_, [](const std::stop_source& one) { return one.stop_requested(); });
      if (!draining_) return endless_.push_back(stop);
    }
    std::stop_source(stop).request_stop();
  }
  void Drain() {
    std::list<std::stop_source> endless;
    {
      const std::lock_guard lock(mutex_);
      draining_ = true;
      endless.swap(endless_);
    }
    for (std::stop_source& stop : endless) stop.request_stop();
  }
  bool draining() const {
    const std::lock_guard lock(mutex_);
    return draining_;
  }
  void WaitUntilNone() {
    std::unique_lock lock(mutex_);
    none_.wait(lock, [this] { return open_ == 0; });
  }

 private:
  const uint32_t limit_;
  mutable std::mutex mutex_;
  std::condition_variable none_;
  // Guarded by mutex_:
  uint32_t open_ = 0;
  bool draining_ = false;
  std::list<std::stop_source> endless_;
};

}  // namespace sluice::gateway

#endif  // SLUICE_TOOLS_GATEWAY_OPEN_CALLS_H_
