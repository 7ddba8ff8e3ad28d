// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/cm/event_channel.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <utility>

namespace sluice::softdc::cm {

int Channel::Open() {
  event_fd.Reset(eventfd(0, EFD_CLOEXEC));
  fd = event_fd.get();
  return event_fd ? 0 : errno;
}

void Channel::SetReadable(bool readable) {
  if (readable) {
    eventfd_write(event_fd.get(), 1);
    return;
  }
  // The descriptor blocks unless the application made it non-blocking, and the application might
  // have read it.
  pollfd state{.fd = event_fd.get(), .events = POLLIN, .revents = 0};
  eventfd_t value;
  if (poll(&state, 1, 0) == 1) eventfd_read(event_fd.get(), &value);
}

void Channel::Push(std::unique_ptr<Event> event) {
  queue.push_back(std::move(event));
  if (queue.size() == 1) SetReadable(true);
}

std::unique_ptr<Event> Channel::Pop() {
  if (queue.empty()) return nullptr;
  std::unique_ptr<Event> event = std::move(queue.front());
  queue.pop_front();
  if (queue.empty()) SetReadable(false);
  return event;
}

std::deque<std::unique_ptr<Event>> Channel::Extract(const Id* owner) {
  std::deque<std::unique_ptr<Event>> taken, kept;
  for (std::unique_ptr<Event>& event : queue) {
    (event->owner == owner ? taken : kept).push_back(std::move(event));
  }
  queue.swap(kept);
  if (queue.empty() && !taken.empty()) SetReadable(false);
  return taken;
}

}  // namespace sluice::softdc::cm
