// SPDX-License-Identifier: Apache-2.0
#include "transport/cm/request_desk.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/base/error.h"

namespace sluice::cm {

Seat::~Seat() { close(event_fd_); }

bool Seat::Take(const verbs::VerbsApi& api, const Request& request) {
  const rdma_cm_id* const id = request.event.id;
  rdma_event_channel* channel = nullptr;
  {
    std::lock_guard lock(mutex_);
    channel = channel_;  // valid while `moving_` is not empty
    if (channel != nullptr) moving_.push_back(id);
  }
  const bool moved = channel != nullptr && api.cm_migrate_id(request.event.id, channel) == 0;
  {
    std::lock_guard lock(mutex_);
    std::erase(moving_, id);
    if (moved) requests_.push_back(request);
  }
  moved_.notify_all();
  if (!moved) {
    coming_.fetch_sub(1);
    return false;
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(event_fd_, &one, sizeof(one));
  signalled_.store(true);
  return true;
}

std::optional<Request> Seat::Next() {
  std::optional<Request> next = Pop();
  // The descriptor is cleared only if no request was found. The read may clear the signal of a request that has just arrived, so Pop()
  // runs again.
  if (!next.has_value() && signalled_.exchange(false)) {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = read(event_fd_, &count, sizeof(count));
    next = Pop();
  }
  if (!next.has_value()) return next;
  coming_.fetch_sub(1);
  next->event.param.conn.private_data = next->data.data();
  return next;
}

std::optional<Request> Seat::Pop() {
  std::lock_guard lock(mutex_);
  if (requests_.empty()) return std::nullopt;
  std::optional<Request> first = std::move(requests_.front());
  requests_.erase(requests_.begin());
  return first;
}

bool Seat::Expects(const rdma_cm_id* id) {
  std::lock_guard lock(mutex_);
  return std::ranges::find(moving_, id) != moving_.end() ||
         std::ranges::any_of(requests_, [id](const Request& one) { return one.event.id == id; });
}

std::vector<Request> Seat::Leave() {
  std::unique_lock lock(mutex_);
  channel_ = nullptr;
  connections_.store(UINT32_MAX / 2);  // the last to be chosen
  moved_.wait(lock, [this] { return moving_.empty(); });
  return std::exchange(requests_, {});
}

absl::StatusOr<std::shared_ptr<Seat>> RequestDesk::Sit(rdma_event_channel* channel) {
  const int event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (event_fd < 0) {
    return base::ErrnoError(errno, "eventfd",
                            {.layer = "cm",
                             .operation = "share a listener",
                             .cause = "this process has probably no file descriptors left",
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

std::array<std::byte, 32> RequestDesk::Seed(base::Random& random) {
  std::lock_guard lock(mutex_);
  if (!seed_.has_value()) {
    seed_.emplace();
    for (size_t i = 0; i < seed_->size(); i += 8) {
      const uint64_t drawn = random.Next64();
      std::memcpy(seed_->data() + i, &drawn, sizeof(drawn));
    }
  }
  return *seed_;
}

}  // namespace sluice::cm
