// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/cm/channel.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <utility>

namespace sluice::softdc::cm {

int Channel::Open() {
  event_fd_.Reset(eventfd(0, EFD_CLOEXEC));
  return event_fd_ ? 0 : errno;
}

int Channel::Await() const {
  const int flags = fcntl(fd(), F_GETFL);
  if (flags < 0) return errno;
  if ((flags & O_NONBLOCK) != 0) return EAGAIN;
  pollfd readable{.fd = fd(), .events = POLLIN, .revents = 0};
  return poll(&readable, 1, -1) < 0 ? errno : 0;
}

void Channel::SetReadable(bool readable) {
  if (readable) {
    eventfd_write(fd(), 1);
    return;
  }
  // The descriptor blocks unless the application made it non-blocking, and the application may have read it.
  // So poll first.
  pollfd state{.fd = fd(), .events = POLLIN, .revents = 0};
  eventfd_t value;
  if (poll(&state, 1, 0) == 1) eventfd_read(fd(), &value);
}

void Channel::Push(std::unique_ptr<Event> event) {
  queue_.push_back(std::move(event));
  if (queue_.size() == 1) SetReadable(true);
}

std::unique_ptr<Event> Channel::Pop() {
  if (queue_.empty()) return nullptr;
  std::unique_ptr<Event> event = std::move(queue_.front());
  queue_.pop_front();
  if (queue_.empty()) SetReadable(false);
  return event;
}

std::deque<std::unique_ptr<Event>> Channel::Extract(const Id* id) {
  std::deque<std::unique_ptr<Event>> taken, kept;
  for (std::unique_ptr<Event>& event : queue_) {
    const bool match = event->owner == id || event->request == id;
    (match ? taken : kept).push_back(std::move(event));
  }
  queue_.swap(kept);
  if (queue_.empty() && !taken.empty()) SetReadable(false);
  return taken;
}

}  // namespace sluice::softdc::cm
