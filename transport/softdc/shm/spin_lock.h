// SPDX-License-Identifier: Apache-2.0
//
// A spin lock for critical sections of a few dozen instructions, as a provider has around each queue.
// Contention is rare: one thread uses a queue, and the Loop thread uses it only while an entry of the queue
// waits.
#ifndef SLUICE_TRANSPORT_SOFTDC_SHM_SPIN_LOCK_H_
#define SLUICE_TRANSPORT_SOFTDC_SHM_SPIN_LOCK_H_

#include <sched.h>

#include <atomic>

#include "absl/base/thread_annotations.h"

namespace sluice::softdc {

class ABSL_LOCKABLE SpinLock {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    if (held_.exchange(true, std::memory_order_acquire)) [[unlikely]]
      LockContended();
  }
  void Unlock() ABSL_UNLOCK_FUNCTION() { held_.store(false, std::memory_order_release); }
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) {
    return !held_.exchange(true, std::memory_order_acquire);
  }

 private:
  static constexpr int kSpinsBeforeYield = 100;
  [[gnu::noinline]] void LockContended() {
    for (int spins = 0; held_.exchange(true, std::memory_order_acquire); ++spins) {
      if (spins > kSpinsBeforeYield) sched_yield();
    }
  }
  std::atomic<bool> held_{false};
};

class ABSL_SCOPED_LOCKABLE SpinLockHolder {
 public:
  explicit SpinLockHolder(SpinLock& lock) ABSL_EXCLUSIVE_LOCK_FUNCTION(lock) : lock_(lock) {
    lock_.Lock();
  }
  ~SpinLockHolder() ABSL_UNLOCK_FUNCTION() { lock_.Unlock(); }
  SpinLockHolder(const SpinLockHolder&) = delete;
  SpinLockHolder& operator=(const SpinLockHolder&) = delete;

 private:
  SpinLock& lock_;
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_SHM_SPIN_LOCK_H_
