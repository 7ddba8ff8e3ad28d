// SPDX-License-Identifier: Apache-2.0
#include "middleware/call/deadlines.h"

namespace sluice::call {

void Deadlines::AddAlone(Deadline* deadline) {
  deadline->owner = this;
  deadline->timer.fire = &Deadlines::OnTimerAlone;
  deadline->timer.context = deadline;
  wheel_->Schedule(&deadline->timer, deadline->deadline_ns);
}

void Deadlines::OnTimerAlone(base::Timer*, void* context) {
  auto* const deadline = static_cast<Deadline*>(context);
  deadline->owner->on_due_(deadline->owner->context_, deadline);
}

void Deadlines::Arm() {
  if (queue_.later == &queue_) {
    due_ns_ = INT64_MAX;
    return wheel_->Cancel(&timer_);
  }
  due_ns_ = queue_.later->deadline_ns;
  wheel_->Schedule(&timer_, due_ns_);
}

void Deadlines::OnTimer(base::Timer*, void* context) {
  auto* const self = static_cast<Deadlines*>(context);
  const int64_t now_ns = *self->now_ns_;
  self->due_ns_ = INT64_MAX;
  Deadline* const queue = &self->queue_;
  while (queue->later != queue && queue->later->deadline_ns <= now_ns) {
    Deadline* const due = queue->later;
    Unlink(due);
    self->on_due_(self->context_, due);
  }
  self->Arm();
}

}  // namespace sluice::call
