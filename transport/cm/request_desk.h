// SPDX-License-Identifier: Apache-2.0
//
// RequestDesk: distributes the connection requests of one listener to several connection managers.
//
// Purpose       Each manager of a server with several pollers has a seat, and one of them listens. A request goes to the seat with the
//               fewest connections. Its id moves to the event channel of that manager (man rdma_migrate_id), and its private data to
//               the inbox of the seat. After that the two managers share nothing.
// Ownership     Shared by all managers that have a seat.
// Threads       Any.
// End           A manager leaves its seat in its destructor. A request for a seat that is empty stays with the listening manager.
#ifndef SLUICE_TRANSPORT_CM_REQUEST_DESK_H_
#define SLUICE_TRANSPORT_CM_REQUEST_DESK_H_

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "transport/base/random.h"
#include "transport/cm/used_names.h"
#include "transport/verbs/handles.h"

namespace sluice::cm {

// A connection request: copies of its event and its private data.
struct Request {
  rdma_cm_event event = {};  // its private data is in `data`
  std::vector<std::byte> data;
};

class Seat {
 public:
  ~Seat();
  Seat(const Seat&) = delete;
  Seat& operator=(const Seat&) = delete;

  // Returns a descriptor that is readable while requests wait.
  int fd() const { return event_fd_; }
  // Moves the id to the manager of this seat. Blocks in the kernel. Returns false, and changes nothing, if the manager has ended or the
  // id cannot be moved.
  bool Take(const verbs::VerbsApi& api, const Request& request);

  // Returns the next request; nullopt: none. Called by the manager of this seat.
  std::optional<Request> Next();
  // Returns whether the id is moving to this seat, or has moved and Next() has not returned its request. Until then, events of the id may
  // arrive before the request.
  bool Expects(const rdma_cm_id* id);
  void SetConnections(size_t count) {
    connections_.store(static_cast<uint32_t>(count), std::memory_order_relaxed);
  }
  // Closes the seat: each later Take() fails. Waits until the moves in progress have ended. Returns the requests that Next() has not
  // returned.
  std::vector<Request> Leave();

 private:
  friend class RequestDesk;
  Seat(rdma_event_channel* channel, int event_fd) : event_fd_(event_fd), channel_(channel) {}
  std::optional<Request> Pop();
  uint32_t load() const { return connections_.load() + coming_.load(); }

  const int event_fd_;
  std::atomic<uint32_t> connections_{0};
  std::atomic<uint32_t> coming_{0};     // requests for this seat that Next() has not returned
  std::atomic<bool> signalled_{false};  // the descriptor may be readable
  std::mutex mutex_;                    // never held during a system call
  std::condition_variable moved_;
  rdma_event_channel* channel_;            // mutex_; null after Leave()
  std::vector<const rdma_cm_id*> moving_;  // mutex_
  std::vector<Request> requests_;          // mutex_
};

class RequestDesk {
 public:
  // Adds a seat. `channel` must be valid until Leave().
  absl::StatusOr<std::shared_ptr<Seat>> Sit(rdma_event_channel* channel);
  // Returns the seat with the fewest connections. Among equal seats, the seat that was chosen least recently wins. The caller must call
  // Take() or Unchoose() on the seat.
  std::shared_ptr<Seat> Choose();
  static void Unchoose(Seat& seat) { seat.coming_.fetch_sub(1); }

  // Returns random bytes that are the same for all users. The first call draws them. So a user can check a cookie that a client got from
  // another user.
  std::array<std::byte, 32> Seed(base::Random& random);
  // Returns the used names, which all users share. Any thread.
  const std::shared_ptr<UsedNames>& used() const { return used_; }

 private:
  const std::shared_ptr<UsedNames> used_ = std::make_shared<UsedNames>();
  std::mutex mutex_;
  std::vector<std::shared_ptr<Seat>> seats_;       // mutex_; least recently chosen first
  std::optional<std::array<std::byte, 32>> seed_;  // mutex_
};

}  // namespace sluice::cm

#endif  // SLUICE_TRANSPORT_CM_REQUEST_DESK_H_
