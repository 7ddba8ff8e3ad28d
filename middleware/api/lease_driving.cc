// SPDX-License-Identifier: Apache-2.0
//
// Polling with the lease, and sleeping while there is nothing to do: in a call, and in the user's own loop.
#include <sched.h>

#include <algorithm>
#include <utility>

#include "middleware/api/lease.h"
#include "middleware/api/lease_waiter.h"

namespace sluice {

using internal::kIdlePassesPerLook;
using internal::kYieldAfterNs;
using internal::this_thread;
using internal::WaitReadable;

namespace {

int64_t Least(int64_t a, int64_t b) {  // -1: no limit
  if (a < 0) return b;
  if (b < 0) return a;
  return std::min(a, b);
}

}  // namespace

void Lease::DriveHeld(absl::FunctionRef<bool()> until, int64_t timeout_ns) {
  const int64_t end_ns =
      timeout_ns >= kForeverNs - driven_.now_ns() ? kForeverNs : driven_.now_ns() + timeout_ns;
  uint32_t idle_passes = 0;
  int64_t idle_since_ns = 0;
  while (!until()) {
    if (word_.load(std::memory_order_relaxed) & kSubmitted) StartSubmitted();
    const bool worked = driven_.Poll() > 0;
    const int64_t now_ns = driven_.now_ns();
    if (now_ns >= end_ns) return;
    if (worked) {
      idle_passes = 0;
      continue;
    }
    // Count from the first idle pass that has read the clock: the time of the last work may belong to an earlier call.
    if (++idle_passes == kIdlePassesPerLook) idle_since_ns = now_ns;
    if (idle_passes % kIdlePassesPerLook != 0) continue;
    if (now_ns - idle_since_ns < spin_ns_) {
      if (now_ns - idle_since_ns > kYieldAfterNs) sched_yield();
      continue;
    }
    Sleep(end_ns == kForeverNs ? -1 : end_ns - now_ns);
    idle_passes = 0;
  }
}

void Lease::Sleep(int64_t limit_ns) {
  if (!driven_.PrepareToSleep()) return;
  limit_ns = Least(limit_ns, driven_.SleepLimitNs());
  if (!(word_.fetch_or(kAsleep) & kSubmitted)) {
    pollfd fd{endpoint_->fd(), POLLIN, 0};
    WaitReadable(&fd, 1, limit_ns);
  }
  word_.fetch_and(~uint32_t{kAsleep});
  driven_.AfterSleep();
}

int Lease::Poll() {
  if (loop_ == nullptr || InForkedChild() || HeldByMe()) return 0;
  poller_.store(&this_thread, std::memory_order_relaxed);
  holder_.store(&this_thread, std::memory_order_relaxed);
  touched_ = false;
  int done = CatchUp() ? 1 : 0;
  if (std::exchange(armed_, false)) {
    word_.fetch_and(~uint32_t{kAsleep});
    done += driven_.AfterSleep();
  }
  if (word_.load(std::memory_order_relaxed) & kSubmitted) {
    StartSubmitted();
    ++done;
  }
  done += driven_.Poll();
  holder_.store(nullptr, std::memory_order_relaxed);
  if (later_due_.load(std::memory_order_relaxed)) [[unlikely]]
    RunTheseLater();
  return done;
}

bool Lease::PrepareToSleep() {
  if (loop_ == nullptr || InForkedChild() || HeldByMe() || touched_) return false;
  if (word_.load(std::memory_order_relaxed) & kSubmitted) return false;
  if (!driven_.PrepareToSleep()) return false;
  loop_->WakeAfter(driven_.SleepLimitNs());
  armed_ = true;
  return !(word_.fetch_or(kAsleep) & kSubmitted);
}

void Lease::EndLoop() {
  if (poller_.exchange(nullptr) == nullptr) return;
  holder_.store(nullptr, std::memory_order_relaxed);
  word_.fetch_and(~uint32_t{kAsleep});
  ReleaseSlow();
}

}  // namespace sluice
