// SPDX-License-Identifier: Apache-2.0
//
// The background thread, which drives when no thread waits for a call and no other thread drives.
#include <sched.h>
#include <unistd.h>

#include "middleware/api/lease.h"
#include "middleware/api/lease_waiter.h"

namespace sluice {

using internal::kIdlePassesPerLook;
using internal::kYieldAfterNs;
using internal::this_thread;
using internal::WaitReadable;

void Lease::Poke() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(poke_fd_, &one, sizeof(one));
}

// Returns true if Poke() was called. False: `timeout_ns` has passed, or `extra_fd` (-1: none) is readable.
bool Lease::WaitForPoke(int64_t timeout_ns, int extra_fd) {
  pollfd fds[2] = {{poke_fd_, POLLIN, 0}, {extra_fd, POLLIN, 0}};
  WaitReadable(fds, 2, timeout_ns);
  uint64_t pokes = 0;
  return read(poke_fd_, &pokes, sizeof(pokes)) == sizeof(pokes);
}

void Lease::Background() {
  background_is_.store(&this_thread, std::memory_order_relaxed);
  bool at_once = false;
  while (!stopping_.load()) {
    if (later_due_.load()) {
      RunTheseLater();
      continue;
    }
    if (!at_once && !drive_now_.load()) {
      const uint64_t seen = uses_.load(std::memory_order_relaxed);
      const bool poked = WaitForPoke(kWatchNs, -1);
      if (poked || uses_.load(std::memory_order_relaxed) != seen) continue;
    }
    at_once = false;
    if (TryAcquire()) {
      DriveInBackground();
    } else {
      at_once = HoldOff();
    }
  }
  {
    std::lock_guard lock(mutex_);
    background_ended_ = true;
  }
  // What was left to this thread. If another thread holds the lease, its release starts it.
  if ((word_.load() & kSubmitted) && TryAcquire()) Release();
}

// Called when another thread holds the lease: for longer than a watch period, or since a moment ago.
// Sleeps until the lease is released. Returns true if it was released before.
bool Lease::HoldOff() {
  const bool held = word_.fetch_or(kParked) & kHeld;
  if (held) WaitForPoke(-1, -1);
  word_.fetch_and(~uint32_t{kParked});
  return !held;
}

void Lease::DriveInBackground() {
  uint32_t idle_passes = 0;
  int64_t idle_since_ns = 0;
  drive_now_.store(false);  // only holders write drive_now_
  while (!stopping_.load(std::memory_order_relaxed) &&
         !later_due_.load(std::memory_order_relaxed)) {
    if (word_.load(std::memory_order_relaxed) & kSubmitted) StartSubmitted();
    if (word_.load(std::memory_order_relaxed) & kWaiters) break;  // a thread wants to drive
    if (driven_.Poll() > 0) {
      idle_passes = 0;
      continue;
    }
    if (++idle_passes == kIdlePassesPerLook) idle_since_ns = driven_.now_ns();
    if (idle_passes % kIdlePassesPerLook != 0) continue;
    if (driven_.now_ns() - idle_since_ns < spin_ns_) {
      if (driven_.now_ns() - idle_since_ns > kYieldAfterNs) sched_yield();
      continue;
    }
    if (!driven_.PrepareToSleep()) continue;
    if (!Park()) return;
    idle_passes = 0;
  }
  Release();
}

// Call with the lease, and with armed queues. Sleeps without the lease. Returns true if it has taken the lease again, because there
// is work. Returns false if this thread does not hold the lease.
bool Lease::Park() {
  const int64_t limit_ns = driven_.SleepLimitNs();
  holder_.store(nullptr, std::memory_order_relaxed);
  uint32_t expected = kHeld;
  if (!word_.compare_exchange_strong(expected, kParked)) {  // another thread waits for the lease
    holder_.store(&this_thread, std::memory_order_relaxed);
    return true;
  }
  const bool poked = WaitForPoke(limit_ns, endpoint_->fd());
  word_.fetch_and(~uint32_t{kParked});
  if (stopping_.load() || (poked && !drive_now_.load()) || !TryAcquire()) return false;
  drive_now_.store(false);
  driven_.AfterSleep();
  return true;
}

}  // namespace sluice
