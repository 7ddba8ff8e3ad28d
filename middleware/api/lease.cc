// SPDX-License-Identifier: Apache-2.0
//
// The protocol of the lease over one word: take the lease, wait for it, start submitted work, release it. The functions are correct
// only together.
#include "middleware/api/lease.h"

#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "middleware/api/lease_waiter.h"
#include "middleware/api/own_copy.h"

namespace sluice {

using internal::this_thread;

void Lease::WaiterList::PushBack(Waiter* waiter) {
  waiter->next = nullptr;
  waiter->previous = last_;
  (last_ == nullptr ? first_ : last_->next) = waiter;
  last_ = waiter;
}

void Lease::WaiterList::Remove(Waiter* waiter) {
  (waiter->previous == nullptr ? first_ : waiter->previous->next) = waiter->next;
  (waiter->next == nullptr ? last_ : waiter->next->previous) = waiter->previous;
}

Lease::Lease(call::Driven driven, endpoint::Endpoint* endpoint, int64_t spin_ns,
             std::unique_ptr<LoopDescriptor> loop)
    : driven_(driven),
      endpoint_(endpoint),
      spin_ns_(spin_ns),
      poke_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      loop_(std::move(loop)) {
  if (poke_fd_ < 0) abort();  // no file descriptors left: the lease cannot work
  if (loop_ != nullptr) {
    word_.store(kHeld);
    poller_.store(&this_thread);
    return;
  }
  endpoint_->AllowBlocking();  // a thread that drives waits for a call
  background_ = std::thread([this] {
    Background();
    if (last_ == nullptr) return;
    background_.detach();
    last_(last_argument_);
  });
}

Lease::~Lease() {
  Stop();
  close(poke_fd_);
}

void Lease::Stop() {
  if (!background_.joinable()) return;
  stopping_.store(true);
  Poke();
  background_.join();
}

bool Lease::EndInBackground(void (*last)(void*), void* argument) {
  if (!background_.joinable()) return false;
  last_ = last;
  last_argument_ = argument;
  stopping_.store(true);
  Poke();
  return true;
}

// ---- Taking and releasing the lease

bool Lease::TryAcquire() {
  uint32_t seen = word_.load(std::memory_order_relaxed);
  while (!(seen & kHeld)) {
    if (word_.compare_exchange_weak(seen, seen | kHeld, std::memory_order_acquire,
                                    std::memory_order_relaxed)) {
      holder_.store(&this_thread, std::memory_order_relaxed);
      return true;
    }
  }
  if (poller_.load(std::memory_order_relaxed) != &this_thread) return false;
  holder_.store(&this_thread, std::memory_order_relaxed);  // the loop always holds the lease
  return true;
}

void Lease::Release(Use use) {
  if (poller_.load(std::memory_order_relaxed) != nullptr) {
    holder_.store(nullptr, std::memory_order_relaxed);
    touched_ = true;
    if (armed_) endpoint_->Wake();
    if (later_due_.load(std::memory_order_relaxed)) [[unlikely]]
      RunTheseLater();
    return;
  }
  if (use == Use::kDriven) {
    uses_.store(uses_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  holder_.store(nullptr, std::memory_order_relaxed);
  if (!driven_.HasCalls()) {
    uint32_t expected = kHeld;
    if (word_.compare_exchange_strong(expected, 0, std::memory_order_release,
                                      std::memory_order_relaxed)) {
      return;
    }
  }
  ReleaseSlow();
}

void Lease::ReleaseSlow() {
  bool poke = false;
  {
    std::unique_lock lock(mutex_);
    Waiter* next = nullptr;
    bool again = false;
    while (next == nullptr && MustStartBeforeRelease(again)) {
      if (std::exchange(again, true)) {
        // Other threads continue to submit, and none of them can take over. Handle replies and deadlines meanwhile.
        holder_.store(&this_thread, std::memory_order_relaxed);  // callbacks run here
        lock.unlock();
        driven_.Poll();
        lock.lock();
        holder_.store(nullptr, std::memory_order_relaxed);
      }
      holder_.store(&this_thread, std::memory_order_relaxed);  // callbacks run here
      StartSubmittedLocked(lock);
      RunCancellations(lock);
      if (!HasBackground()) EndUnstarted(lock);
      holder_.store(nullptr, std::memory_order_relaxed);
      // Other threads may continue to submit. The first thread that needs no start takes over, and starts their calls.
      next = waiters_.front();
      while (next != nullptr && next->IsToBeStarted()) next = next->next;
    }
    if (next == nullptr) next = waiters_.front();
    if (next != nullptr) {
      Forget(next);
      next->granted = true;
      next->WakeThread();
      return;
    }
    const bool unfinished = driven_.HasCalls() || !handed_over_.empty() || !unstarted_.empty();
    // If it was set, the background thread was poked, and has not taken the lease since.
    const bool poked = drive_now_.exchange(unfinished);
    const uint32_t before = word_.fetch_and(~uint32_t{kHeld | kParked});
    poke = (unfinished && !poked) || (before & kParked);
  }
  if (poke) Poke();
}

bool Lease::Acquire(Waiter* waiter, int64_t timeout_ns) {
  using Clock = std::chrono::steady_clock;
  if (TryAcquire()) {
    CatchUp();
    return true;
  }
  // The earlier of timeout and deadline applies. A thread that needs only a start waits until the call was started.
  if (waiter->spec != nullptr && !waiter->asynchronous &&
      waiter->spec->deadline_ns != call::kNoDeadlineNs) {
    const int64_t left_ns = waiter->spec->deadline_ns - driven_.clock()->NowNs();
    timeout_ns = std::min(timeout_ns, std::max<int64_t>(left_ns, 0));
  }
  const bool timed = timeout_ns < kForeverNs / 2;
  const auto give_up = Clock::now() + std::chrono::nanoseconds(timed ? timeout_ns : 0);

  std::unique_lock lock(mutex_);
  const bool submits = waiter->IsToBeStarted();
  const uint32_t bits = submits ? uint32_t{kWaiters | kSubmitted} : uint32_t{kWaiters};
  uint32_t seen = word_.load();
  for (;;) {
    if (!(seen & kHeld)) {
      lock.unlock();
      if (TryAcquire()) {
        CatchUp();
        return true;
      }
      lock.lock();
      seen = word_.load();
    } else if (word_.compare_exchange_weak(seen, seen | bits)) {
      break;
    }
  }
  waiter->queued = true;
  waiters_.PushBack(waiter);
  if (submits) {
    (submitted_ == nullptr ? submitted_ : last_submitted_->next_submitted) = waiter;
    last_submitted_ = waiter;
    if (seen & kAsleep) endpoint_->Wake();
  }
  if (!SpinUntilOver(waiter, timed ? timeout_ns : kForeverNs, lock)) {
    waiter->changed.emplace();
    waiter->asleep = true;
  }
  while (!waiter->done && !waiter->granted) {
    // The holder ends a started call at its deadline.
    if (!timed || waiter->started) {
      waiter->changed->wait(lock);
    } else if (waiter->changed->wait_until(lock, give_up) == std::cv_status::timeout &&
               !waiter->done && !waiter->granted && !waiter->started) {
      if (submits) {  // remove it from the queue of submissions
        Waiter** link = &submitted_;
        Waiter* before = nullptr;
        for (; *link != waiter; link = &before->next_submitted) before = *link;
        *link = waiter->next_submitted;
        if (last_submitted_ == waiter) last_submitted_ = before;
        ClearSubmitted();
      }
      Forget(waiter);
      return false;
    }
  }
  if (!waiter->granted) return false;
  holder_.store(&this_thread, std::memory_order_relaxed);
  if (lock.owns_lock()) lock.unlock();
  CatchUp();
  return true;
}

// Call with mutex_ locked. Waits for `spin_ns` or `limit_ns`, the shorter, without the lock and without sleeping: a switch to a thread
// that is ready costs less than a wake-up. Returns true, without the lock, if the wait is over; otherwise false, with the lock.
bool Lease::SpinUntilOver(Waiter* waiter, int64_t limit_ns, std::unique_lock<std::mutex>& lock) {
  if (spin_ns_ <= 0) return false;
  lock.unlock();
  const auto begin = std::chrono::steady_clock::now();
  const auto limit = std::chrono::nanoseconds(std::min(spin_ns_, limit_ns));
  do {
    if (waiter->over.load(std::memory_order_acquire)) return true;
    sched_yield();
  } while (std::chrono::steady_clock::now() - begin < limit);
  lock.lock();
  if (!waiter->over.load(std::memory_order_relaxed)) return false;
  lock.unlock();
  return true;
}

// Call with mutex_ locked. The waiter waits no longer.
void Lease::Forget(Waiter* waiter) {
  waiters_.Remove(waiter);
  waiter->queued = false;
  if (waiters_.front() == nullptr) word_.fetch_and(~uint32_t{kWaiters});
}

void Lease::StartSubmitted() {
  std::unique_lock lock(mutex_);
  StartSubmittedLocked(lock);
  RunCancellations(lock);
  EndUnstarted(lock);
}

void Lease::StartSubmittedLocked(std::unique_lock<std::mutex>& lock) {
  // Start one batch. A thread may have handed calls over before it submitted, so both lists are taken at once. Work that is submitted
  // meanwhile waits for the next pass, so that replies, deadlines and cancellations are handled in between.
  if (submitted_ == nullptr && handed_over_.empty()) return;
  // From now on no thread of the batch waits with a time limit, so its waiter stays valid.
  Waiter* const first = std::exchange(submitted_, nullptr);
  last_submitted_ = nullptr;
  for (Waiter* waiter = first; waiter != nullptr; waiter = waiter->next_submitted) {
    waiter->started = true;
    waiter->in_batch = true;
  }
  StartHandedOver(lock);
  lock.unlock();
  for (Waiter* waiter = first; waiter != nullptr; waiter = waiter->next_submitted) {
    Enter(waiter->seat);
    if (waiter->work != nullptr) {
      (*waiter->work)();
    } else if (waiter->begin != nullptr) {
      waiter->waits = !(*waiter->begin)(&waiter->event);
    } else {
      absl::Status started = waiter->seat->engine_->Start(*waiter->spec);
      waiter->waits = !waiter->asynchronous && started.ok();
      if (!waiter->ended_in_batch) waiter->status = std::move(started);
    }
  }
  lock.lock();
  for (Waiter *waiter = first, *next; waiter != nullptr; waiter = next) {
    next = waiter->next_submitted;
    waiter->in_batch = false;
    if (waiter->waits && !waiter->ended_in_batch) continue;
    Forget(waiter);
    waiter->done = true;
    waiter->WakeThread();
  }
  ClearSubmitted();
  driven_.Flush();
}

// Call with mutex_ locked, after work was taken from one of the lists. Calls that are being started may come into unstarted_.
void Lease::ClearSubmitted() {
  if (submitted_ == nullptr && cancellations_.empty() && handed_over_.empty() &&
      starting_count_ == 0 && unstarted_.empty()) {
    word_.fetch_and(~uint32_t{kSubmitted});
  }
}

// Call with mutex_ locked. Threads in waiters_ and cancellations_ wait for the holder. `again`: the holder has started one batch. What
// other threads hand over meanwhile is left to the background thread: otherwise they could keep the holder for ever.
bool Lease::MustStartBeforeRelease(bool again) const {
  if (submitted_ != nullptr || !cancellations_.empty()) return true;
  if (HasBackground()) return !again && !handed_over_.empty();
  return !handed_over_.empty() || !unstarted_.empty();
}

// ---- Ends of seats and channels

void Lease::Leave(Seat* seat, bool closed) {
  {
    std::unique_lock lock(mutex_);
    // First: a thread that waits in CancelAndWait() may destroy its call as soon as it finds the seat removed.
    EndUnstartedOf(seat, lock);
    seat->left_ = true;
    std::erase_if(cancellations_, [seat](const Cancellation& one) {
      if (one.seat != seat) return false;
      if (one.done != nullptr) *one.done = true;  // the end of the seat has ended the call
      return true;
    });
    ClearSubmitted();
    cancelled_.notify_all();
  }
  if (closed && seat->member_ != nullptr) driven_.group()->Leave(seat->member_);
}

void Lease::RunLater(void (*run)(void*), void* argument) {
  {
    std::lock_guard lock(mutex_);
    later_.push_back({run, argument});
    later_due_.store(true);
  }
  Poke();  // the background thread, if there is one
}

// The last function may destroy the lease, unless the caller keeps the lease.
void Lease::RunTheseLater() {
  std::vector<Later> taken;
  {
    std::lock_guard lock(mutex_);
    taken.swap(later_);
    later_due_.store(false);
  }
  for (const Later& one : taken) one.run(one.argument);
}

// ---- Ends of operations that other threads wait for

void Lease::OnDone(void* argument, const absl::Status& status) {
  static_cast<Waiter*>(argument)->End(status);
}

void Lease::Event::Set() { waiter_->End(absl::OkStatus()); }

void Lease::Waiter::EndQueued(const absl::Status& how) {
  if (in_batch) {  // a later start of the batch, or a callback in it, ends this operation
    status = OwnCopy(how);
    ended_in_batch = true;
    return;
  }
  std::lock_guard lock(lease->mutex_);
  lease->Forget(this);
  status = OwnCopy(how);
  done = true;
  WakeThread();
}

}  // namespace sluice
