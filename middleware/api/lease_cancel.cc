// SPDX-License-Identifier: Apache-2.0
//
// Cancels calls that another thread may drive.
#include <utility>

#include "middleware/api/lease.h"

namespace sluice {

bool Lease::CancelHere(Seat* seat, uint64_t call_id) {
  if (HeldByMe()) {
    Enter(seat);
    seat->engine_->Cancel(call_id);
    return true;
  }
  if (!TryAcquire()) return false;
  CatchUp();
  Enter(seat);
  seat->engine_->Cancel(call_id);
  driven_.Flush();
  Release();
  return true;
}

// Marks the word first: the holder of the lease then checks the list before it releases the lease.
void Lease::Submit(const Cancellation& cancellation, std::unique_lock<std::mutex>& lock) {
  // The call of a removed seat has ended, and the seat may be destroyed before the holder checks the list.
  if (cancellation.seat->left_) {
    if (cancellation.done != nullptr) *cancellation.done = true;
    return;
  }
  uint32_t seen = word_.load();
  for (;;) {
    if (!(seen & kHeld)) {
      lock.unlock();
      const bool ended = CancelHere(cancellation.seat, cancellation.call_id);
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

// Call with the lease, and with `lock` on mutex_. Unlocks it while callbacks run.
void Lease::RunCancellations(std::unique_lock<std::mutex>& lock) {
  while (!cancellations_.empty()) {
    const std::vector<Cancellation> taken = std::exchange(cancellations_, {});
    lock.unlock();
    for (const Cancellation& cancellation : taken) {
      Enter(cancellation.seat);
      cancellation.seat->engine_->Cancel(cancellation.call_id);
    }
    driven_.Flush();
    lock.lock();
    for (const Cancellation& cancellation : taken) {
      if (cancellation.done != nullptr) *cancellation.done = true;
    }
    cancelled_.notify_all();
  }
  // Cancellations that were submitted while the callbacks ran have set the bit again.
  ClearSubmitted();
}

void Lease::Cancel(Seat* seat, uint64_t call_id) {
  if (InForkedChild() || CancelHere(seat, call_id)) return;
  std::unique_lock lock(mutex_);
  Submit({seat, call_id, nullptr}, lock);
}

void Lease::CancelAndWait(Seat* seat, uint64_t call_id) {
  if (InForkedChild() || CancelHere(seat, call_id)) return;
  bool done = false;
  std::unique_lock lock(mutex_);
  Submit({seat, call_id, &done}, lock);
  cancelled_.wait(lock, [&done] { return done; });
}

}  // namespace sluice
