// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/loop_descriptor.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "transport/base/error.h"

namespace sluice {
namespace {

absl::Status Failed(int error_number, const char* call) {
  return base::ErrnoError(error_number, call,
                          {.layer = "api",
                           .operation = "make a descriptor for a loop",
                           .cause = "this process has probably no file descriptors left",
                           .remedy = "raise `ulimit -n`"});
}

bool Add(int epoll_fd, int fd) {
  epoll_event event = {};
  event.events = EPOLLIN;
  return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LoopDescriptor>> LoopDescriptor::Create(int endpoint_fd) {
  const int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  if (epoll_fd < 0) return Failed(errno, "epoll_create1");
  const int timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  if (timer_fd < 0) {
    const int error_number = errno;
    close(epoll_fd);
    return Failed(error_number, "timerfd_create");
  }
  std::unique_ptr<LoopDescriptor> made(new LoopDescriptor(epoll_fd, timer_fd));
  if (!Add(epoll_fd, timer_fd) || !Add(epoll_fd, endpoint_fd)) return Failed(errno, "epoll_ctl");
  return made;
}

LoopDescriptor::~LoopDescriptor() {
  close(timer_fd_);
  close(epoll_fd_);
}

void LoopDescriptor::WakeAfter(int64_t limit_ns) {
  if (limit_ns < 0 && !has_timer_) return;
  itimerspec when = {};
  if (limit_ns >= 0) {
    const int64_t after_ns = std::max<int64_t>(limit_ns, 1);  // 0 would disarm the timer
    when.it_value.tv_sec = static_cast<time_t>(after_ns / 1'000'000'000);
    when.it_value.tv_nsec = static_cast<long>(after_ns % 1'000'000'000);
  }
  has_timer_ = limit_ns >= 0;
  timerfd_settime(timer_fd_, 0, &when, nullptr);  // also clears an expiration
}

}  // namespace sluice
