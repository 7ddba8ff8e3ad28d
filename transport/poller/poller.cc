// SPDX-License-Identifier: Apache-2.0
#include "transport/poller/poller.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "transport/base/error.h"

namespace sluice::poller {
namespace {

absl::Status Failed(int error_number, const char* call) {
  return base::ErrnoError(error_number, call,
                          {.layer = "poller",
                           .operation = "watch descriptors",
                           .cause = "this process has probably no file descriptors left",
                           .remedy = "raise `ulimit -n`"});
}

}  // namespace

absl::StatusOr<std::unique_ptr<Poller>> Poller::Create() {
  const int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  if (epoll_fd < 0) return Failed(errno, "epoll_create1");
  const int event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (event_fd < 0) {
    const int error_number = errno;
    close(epoll_fd);
    return Failed(error_number, "eventfd");
  }
  std::unique_ptr<Poller> poller(new Poller(epoll_fd, event_fd));
  Poller* self = poller.get();
  const absl::Status status = poller->Watch(event_fd, [self] {
    // Reads the counter before it clears the flag. A Wake() between the two writes nothing, but its
    // caller's data is visible after this exchange. In the other order, the read would consume the
    // write of such a Wake(), and the flag would stay set.
    uint64_t count;
    [[maybe_unused]] const ssize_t got = read(self->event_fd_, &count, sizeof(count));
    self->woken_.exchange(false, std::memory_order_acq_rel);
  });
  if (!status.ok()) return status;
  return poller;
}

Poller::~Poller() {
  close(event_fd_);
  close(epoll_fd_);
}

absl::Status Poller::Watch(int fd, std::function<void()> on_ready) {
  if (watched_.size() == kMaxWatches) {
    return base::Error(absl::StatusCode::kInternal, "too many descriptors on one poller",
                       {.layer = "poller", .operation = "watch"});
  }
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) != 0) {
    return Failed(errno, "epoll_ctl(EPOLL_CTL_ADD)");
  }
  watched_.push_back({fd, std::move(on_ready)});
  return absl::OkStatus();
}

void Poller::Unwatch(int fd) {
  epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr);
  std::erase_if(watched_, [fd](const Watched& watched) { return watched.fd == fd; });
}

int Poller::Check() {
  epoll_event events[kMaxWatches];
  const int ready = epoll_wait(epoll_fd_, events, kMaxWatches, 0);
  for (int i = 0; i < ready; ++i) {
    for (Watched& watched : watched_) {
      if (watched.fd == events[i].data.fd) {
        watched.on_ready();
        break;
      }
    }
  }
  return ready > 0 ? ready : 0;
}

void Poller::Wake() {
  if (woken_.exchange(true, std::memory_order_acq_rel)) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(event_fd_, &one, sizeof(one));
}

}  // namespace sluice::poller
