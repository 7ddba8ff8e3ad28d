// SPDX-License-Identifier: Apache-2.0
//
// Calls with a callback that threads hand over to the thread that drives. A thread that hands a call over does not wait.
#include <algorithm>
#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

#include "middleware/api/lease.h"

namespace sluice {

// Returns false if the call was not taken: no thread holds the lease, or there may be no place for the call. The caller then starts
// the call itself, and learns the reason if that fails.
bool Lease::HandOver(Seat* seat, const call::CallSpec& spec) {
  const int64_t now_ns = driven_.clock()->NowNs();
  std::lock_guard lock(mutex_);
  const size_t before = handed_over_.size() + starting_count_;
  if (before >= kMaxHandedOver || !seat->engine_->HasRoomFor(before + 1)) return false;
  uint32_t seen = word_.load();
  do {
    if (!(seen & kHeld)) return false;
  } while (!word_.compare_exchange_weak(seen, seen | kSubmitted));
  HandedOver& one = handed_over_.emplace_back(seat, spec, std::move(*spec.callback));
  if (spec.timeout_ns < call::kNoDeadlineNs - now_ns) {
    one.spec.deadline_ns = std::min(spec.deadline_ns, now_ns + spec.timeout_ns);
  }
  if (seen & kAsleep) endpoint_->Wake();
  return true;
}

// Call with the lease, and with `lock` on mutex_. Unlocks it while calls are started and callbacks run.
void Lease::StartHandedOver(std::unique_lock<std::mutex>& lock) {
  if (handed_over_.empty()) return;
  starting_.swap(handed_over_);  // both keep their memory
  starting_count_ = starting_.size();
  lock.unlock();
  for (HandedOver& one : starting_) {
    if (one.seat == nullptr) continue;
    Enter(one.seat);
    one.spec.callback = &one.callback;
    const absl::Status started = Refuses(one.seat) ? Refuse(one.seat, one.spec.method->full_name)
                                                   : one.seat->engine_->Start(one.spec);
    if (!started.ok()) EndUnstarted(&one, started);
  }
  starting_.clear();
  lock.lock();
  starting_count_ = 0;
}

void Lease::EndUnstarted(HandedOver* one, const absl::Status& why) {
  Seat* const seat = std::exchange(one->seat, nullptr);
  seat->engine_->EndUnstarted(*one->spec.method, &one->callback, why);
}

// Ends the calls of a seat that leaves, before the engine of the seat goes.
void Lease::EndHandedOverOf(const Seat* seat) {
  std::vector<HandedOver> ended;
  {
    std::lock_guard lock(mutex_);
    const auto first =
        std::stable_partition(handed_over_.begin(), handed_over_.end(),
                              [seat](const HandedOver& one) { return one.seat != seat; });
    ended.assign(std::move_iterator(first), std::move_iterator(handed_over_.end()));
    handed_over_.erase(first, handed_over_.end());
  }
  for (HandedOver& one : ended) EndUnstarted(&one, Refuse(seat, one.spec.method->full_name));
  for (HandedOver& one : starting_) {
    if (one.seat == seat) EndUnstarted(&one, Refuse(seat, one.spec.method->full_name));
  }
}

// Call with mutex_ locked, at the end of a release. Gives the lease to the background thread if the remaining work is calls that threads
// continue to hand over: otherwise the releasing thread would start calls of others for ever. Returns whether it did.
bool Lease::GrantToBackground() {
  if (loop_ != nullptr || background_ended_ || waiters_.front() != nullptr ||
      !cancellations_.empty()) {
    return false;
  }
  granted_.store(true);
  return true;
}

}  // namespace sluice
