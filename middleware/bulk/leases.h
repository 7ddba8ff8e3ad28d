// SPDX-License-Identifier: Apache-2.0
//
// Leases: memory that is open to peers, or to this side's own transfers. Each lease has a memory region of the device with exactly its
// range and rights. After the region is deregistered, no peer accesses the memory.
//
// Purpose       A table. OnReturned() gives the memory back to its user when the device has deregistered it: after Return(), after the
//               lease has expired, and after the last transfer of this side that uses it.
// Ownership     A port. Device, clock and commands outlive it; the memory stays valid until OnReturned(). Before the destructor, the
//               Commands must have finished. The destructor ends all leases without OnReturned().
// Threads       The polling thread.
// Limits        max_leases; a further one is RESOURCE_EXHAUSTED.
#ifndef SLUICE_MIDDLEWARE_BULK_LEASES_H_
#define SLUICE_MIDDLEWARE_BULK_LEASES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "middleware/bulk/capability.h"
#include "transport/device/device.h"
#include "transport/memory/region.h"
#include "transport/poller/commands.h"

namespace sluice::bulk {

class LeaseUser {
 public:
  virtual ~LeaseUser() = default;
  // Reports that the lease is valid: `capability` can be sent to peers. It is useless to them if the lease has no rights. On an
  // error, no further call follows for this lease.
  virtual void OnLent(LeaseId lease, const absl::StatusOr<Capability>& capability) = 0;
  // Reports that the lease has ended: no peer can access the memory. Last call for this lease.
  virtual void OnReturned(LeaseId lease) = 0;
};

class Leases {
 public:
  Leases(device::Device& device, poller::Commands& commands, LeaseUser& user, uint64_t port,
         uint32_t max_leases);

  // Lends memory. OnLent() follows in a later Drain() of the commands, or only OnReturned() if Return() was called before.
  // `end_ns`: time at which the lease expires, on the clock of Poll(); 0: never.
  // `domain`: protection domain of the only peer that can access the memory; null: the device's domain, which all peers without
  // their own domain share. Errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED.
  absl::StatusOr<LeaseId> Lend(std::span<std::byte> memory, uint8_t rights, int64_t end_ns,
                               std::shared_ptr<memory::Domain> domain = nullptr);
  // Ends a lease; OnReturned() follows. NOT_FOUND: no such lease, or it is already being returned.
  absl::Status Return(LeaseId lease);
  // Returns true if the lease is being returned, and OnReturned() has not been called yet.
  bool IsEnding(LeaseId lease) const;
  // Ends the leases that have expired.
  void Poll(int64_t now_ns);

  // Memory of a lease for a transfer of this side. Use() keeps the lease until Unuse(). `domain`: protection domain of the queue
  // that moves the data; null: the device's. Errors: NOT_FOUND (no such lease, not lent yet, or being returned), OUT_OF_RANGE (the
  // range exceeds the lease), FAILED_PRECONDITION (the memory is not lent in that domain).
  struct Memory {
    std::byte* data = nullptr;
    uint32_t lkey = 0;
  };
  absl::StatusOr<Memory> Use(LeaseId lease, uint64_t offset, uint64_t size_bytes,
                             const memory::Domain* domain = nullptr);
  void Unuse(LeaseId lease);
  // Returns memory of a lease that peers have rights to. Returns an empty span if the lease has no rights, is not lent now, or does
  // not contain the whole range.
  std::span<std::byte> Find(LeaseId lease, uint64_t offset, uint64_t size_bytes) const;
  // Returns true if a peer of this domain may have accessed the lease. Also true if the lease has ended.
  bool IsFor(LeaseId lease, const memory::Domain* domain) const;

  // Returns the time at which the next lease expires; 0: no lease expires.
  int64_t NextEndNs() const;
  uint32_t active() const { return active_; }

 private:
  struct Regions {
    memory::Region lent;
    // For transfers of this side: registered in the device's domain. Only if `lent` is in another domain.
    memory::Region local;
  };
  enum class State : uint8_t { kFree, kLending, kLent, kReturning, kRevoking };
  struct Lease {
    State state = State::kFree;
    uint32_t epoch = 0;
    std::span<std::byte> memory;
    uint8_t rights = 0;
    int64_t end_ns = 0;
    uint32_t uses = 0;
    bool return_asked = false;  // Return() was called
    std::shared_ptr<memory::Domain> domain;
    Regions regions;
  };

  Lease* Named(LeaseId id);
  const Lease* Named(LeaseId id) const;
  void OnRegistered(LeaseId id, absl::StatusOr<Regions> regions);
  void Revoke(LeaseId id);
  void Free(LeaseId id);

  device::Device& device_;
  poller::Commands& commands_;
  LeaseUser& user_;
  const uint64_t port_;
  std::vector<Lease> leases_;
  std::vector<uint32_t> free_;
  uint32_t active_ = 0;
  int64_t look_ns_ = INT64_MAX;  // no lease expires before this time
};

}  // namespace sluice::bulk

#endif  // SLUICE_MIDDLEWARE_BULK_LEASES_H_
