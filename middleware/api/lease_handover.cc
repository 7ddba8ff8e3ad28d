// SPDX-License-Identifier: Apache-2.0
//
// Calls that a thread hands over to the thread that drives: the start waits for no other thread.
#include <algorithm>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "middleware/api/lease.h"

namespace sluice {

// If no thread drives, or there may be no place for the call, the caller starts the call itself, and learns the reason if that fails.
Lease::Handed Lease::HandOver(Seat* seat, const call::CallSpec& spec) {
  const int64_t now_ns = driven_.clock()->NowNs();
  std::lock_guard lock(mutex_);
  const size_t before = handed_over_.size() + starting_count_;
  if (seat->left_ || before + unstarted_.size() >= kMaxHandedOver ||
      !seat->engine_->HasRoomFor(before + 1)) {
    return Handed::kNoPlace;
  }
  uint32_t seen = word_.load();
  do {
    if (!(seen & kHeld)) return Handed::kNotHeld;
  } while (!word_.compare_exchange_weak(seen, seen | kSubmitted));
  handed_over_.push_back({seat, spec, {}, absl::OkStatus()});
  if (spec.done == nullptr) handed_over_.back().callback = std::move(*spec.callback);
  call::CallSpec& taken = handed_over_.back().spec;
  if (spec.timeout_ns < call::kNoDeadlineNs - now_ns) {  // it counts from now on
    taken.deadline_ns = std::min(spec.deadline_ns, now_ns + spec.timeout_ns);
  }
  taken.timeout_ns = call::kNoDeadlineNs;
  if (seen & kAsleep) endpoint_->Wake();
  return Handed::kTaken;
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
    if (one.spec.done == nullptr) one.spec.callback = &one.callback;
    one.why = StartOne(one, now_ns);
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

absl::Status Lease::StartOne(const HandedOver& one, int64_t now_ns) const {
  const call::CallSpec& spec = one.spec;
  if (Refuses(one.seat)) return Refuse(one.seat, spec.method->full_name);
  call::ClientEngine& engine = *one.seat->engine_;
  if (spec.control != nullptr && spec.control->cancelled.load()) {
    return engine.CancelledByCaller(*spec.method, /*retry_safe=*/true);
  }
  return engine.StartLate(spec, now_ns);
}

void Lease::EndUnstarted(HandedOver* one) {
  if (one->spec.done == nullptr) one->spec.callback = &one->callback;
  one->seat->engine_->EndUnstarted(one->spec, one->why);
}

// Call with the lease, and with `lock` on mutex_. Unlocks it while callbacks run. Takes one call at a time: a callback may destroy the
// owner of a later call, which then takes that call out of the list.
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

// As EndUnstarted(), for the calls of a seat in both lists.
void Lease::EndUnstartedOf(Seat* seat, std::unique_lock<std::mutex>& lock) {
  while (auto one = TakeFirst([seat](const HandedOver& other) { return other.seat == seat; })) {
    lock.unlock();
    if (one->why.ok()) one->why = Refuse(seat, one->spec.method->full_name);
    EndUnstarted(&*one);
    lock.lock();
  }
}

// Call with the lease, and with mutex_ locked. Removes the first call for which `is_it` returns true, first in the order of the start.
std::optional<Lease::HandedOver> Lease::TakeFirst(
    absl::FunctionRef<bool(const HandedOver&)> is_it) {
  std::optional<HandedOver> taken;
  const auto take = [&](auto& list) {
    const auto found = std::find_if(list.begin(), list.end(), is_it);
    if (found == list.end()) return false;
    taken = std::move(*found);
    list.erase(found);
    return true;
  };
  if (take(unstarted_) || take(handed_over_)) ClearSubmitted();
  return taken;
}

}  // namespace sluice
