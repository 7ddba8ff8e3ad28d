// SPDX-License-Identifier: Apache-2.0
#include "transport/cm/request_desk.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "transport/base/error.h"

namespace sluice::cm {

Seat::~Seat() { close(event_fd_); }

bool Seat::Take(const verbs::VerbsApi& api, const Request& request) {
  std::lock_guard lock(mutex_);
  const bool moved = channel_ != nullptr && api.cm_migrate_id(request.event.id, channel_) == 0;
  if (!moved) {
    coming_.fetch_sub(1);
    return false;
  }
  requests_.push_back(request);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(event_fd_, &one, sizeof(one));
  return true;
}

std::optional<Request> Seat::NextLocked() {
  if (requests_.empty()) return std::nullopt;
  Request next = std::move(requests_.front());
  requests_.erase(requests_.begin());
  coming_.fetch_sub(1);
  if (requests_.empty()) {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = read(event_fd_, &count, sizeof(count));
  }
  next.event.param.conn.private_data = next.data.data();
  return next;
}

std::vector<Request> Seat::Leave() {
  std::lock_guard lock(mutex_);
  channel_ = nullptr;
  connections_.store(UINT32_MAX / 2);  // the last to be chosen
  return std::exchange(requests_, {});
}

absl::StatusOr<std::shared_ptr<Seat>> RequestDesk::Sit(rdma_event_channel* channel) {
  const int event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (event_fd < 0) {
    return base::ErrnoError(errno, "eventfd",
                            {.layer = "cm",
                             .operation = "share a listener",
                             .cause = "this process is out of file descriptors, most likely",
                             .remedy = "raise `ulimit -n`"});
  }
  std::lock_guard lock(mutex_);
  return seats_.emplace_back(new Seat(channel, event_fd));
}

std::shared_ptr<Seat> RequestDesk::Choose() {
  std::lock_guard lock(mutex_);
  const auto best =
      std::min_element(seats_.begin(), seats_.end(),
                       [](const auto& a, const auto& b) { return a->load() < b->load(); });
  std::shared_ptr<Seat> chosen = *best;
  std::rotate(best, best + 1, seats_.end());
  chosen->coming_.fetch_add(1);
  return chosen;
}

}  // namespace sluice::cm
