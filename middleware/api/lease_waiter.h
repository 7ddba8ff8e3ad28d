// SPDX-License-Identifier: Apache-2.0
//
// Lease::Waiter, and helpers that the files of the lease share. Private to middleware/api.
#ifndef SLUICE_MIDDLEWARE_API_LEASE_WAITER_H_
#define SLUICE_MIDDLEWARE_API_LEASE_WAITER_H_

#include <poll.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <ctime>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "middleware/api/lease.h"

namespace sluice {
namespace internal {

// Number of idle passes after which the engine reads the clock.
inline constexpr uint32_t kIdlePassesPerLook = 16;

// Time without events after which a polling thread offers its CPU to other threads: the peer may need the same CPU to reply. This
// costs nothing if each thread has its own CPU. Otherwise a call takes two thread switches instead of two spin periods.
inline constexpr int64_t kYieldAfterNs = 4'000;

// Blocks until a descriptor is readable, `timeout_ns` has passed (negative: no limit), or a signal arrives.
inline void WaitReadable(pollfd* fds, nfds_t count, int64_t timeout_ns) {
  timespec limit{};
  limit.tv_sec = static_cast<time_t>(timeout_ns / 1'000'000'000);
  limit.tv_nsec = static_cast<long>(timeout_ns % 1'000'000'000);
  ppoll(fds, count, timeout_ns < 0 ? nullptr : &limit, nullptr);
}

}  // namespace internal

// A thread that waits for the lease or for a result; on the stack of that thread. mutex_ guards fields without a note. At most one
// of `spec`, `work` and `begin` is set. If none is set, the thread waits for the lease only.
struct Lease::Waiter {
  explicit Waiter(Lease* the_lease, Seat* the_seat = nullptr) : lease(the_lease), seat(the_seat) {}

  Lease* const lease;
  Seat* const seat;                                        // seat of the call or work
  const call::CallSpec* spec = nullptr;                    // call to start
  bool asynchronous = false;                               // waits for the start of the call only
  const absl::FunctionRef<void()>* work = nullptr;         // work to run
  const absl::FunctionRef<bool(Event*)>* begin = nullptr;  // work to run; false: wait for `event`
  Event event;

  // If `queued` is false, the waiter is the holder, and these two need no mutex_.
  bool done = false;
  absl::Status status;

  // These three are used by the holder only. `waits`: the operation was started, and has not ended.
  bool waits = false;
  // The waiter is in the batch that the holder starts. If its operation ends during the batch, the holder notifies the thread after
  // the batch, so that this object exists until then.
  bool in_batch = false;
  bool ended_in_batch = false;

  bool queued = false;  // in waiters_; the holder reads it without mutex_
  bool started = false;
  bool granted = false;
  bool asleep = false;     // the thread waits on `changed`; otherwise it spins
  Waiter* next = nullptr;  // in waiters_
  Waiter* previous = nullptr;
  Waiter* next_submitted = nullptr;
  std::optional<std::condition_variable> changed;
  // `done` or `granted` is set, and the thread may use all fields without mutex_. Set only if it is not asleep.
  std::atomic<bool> over{false};

  // Returns whether the waiter is in submitted_, or is about to be added.
  bool IsToBeStarted() const {
    return !started && (spec != nullptr || work != nullptr || begin != nullptr);
  }
  void End(const absl::Status& how) {
    if (queued) return EndQueued(how);
    status = how;  // this thread is the holder
    done = true;
  }
  void EndQueued(const absl::Status& how);
  // Call with mutex_ locked, after `done` or `granted` was set. A spinning thread may destroy this object at once.
  void WakeThread() {
    if (asleep) {
      changed->notify_one();
    } else {
      over.store(true, std::memory_order_release);
    }
  }
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_LEASE_WAITER_H_
