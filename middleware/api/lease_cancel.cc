// SPDX-License-Identifier: Apache-2.0
//
// Ending calls that another thread may be working for.
#include <utility>

#include "middleware/api/lease.h"

namespace sluice {

bool Lease::CancelHere(uint64_t call_id) {
  if (HeldByMe()) {
    engine_->Cancel(call_id);
    return true;
  }
  if (!TryAcquire()) return false;
  engine_->Cancel(call_id);
  engine_->Flush();
  Release();
  return true;
}

// Marks the word first: whoever holds the lease then looks at the list before it gives it up.
void Lease::Submit(const Cancellation& cancellation, std::unique_lock<std::mutex>& lock) {
  uint32_t seen = word_.load();
  for (;;) {
    if (!(seen & kHeld)) {
      lock.unlock();
      const bool ended = CancelHere(cancellation.call_id);
      lock.lock();
      if (ended) {
        if (cancellation.done != nullptr) *cancellation.done = true;
        return;
      }
      seen = word_.load();
    } else if (word_.compare_exchange_weak(seen, seen | kSubmitted)) {
      break;
    }
  }
  cancellations_.push_back(cancellation);
  if (seen & kAsleep) endpoint_->Wake();
}

// With the lease, and `lock` on mutex_, which callbacks must not find taken.
void Lease::RunCancellations(std::unique_lock<std::mutex>& lock) {
  while (!cancellations_.empty()) {
    const std::vector<Cancellation> taken = std::exchange(cancellations_, {});
    lock.unlock();
    for (const Cancellation& cancellation : taken) engine_->Cancel(cancellation.call_id);
    engine_->Flush();
    lock.lock();
    for (const Cancellation& cancellation : taken) {
      if (cancellation.done != nullptr) *cancellation.done = true;
    }
    cancelled_.notify_all();
  }
}

void Lease::Cancel(uint64_t call_id) {
  if (CancelHere(call_id)) return;
  std::unique_lock lock(mutex_);
  Submit({call_id, nullptr}, lock);
}

void Lease::CancelAndWait(uint64_t call_id) {
  if (CancelHere(call_id)) return;
  bool done = false;
  std::unique_lock lock(mutex_);
  Submit({call_id, &done}, lock);
  cancelled_.wait(lock, [&done] { return done; });
}

}  // namespace sluice
