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
  // The lease is valid, and `capability` can be passed on (it is useless to peers if the lease has no rights). Or the error;
  // no further call follows for this lease.
  virtual void OnLent(LeaseId lease, const absl::StatusOr<Capability>& capability) = 0;
  // No peer reaches the memory from now on. The last call for this lease.
  virtual void OnReturned(LeaseId lease) = 0;
};

class Leases {
 public:
  Leases(device::Device& device, poller::Commands& commands, LeaseUser& user, uint64_t port,
         uint32_t max_leases);

  // INVALID_ARGUMENT, RESOURCE_EXHAUSTED; else OnLent() follows, in a later Poll() of the commands. `end_ns`: on the
  // clock of Poll(); 0: no end. `domain`: the protection domain of the peer that alone reaches the memory; null: every
  // peer that has no domain of its own.
  absl::StatusOr<LeaseId> Lend(std::span<std::byte> memory, uint8_t rights, int64_t end_ns,
                               std::shared_ptr<memory::Domain> domain = nullptr);
  // NOT_FOUND: no such lease, or it is being returned. Else OnReturned() follows.
  absl::Status Return(LeaseId lease);
  // It is being returned: OnReturned() has still to come.
  bool IsEnding(LeaseId lease) const;
  // Ends the leases that have expired.
  void Poll(int64_t now_ns);

  // For a transfer of one's own. `domain`: that of the queue which moves it; null: the device's. NOT_FOUND: no such lease, or
  // not for long; OUT_OF_RANGE: not all of it is lent; FAILED_PRECONDITION: it is not lent in that domain.
  struct Memory {
    std::byte* data = nullptr;
    uint32_t lkey = 0;
  };
  absl::StatusOr<Memory> Use(LeaseId lease, uint64_t offset, uint64_t size_bytes,
                             const memory::Domain* domain = nullptr);
  void Unuse(LeaseId lease);
  // Of a lease that was lent to others; empty: it has ended, or the range is not all in it.
  std::span<std::byte> Find(LeaseId lease, uint64_t offset, uint64_t size_bytes) const;
  // A peer of this domain may have reached it; also if the lease has ended.
  bool IsFor(LeaseId lease, const memory::Domain* domain) const;

  // When the next of them ends by itself; 0: none does.
  int64_t NextEndNs() const;
  uint32_t active() const { return active_; }

 private:
  struct Regions {
    memory::Region lent;
    // In the device's domain, if `lent` is in another: for transfers of one's own.
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
    bool return_asked = false;  // while it was being lent
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
  int64_t look_ns_ = INT64_MAX;  // no lease ends by itself before
};

}  // namespace sluice::bulk

#endif  // SLUICE_MIDDLEWARE_BULK_LEASES_H_
