// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/fabric_shm/pass_ends.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "transport/softdc/fabric_shm/shm_fabric.h"
#include "transport/softdc/fabric_shm/shm_requester.h"
#include "transport/softdc/loop/loop.h"

namespace sluice::softdc {
namespace {

// A pass takes microseconds. A program may stay between ibv_wr_start and ibv_wr_complete for any time, so the interval between looks grows.
constexpr int64_t kFirstLookNs = 50'000;
constexpr int64_t kRarestLookNs = 100'000'000;

}  // namespace

PassEnds::~PassEnds() {
  Loop::Get().RunAndWait([this] {
    if (timer_ != 0) Loop::Get().Cancel(timer_);
    waits_.clear();
  });
}

void PassEnds::Add(const std::shared_ptr<Continuation>& queue) {
  std::lock_guard lock(mutex_);
  queues_.insert(queue);
}

void PassEnds::Remove(const std::shared_ptr<Continuation>& queue) {
  std::lock_guard lock(mutex_);
  queues_.erase(queue);
}

void PassEnds::Destroy(std::shared_ptr<Dropped> dropped) {
  if (dropped->Empty()) return;
  Wait wait;
  {
    std::lock_guard lock(mutex_);
    wait.running.assign(queues_.begin(), queues_.end());
  }
  wait.dropped = std::move(dropped);
  waits_.push_back(std::move(wait));
  next_look_ns_ = kFirstLookNs;
  Look();
}

void PassEnds::Look() {
  if (timer_ != 0) Loop::Get().Cancel(std::exchange(timer_, 0));
  for (Wait& wait : waits_) {
    std::erase_if(wait.running, [&](const std::shared_ptr<Continuation>& queue) {
      std::lock_guard lock(queue->mutex);
      return queue->requester == nullptr || queue->requester->IsBetweenPasses(*wait.dropped);
    });
  }
  // In order: the callers of Destroy are notified in the order of their calls.
  while (!waits_.empty() && waits_.front().running.empty()) {
    // After the tasks that those passes gave to the Loop, because the tasks may name the dropped objects.
    Loop::Get().Run([dropped = std::move(waits_.front().dropped)]() mutable {
      const std::function<void()> then = std::move(dropped->then);
      dropped.reset();
      if (then != nullptr) then();
    });
    waits_.pop_front();
  }
  if (waits_.empty()) return;
  timer_ = Loop::Get().After(next_look_ns_, [this] {
    timer_ = 0;
    Look();
  });
  next_look_ns_ = std::min(2 * next_look_ns_, kRarestLookNs);
}

}  // namespace sluice::softdc
