// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/fabric_shm/shm_requester.h"

#include <algorithm>

#include "transport/softdc/fabric_shm/send_execution.h"
#include "transport/softdc/loop/loop.h"
#include "transport/softdc/model/send_queue.h"

namespace sluice::softdc {
namespace {

constexpr int64_t kLockedNs = 20'000;  // the program is posting at this moment

}  // namespace

ShmRequester::ShmRequester(ShmPort& port, SendQueue& queue)
    : port_(port),
      queue_(queue),
      continuation_(std::make_shared<Continuation>()),
      targets_(queue.traits().addressed ? kTargetCacheEntries : 1, nullptr) {
  std::lock_guard lock(continuation_->mutex);
  continuation_->requester = this;
  port_.pass_ends().Add(continuation_);
}

ShmRequester::~ShmRequester() {
  port_.pass_ends().Remove(continuation_);
  std::lock_guard lock(continuation_->mutex);
  continuation_->requester = nullptr;
}

void ShmRequester::RunPosted(uint64_t first) {
  return queue_.posted() - first == 1 ? RunAlone(first) : RunBatch(first);
}

void ShmRequester::RunBatch(uint64_t first) {
  uint64_t bytes = 0;
  for (uint64_t sequence = first; sequence != queue_.posted(); ++sequence) {
    bytes += queue_.slot(sequence).length_bytes;
  }
  traffic_.Add(queue_.posted() - first, bytes);
  SendExecution(*this).Run(first);
}

void ShmRequester::RunWaiting() {
  for (uint64_t sequence = queue_.emitted(); sequence != queue_.posted(); ++sequence) {
    Wqe& wqe = queue_.slot(sequence);
    // Each WQE is examined again. A WQE that still cannot run waits again.
    if (wqe.state == WqeState::kWaiting) queue_.StopWaiting(wqe);
  }
  SendExecution(*this).Run(queue_.emitted());
}

void ShmRequester::ContinueAt(int64_t when_ns) {
  if (scheduled_ns_ != 0 && scheduled_ns_ <= when_ns) return;
  scheduled_ns_ = when_ns;
  ContinueIn(when_ns - Loop::NowNs(), when_ns);
}

void ShmRequester::ContinueIn(int64_t delay_ns, int64_t timer_ns) {
  Loop::Get().After(delay_ns, [continuation = continuation_, timer_ns] {
    std::lock_guard lock(continuation->mutex);
    if (continuation->requester != nullptr) continuation->requester->Continue(timer_ns);
  });
}

bool ShmRequester::IsBetweenPasses(const Dropped& dropped) {
  if (!queue_.lock().TryLock()) return false;
  for (const auto& target : dropped.targets) {
    Target*& cached = targets_[target->qp_number & (targets_.size() - 1)];
    if (cached == target.get()) cached = nullptr;
  }
  queue_.lock().Unlock();
  return true;
}

void ShmRequester::Continue(int64_t timer_ns) {
  // Does not wait for the lock. A program that posts holds it from wr_start to wr_complete, and may need this thread in between to register
  // memory.
  if (!queue_.lock().TryLock()) return ContinueIn(kLockedNs, timer_ns);
  // A timer that an earlier timer has replaced must not start another chain of timers.
  if (timer_ns == kAnswer || timer_ns == scheduled_ns_) {
    if (timer_ns != kAnswer) scheduled_ns_ = 0;
    if (queue_.waiting() != 0) RunWaiting();
  }
  queue_.lock().Unlock();
}

}  // namespace sluice::softdc
