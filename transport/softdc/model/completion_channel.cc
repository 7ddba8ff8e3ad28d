// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/model/completion_channel.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "transport/softdc/model/context.h"
#include "transport/softdc/model/cq.h"

namespace sluice::softdc {

CompletionChannel* CompletionChannel::Create(ibv_context* context) {
  auto channel = std::make_unique<CompletionChannel>();
  channel->base.context = context;
  channel->base.fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
  if (channel->base.fd < 0) return nullptr;
  Context::From(context)->objects().fetch_add(1);
  return channel.release();
}

int CompletionChannel::Destroy() {
  {
    std::lock_guard lock(mutex);
    if (!cqs.empty()) return EBUSY;
  }
  close(base.fd);
  Context::From(base.context)->objects().fetch_sub(1);
  delete this;
  return 0;
}

Cq* CompletionChannel::NextEvent() {
  for (;;) {
    uint64_t one = 0;
    if (read(base.fd, &one, sizeof(one)) != sizeof(one)) return nullptr;  // EAGAIN, EINTR
    std::lock_guard lock(mutex);
    for (size_t i = 0; i < cqs.size(); ++i) {
      Cq* candidate = cqs[next++ % cqs.size()];
      if (candidate->events().Take()) return candidate;
    }
    // There are more counts than events: a process died before it reported its event, and the event was counted twice; or the queue is
    // destroyed. Wait for the next count.
  }
}

void CqEvents::Attach(CompletionChannel* channel) {
  if (channel == nullptr) return;
  cq_.base.channel = &channel->base;
  std::lock_guard lock(channel->mutex);
  channel->cqs.push_back(&cq_);
  ++channel->base.refcnt;
}

void CqEvents::Detach() {
  if (cq_.base.channel == nullptr) return;
  auto* channel = CompletionChannel::From(cq_.base.channel);
  {
    std::lock_guard lock(channel->mutex);
    std::erase(channel->cqs, &cq_);
    --channel->base.refcnt;
  }
  std::unique_lock lock(mutex_);
  acknowledged_.wait(lock, [this] { return acked_ == got_; });
}

bool CqEvents::Take() {
  int events = unfetched_.load();
  bool taken = false;
  while (events > 0 && !taken) taken = unfetched_.compare_exchange_weak(events, events - 1);
  if (!taken && !cq_.armed_->CollectEvent()) return false;
  std::lock_guard lock(mutex_);
  ++got_;
  return true;
}

void CqEvents::Acknowledge(unsigned count) {
  std::lock_guard lock(mutex_);
  acked_ += count;
  if (acked_ == got_) acknowledged_.notify_all();
}

void CqEvents::Fire() {
  const uint64_t one = 1;
  // Fails only with 2^64 unread events. The reader is then awake anyway.
  [[maybe_unused]] const ssize_t written = write(cq_.base.channel->fd, &one, sizeof(one));
}

}  // namespace sluice::softdc
