// SPDX-License-Identifier: Apache-2.0
//
// Calls with a callback that a thread hands over to the thread that drives: the start waits for no other thread.
#include <algorithm>
#include <deque>
#include <iterator>
#include <mutex>
#include <utility>

#include "middleware/api/lease.h"

namespace sluice {

absl::Status Lease::StartCallback(Seat* seat, const call::CallSpec& spec) {
  if (Refuses(seat)) [[unlikely]]
    return Refuse(seat, spec.method->full_name);
  if (HeldByMe()) return StartHeld(seat, spec);
  const bool another_drives = !PolledHere() && (word_.load(std::memory_order_relaxed) & kHeld);
  if (another_drives && HandOver(seat, spec)) return absl::OkStatus();
  return Start(seat, spec);
}

// Returns false if the call was not taken: no thread drives, or there may be no place for the call. The caller then starts the call
// itself, and learns the reason if that fails.
bool Lease::HandOver(Seat* seat, const call::CallSpec& spec) {
  const int64_t now_ns = driven_.clock()->NowNs();
  std::lock_guard lock(mutex_);
  const size_t before = handed_over_.size() + starting_count_;
  if (seat->left_ || before >= kMaxHandedOver || !seat->engine_->HasRoomFor(before + 1)) {
    return false;
  }
  uint32_t seen = word_.load();
  do {
    if (!(seen & kHeld)) return false;
  } while (!word_.compare_exchange_weak(seen, seen | kSubmitted));
  handed_over_.push_back({seat, spec, std::move(*spec.callback), absl::OkStatus()});
  call::CallSpec& taken = handed_over_.back().spec;
  if (spec.timeout_ns < call::kNoDeadlineNs - now_ns) {  // it counts from now on
    taken.deadline_ns = std::min(spec.deadline_ns, now_ns + spec.timeout_ns);
  }
  taken.timeout_ns = call::kNoDeadlineNs;
  if (seen & kAsleep) endpoint_->Wake();
  return true;
}

// Call with the lease, before anything else is started with it: calls of one thread start in the order in which it made them. Returns
// whether there were calls to start.
bool Lease::CatchUp() {
  if (!(word_.load(std::memory_order_relaxed) & kSubmitted)) return false;
  std::unique_lock lock(mutex_);
  if (handed_over_.empty()) return false;
  StartHandedOver(lock);
  ClearSubmitted();
  return true;
}

// Call with the lease, and with `lock` on mutex_. Unlocks it while calls are started. Runs no callbacks: this thread may be in a start of
// its own.
void Lease::StartHandedOver(std::unique_lock<std::mutex>& lock) {
  if (handed_over_.empty()) return;
  starting_.swap(handed_over_);  // both keep their memory
  starting_count_ = starting_.size();
  lock.unlock();
  const int64_t now_ns = driven_.clock()->NowNs();
  bool all_started = true;
  for (HandedOver& one : starting_) {
    Enter(one.seat);
    one.spec.callback = &one.callback;
    one.why = Refuses(one.seat) ? Refuse(one.seat, one.spec.method->full_name)
                                : one.seat->engine_->StartLate(one.spec, now_ns);
    all_started &= one.why.ok();
  }
  driven_.Flush();
  lock.lock();
  if (!all_started) [[unlikely]] {
    for (HandedOver& one : starting_) {
      if (!one.why.ok()) unstarted_.push_back(std::move(one));
    }
  }
  starting_.clear();
  starting_count_ = 0;
}

void Lease::EndUnstarted(HandedOver* one) {
  one->seat->engine_->EndUnstarted(*one->spec.method, &one->callback, one->why);
}

// Call with the lease, and with `lock` on mutex_. Unlocks it while callbacks run.
void Lease::EndUnstarted(std::unique_lock<std::mutex>& lock) {
  while (!unstarted_.empty()) {
    HandedOver one = std::move(unstarted_.front());
    unstarted_.pop_front();
    ClearSubmitted();
    lock.unlock();
    EndUnstarted(&one);
    lock.lock();
  }
}

// Call with mutex_ locked. Removes the calls of a seat from the lists.
std::deque<Lease::HandedOver> Lease::TakeUnstartedOf(const Seat* seat) {
  std::deque<HandedOver> taken;
  const auto take = [&](auto& list) {
    const auto first = std::stable_partition(
        list.begin(), list.end(), [seat](const HandedOver& one) { return one.seat != seat; });
    std::move(first, list.end(), std::back_inserter(taken));
    list.erase(first, list.end());
  };
  take(unstarted_);
  take(handed_over_);
  for (HandedOver& one : taken) {
    if (one.why.ok()) one.why = Refuse(seat, one.spec.method->full_name);
  }
  return taken;
}

}  // namespace sluice
