// SPDX-License-Identifier: Apache-2.0
//
// Poller: the descriptors that one polling thread sleeps on, and the way to wake it.
//
// Purpose       An epoll set and an eventfd. Not part of the hot path: completion queues are polled in memory. Descriptors are
//               checked after a sleep and from time to time.
// Ownership     The creator. Watched descriptors belong to their owners.
// Threads       The polling thread. Wake(): any.
#ifndef SLUICE_TRANSPORT_POLLER_POLLER_H_
#define SLUICE_TRANSPORT_POLLER_POLLER_H_

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice::poller {

class Poller {
 public:
  static constexpr int kMaxWatches = 16;  // a few per endpoint, none per peer

  static absl::StatusOr<std::unique_ptr<Poller>> Create();
  ~Poller();
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  // `on_ready` runs inside Check() while the descriptor is readable; it must read until EAGAIN.
  absl::Status Watch(int fd, std::function<void()> on_ready);
  void Unwatch(int fd);

  // Calls `on_ready` of all ready descriptors, and returns their number. Does not block.
  int Check();
  // Makes fd() readable until the next Check(). Memory writes before Wake() are visible after that
  // Check(). Several calls before a Check() cost one system call.
  void Wake();
  // The epoll descriptor: readable when Check() has something to do.
  int fd() const { return epoll_fd_; }

 private:
  struct Watched {
    int fd = -1;
    std::function<void()> on_ready;
  };

  Poller(int epoll_fd, int event_fd) : epoll_fd_(epoll_fd), event_fd_(event_fd) {}

  const int epoll_fd_;
  const int event_fd_;
  std::atomic<bool> woken_{false};
  std::vector<Watched> watched_;
};

}  // namespace sluice::poller

#endif  // SLUICE_TRANSPORT_POLLER_POLLER_H_
