// SPDX-License-Identifier: Apache-2.0
//
// EventLoop: a loop over descriptors, as many programs have one, with all that it must know about Sluice.
//
// Threads       One: the thread that calls Run().
#ifndef SLUICE_EXAMPLES_OWN_LOOP_EVENT_LOOP_H_
#define SLUICE_EXAMPLES_OWN_LOOP_EVENT_LOOP_H_

#include <sys/epoll.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <list>
#include <utility>
#include <vector>

namespace sluice::examples::own_loop {

class EventLoop {
 public:
  EventLoop() : epoll_fd_(epoll_create1(EPOLL_CLOEXEC)) {
    if (epoll_fd_ < 0) std::abort();
  }
  ~EventLoop() { close(epoll_fd_); }
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // `on_readable` runs whenever the descriptor is readable.
  void Watch(int fd, std::function<void()> on_readable) {
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.ptr = &watched_.emplace_back(std::move(on_readable));
    if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) != 0) std::abort();
  }

  // A Channel or a Server. Its descriptor only ends the sleep: it is polled in each round anyway.
  template <typename Polled>
  void Drive(Polled* polled) {
    Watch(polled->fd(), [] {});
    driven_.push_back([polled] { return polled->Poll() == 0 && polled->PrepareToSleep(); });
  }

  // Until `done` says so, asked in each round.
  void Run(const std::function<bool()>& done) {
    while (!done()) {
      bool may_sleep = true;
      for (const auto& pass : driven_) may_sleep = pass() && may_sleep;
      epoll_event events[16];
      const int ready = epoll_wait(epoll_fd_, events, 16, may_sleep ? -1 : 0);
      for (int i = 0; i < ready; ++i) (*static_cast<std::function<void()>*>(events[i].data.ptr))();
    }
  }

 private:
  const int epoll_fd_;
  std::list<std::function<void()>> watched_;
  std::vector<std::function<bool()>> driven_;  // true: may sleep
};

}  // namespace sluice::examples::own_loop

#endif  // SLUICE_EXAMPLES_OWN_LOOP_EVENT_LOOP_H_
