// SPDX-License-Identifier: Apache-2.0
//
// OpenCalls: counts the calls that a gateway has open, and limits them.
//
// Purpose       Admit() and Leave() enclose each call. WaitUntilNone() is the end of a gateway: afterwards no call refers to its
//               channel. Calls that have no end of their own, such as a watch of health, are stopped when the gateway drains.
//               EndAll() stops all calls.
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

  using Place = std::list<std::stop_source>::const_iterator;

  uint32_t limit() const { return limit_; }
  // True: the call counts until Leave(). False: the limit is reached; Leave() is needed all the same. `stop`: stops the call.
  bool Admit(const std::stop_source& stop, Place* place) {
    std::list<std::stop_source> one = {stop};  // allocates without the mutex
    *place = one.begin();
    bool admitted = false;
    bool ended = false;
    {
      const std::lock_guard lock(mutex_);
      open_.splice(open_.end(), one);
      admitted = open_.size() <= limit_;
      ended = ended_;
    }
    if (ended) std::stop_source(stop).request_stop();
    return admitted;
  }
  void Leave(Place place) {
    std::list<std::stop_source> one;
    // Notified with the mutex: the waiter may destroy *this as soon as it has it.
    const std::lock_guard lock(mutex_);
    one.splice(one.end(), open_, place);
    if (open_.empty()) none_.notify_all();
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
  // Requests a stop of each open call, and of those that arrive later. After Drain().
  void EndAll() {
    std::list<std::stop_source> open;
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
      open = open_;
    }
    for (std::stop_source& stop : open) stop.request_stop();
  }
  bool draining() const {
    const std::lock_guard lock(mutex_);
    return draining_;
  }
  void WaitUntilNone() {
    std::unique_lock lock(mutex_);
    none_.wait(lock, [this] { return open_.empty(); });
  }

 private:
  const uint32_t limit_;
  mutable std::mutex mutex_;
  std::condition_variable none_;
  // Guarded by mutex_:
  std::list<std::stop_source> open_;
  bool draining_ = false;
  bool ended_ = false;
  std::list<std::stop_source> endless_;
};

}  // namespace sluice::gateway

#endif  // SLUICE_TOOLS_GATEWAY_OPEN_CALLS_H_
