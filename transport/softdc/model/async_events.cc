// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/model/async_events.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace sluice::softdc {

AsyncEvents::AsyncEvents() : fd_(eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE)) {}

const void* AsyncEvents::ObjectOf(const ibv_async_event& event) {
  switch (event.event_type) {
    case IBV_EVENT_CQ_ERR:
      return event.element.cq;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return event.element.qp;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return event.element.srq;
    default:
      return nullptr;  // of the port or the device
  }
}

void AsyncEvents::Post(const ibv_async_event& event) {
  std::lock_guard lock(mutex_);
  queue_.push_back(event);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(fd_.get(), &one, sizeof(one));
}

// Never blocks: every reader of the descriptor holds the mutex, and the count was the size of the queue.
void AsyncEvents::TakeToken() {
  uint64_t one = 0;
  [[maybe_unused]] const ssize_t got = read(fd_.get(), &one, sizeof(one));
}

int AsyncEvents::Get(ibv_async_event* event) {
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      if (!queue_.empty()) {
        *event = queue_.front();
        queue_.pop_front();
        TakeToken();
        if (const void* object = ObjectOf(*event)) ++unacknowledged_[object];
        return 0;
      }
    }
    if ((fcntl(fd_.get(), F_GETFL) & O_NONBLOCK) != 0) {
      errno = EAGAIN;
      return -1;
    }
    pollfd entry{.fd = fd_.get(), .events = POLLIN, .revents = 0};
    if (poll(&entry, 1, -1) < 0) return -1;
  }
}

void AsyncEvents::Acknowledge(const ibv_async_event& event) {
  const void* object = ObjectOf(event);
  if (object == nullptr) return;
  std::lock_guard lock(mutex_);
  const auto it = unacknowledged_.find(object);
  if (it == unacknowledged_.end() || --it->second != 0) return;
  unacknowledged_.erase(it);
  acknowledged_.notify_all();
}

void AsyncEvents::Retire(const void* object) {
  std::unique_lock lock(mutex_);
  for (auto it = queue_.begin(); it != queue_.end();) {
    if (ObjectOf(*it) == object) {
      it = queue_.erase(it);
      TakeToken();
    } else {
      ++it;
    }
  }
  acknowledged_.wait(lock, [&] { return !unacknowledged_.contains(object); });
}

}  // namespace sluice::softdc
