// SPDX-License-Identifier: Apache-2.0
//
// LoopDescriptor: the descriptor that a user's own loop sleeps on. It combines the descriptor of an endpoint and a timer.
//
// Ownership     The polled object. The endpoint's descriptor outlives it.
// Threads       The polling thread.
#ifndef SLUICE_MIDDLEWARE_API_LOOP_DESCRIPTOR_H_
#define SLUICE_MIDDLEWARE_API_LOOP_DESCRIPTOR_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

namespace sluice {

class LoopDescriptor {
 public:
  // Creates it from two new descriptors. Errors: those of the system calls, if the process has no descriptors left.
  static absl::StatusOr<std::unique_ptr<LoopDescriptor>> Create(int endpoint_fd);
  ~LoopDescriptor();
  LoopDescriptor(const LoopDescriptor&) = delete;
  LoopDescriptor& operator=(const LoopDescriptor&) = delete;

  // Returns the descriptor. It is readable while the endpoint's descriptor is, and when the timer has expired.
  int fd() const { return epoll_fd_; }
  // Sets the timer to `limit_ns` from now, and replaces the earlier one. Negative: no timer.
  void WakeAfter(int64_t limit_ns);

 private:
  LoopDescriptor(int epoll_fd, int timer_fd) : epoll_fd_(epoll_fd), timer_fd_(timer_fd) {}

  const int epoll_fd_;
  const int timer_fd_;
  bool has_timer_ = false;
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_LOOP_DESCRIPTOR_H_
