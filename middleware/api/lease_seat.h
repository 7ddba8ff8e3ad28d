// SPDX-License-Identifier: Apache-2.0
//
// Seat: a channel's place at a lease. It names the engine at which the channel starts calls. Channels that share an engine have a
// seat each. The address of the seat is the `owner` of the channel's calls.
//
// Ownership     The channel. The lease refers to the seat while a function with it runs, and until Lease::Leave().
// Threads       As the lease.
#ifndef SLUICE_MIDDLEWARE_API_LEASE_SEAT_H_
#define SLUICE_MIDDLEWARE_API_LEASE_SEAT_H_

#include <cstdint>

#include "middleware/api/fork_count.h"

namespace sluice {
namespace call {
class ClientEngine;
class GroupEndpoint;
}  // namespace call

class Seat {
 public:
  // `member`: the engine's part in the lease's group. nullptr: the engine is alone.
  explicit Seat(call::ClientEngine* engine, call::GroupEndpoint* member = nullptr)
      : engine_(engine), member_(member) {}
  Seat(const Seat&) = delete;
  Seat& operator=(const Seat&) = delete;

  // Call with the lease. New calls at this seat fail from now on. For a channel that ends while other channels use its engine.
  void StartNoMore() { forks_ = kNoMore; }

 private:
  static constexpr uint32_t kNoMore = UINT32_MAX;

  friend class Lease;
  call::ClientEngine* const engine_;
  call::GroupEndpoint* const member_;
  uint32_t forks_ = internal::CountForks();  // at the creation of the seat; or kNoMore
  bool left_ = false;                        // the lease's mutex_; Leave() was called
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_LEASE_SEAT_H_
