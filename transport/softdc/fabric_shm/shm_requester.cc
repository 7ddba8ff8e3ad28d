// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/fabric_shm/shm_requester.h"

#include <algorithm>

#include "transport/softdc/fabric_shm/send_execution.h"
#include "transport/softdc/loop/loop.h"
#include "transport/softdc/model/send_queue.h"

namespace sluice::softdc {

ShmRequester::ShmRequester(ShmPort& port, SendQueue& queue)
    : port_(port),
      queue_(queue),
      continuation_(std::make_shared<Continuation>()),
      targets_(queue.traits().addressed ? kTargetCacheEntries : 1, nullptr) {
  std::lock_guard lock(continuation_->mutex);
  continuation_->requester = this;
}

ShmRequester::~ShmRequester() {
  std::lock_guard lock(continuation_->mutex);
  continuation_->requester = nullptr;
}

void ShmRequester::RunPosted(uint64_t first) { SendExecution(*this).Run(first); }

void ShmRequester::RunWaiting() {
  for (uint64_t sequence = queue_.emitted(); sequence != queue_.posted(); ++sequence) {
    Wqe& wqe = queue_.slot(sequence);
    // Each is looked at anew; what still cannot run waits again.
    if (wqe.state == WqeState::kWaiting) queue_.StopWaiting(wqe);
  }
  SendExecution(*this).Run(queue_.emitted());
}

void ShmRequester::ContinueAt(int64_t when_ns) {
  if (scheduled_ns_ != 0 && scheduled_ns_ <= when_ns) return;
  scheduled_ns_ = when_ns;
  const int64_t delay_ns = std::max<int64_t>(0, when_ns - Loop::NowNs());
  Loop::Get().After(delay_ns, [continuation = continuation_] {
    std::lock_guard lock(continuation->mutex);
    if (continuation->requester != nullptr) continuation->requester->Continue();
  });
}

void ShmRequester::Continue() {
  SpinLockHolder hold(queue_.lock());
  scheduled_ns_ = 0;
  if (queue_.waiting() != 0) RunWaiting();
}

}  // namespace sluice::softdc
