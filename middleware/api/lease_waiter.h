// SPDX-License-Identifier: Apache-2.0
//
// Lease::Waiter, and what else the files of the lease share. Private to middleware/api.
#ifndef SLUICE_MIDDLEWARE_API_LEASE_WAITER_H_
#define SLUICE_MIDDLEWARE_API_LEASE_WAITER_H_

#include <poll.h>

#include <condition_variable>
#include <cstdint>
#include <ctime>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "middleware/api/lease.h"

namespace sluice {
namespace internal {

// The engine reads the clock once in this many passes that find nothing.
inline constexpr uint32_t kIdlePassesPerLook = 16;

// man ppoll; an interruption counts as a wake-up.
inline void WaitReadable(pollfd* fds, nfds_t count, int64_t timeout_ns) {
  timespec limit{};
  limit.tv_sec = static_cast<time_t>(timeout_ns / 1'000'000'000);
  limit.tv_nsec = static_cast<long>(timeout_ns % 1'000'000'000);
  ppoll(fds, count, timeout_ns < 0 ? nullptr : &limit, nullptr);
}

}  // namespace internal

// On the stack of the thread that waits. Fields without a note belong to mutex_.
struct Lease::Waiter {
  explicit Waiter(Lease* the_lease, Seat* the_seat = nullptr) : lease(the_lease), seat(the_seat) {}

  Lease* const lease;
  Seat* const seat;                                 // at which it starts or runs something
  const call::CallSpec* spec = nullptr;             // to start
  bool asynchronous = false;                        // wants no more than a start
  const absl::FunctionRef<void()>* work = nullptr;  // to run; with none of them it wants the lease
  const absl::FunctionRef<bool(Event*)>* begin = nullptr;  // to run; false: it waits for the event
  Event event;

  // The holder's while `queued` is false: then the waiter is the holder.
  bool done = false;
  absl::Status status;

  bool waits = false;  // the holder's: it has been started, and has not ended
  // The holder's: it is in the batch that the holder starts. If it ends there, the holder says so after the batch: its thread,
  // and with it this object, stays until then.
  bool in_batch = false;
  bool ended_in_batch = false;

  bool queued = false;  // read by the holder too: it changes only in the hand-over of the lease
  bool started = false;
  bool granted = false;
  Waiter* next = nullptr;  // in waiters_
  Waiter* previous = nullptr;
  Waiter* next_submitted = nullptr;
  std::optional<std::condition_variable> changed;

  // It is in submitted_, or is about to be.
  bool IsToBeStarted() const {
    return !started && (spec != nullptr || work != nullptr || begin != nullptr);
  }
  void End(const absl::Status& how) {
    if (queued) return EndQueued(how);
    status = how;  // it is the holder, this thread
    done = true;
  }
  void EndQueued(const absl::Status& how);
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_LEASE_WAITER_H_
