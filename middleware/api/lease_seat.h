// SPDX-License-Identifier: Apache-2.0
//
// Seat: a channel's place at a lease: the engine that it starts calls at.
//
// Ownership     The channel. The lease refers to it while a function with it runs, and until Lease::Leave().
// Threads       The lease's.
#ifndef SLUICE_MIDDLEWARE_API_LEASE_SEAT_H_
#define SLUICE_MIDDLEWARE_API_LEASE_SEAT_H_

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

 private:
  friend class Lease;
  call::ClientEngine* const engine_;
  call::GroupEndpoint* const member_;
  bool left_ = false;  // the lease's mutex_
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_LEASE_SEAT_H_
