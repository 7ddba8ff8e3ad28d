// SPDX-License-Identifier: Apache-2.0
//
// Cancels calls that another thread may drive.
#include <optional>
#include <utility>

#include "middleware/api/lease.h"

namespace sluice {

// Returns false if another thread drives.
bool Lease::CancelHere(const Cancellation& cancellation) {
  const bool held = HeldByMe();
  if (!held && !TryAcquire()) return false;
  CancelHeld(cancellation, /*catch_up=*/!held);
  if (held) return true;
  driven_.Flush();
  Release();
  return true;
}

// Call with the lease. A call that has not started is taken out of the list first, so `catch_up` does not start it. No other thread
// finds the call from then on: its owner waits, or is this thread.
void Lease::CancelHeld(const Cancellation& cancellation, bool catch_up) {
  Seat* const seat = cancellation.seat;
  const call::CallControl* const control = cancellation.control;
  std::optional<HandedOver> unstarted;
  if (control != nullptr) {
    const std::lock_guard lock(mutex_);
    unstarted = TakeFirst([control](const HandedOver& one) { return one.spec.control == control; });
  }
  if (catch_up) CatchUp();
  Enter(seat);
  if (unstarted.has_value()) {
    const call::Method& method = *unstarted->spec.method;
    if (unstarted->why.ok()) unstarted->why = seat->engine_->CancelledByCaller(method, true);
    EndUnstarted(&*unstarted);
  } else {
    seat->engine_->Cancel(control == nullptr ? cancellation.call_id : control->call_id.load());
  }
}

// Marks the word first: the holder of the lease then checks the list before it releases the lease.
void Lease::Submit(const Cancellation& cancellation, std::unique_lock<std::mutex>& lock) {
  uint32_t seen = word_.load();
  for (;;) {
    // The call of a removed seat has ended, and the seat may be destroyed before the holder checks the list.
    if (cancellation.seat->left_) {
      if (cancellation.done != nullptr) *cancellation.done = true;
      return;
    }
    if (!(seen & kHeld)) {
      lock.unlock();
      const bool ended = CancelHere(cancellation);
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
    for (const Cancellation& cancellation : taken) CancelHeld(cancellation, /*catch_up=*/false);
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
  const Cancellation cancellation{seat, call_id, nullptr, nullptr};
  if (InForkedChild() || CancelHere(cancellation)) return;
  std::unique_lock lock(mutex_);
  Submit(cancellation, lock);
}

void Lease::CancelAndWait(Seat* seat, call::CallControl* control) {
  control->cancelled.store(true);  // if the call is in the list, it will not be sent
  bool done = false;
  const Cancellation cancellation{seat, 0, control, &done};
  if (InForkedChild() || CancelHere(cancellation)) return;
  std::unique_lock lock(mutex_);
  Submit(cancellation, lock);
  cancelled_.wait(lock, [&done] { return done; });
}

}  // namespace sluice
