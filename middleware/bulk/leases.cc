// SPDX-License-Identifier: Apache-2.0
#include "middleware/bulk/leases.h"

#include <algorithm>
#include <string>
#include <utility>

#include "transport/base/error.h"

namespace sluice::bulk {
namespace {

absl::Status Refused(absl::StatusCode code, const std::string& what, std::string_view cause,
                     std::string_view remedy) {
  return base::Error(code, what,
                     {.layer = "bulk", .operation = "lease", .cause = cause, .remedy = remedy});
}

absl::Status NoLease() {
  return Refused(absl::StatusCode::kNotFound, "no such lease",
                 "the lease was returned, has expired, or never existed", "lend the memory again");
}

}  // namespace

Leases::Leases(device::Device& device, poller::Commands& commands, LeaseUser& user, uint64_t port,
               uint32_t max_leases)
    : device_(device), commands_(commands), user_(user), port_(port), leases_(max_leases) {
  for (uint32_t i = max_leases; i-- > 0;) free_.push_back(i);
}

const Leases::Lease* Leases::Named(LeaseId id) const {
  if (id.index >= leases_.size() || id.epoch == 0) return nullptr;
  const Lease& lease = leases_[id.index];
  return lease.epoch == id.epoch && lease.state != State::kFree ? &lease : nullptr;
}

Leases::Lease* Leases::Named(LeaseId id) {
  return const_cast<Lease*>(std::as_const(*this).Named(id));
}

absl::StatusOr<LeaseId> Leases::Lend(std::span<std::byte> memory, uint8_t rights, int64_t end_ns,
                                     std::shared_ptr<memory::Domain> domain) {
  if (memory.empty()) {
    return Refused(absl::StatusCode::kInvalidArgument, "no memory to lend", "its length is 0",
                   "lend at least one byte");
  }
  if (rights > (kMayRead | kMayWrite)) {
    return Refused(absl::StatusCode::kInvalidArgument, "invalid rights: " + std::to_string(rights),
                   "", "use kMayRead, kMayWrite or both");
  }
  if (free_.empty()) {
    return Refused(absl::StatusCode::kResourceExhausted,
                   "all " + std::to_string(leases_.size()) + " leases are in use", "",
                   "return leases, or raise max_leases");
  }
  const uint32_t index = free_.back();
  free_.pop_back();
  Lease& lease = leases_[index];
  ++active_;
  if (++lease.epoch == 0) ++lease.epoch;
  lease.state = State::kLending;
  lease.memory = memory;
  lease.rights = rights;
  lease.end_ns = end_ns;
  if (end_ns != 0) look_ns_ = std::min(look_ns_, end_ns);
  lease.uses = 0;
  lease.return_asked = false;
  lease.domain = domain;
  const LeaseId id{index, lease.epoch};
  auto regions = std::make_shared<absl::StatusOr<Regions>>(Regions());
  commands_.Submit(
      [this, regions, memory, rights, domain = std::move(domain)]() mutable {
        const auto make = [&](ibv_pd* pd, memory::RemoteRights remote, memory::Region* into) {
          if (!regions->ok()) return;
          auto made = memory::Region::Register(device_.api(), pd, memory, remote);
          if (!made.ok()) *regions = made.status();
          if (made.ok()) *into = *std::move(made);
        };
        make(domain == nullptr ? device_.pd() : domain->get(),
             {.read = (rights & kMayRead) != 0, .write = (rights & kMayWrite) != 0},
             &(*regions)->lent);
        if (domain != nullptr && regions->ok()) make(device_.pd(), {}, &(*regions)->local);
        domain.reset();
      },
      [this, regions, id] { OnRegistered(id, std::move(*regions)); });
  return id;
}

void Leases::OnRegistered(LeaseId id, absl::StatusOr<Regions> regions) {
  Lease& lease = *Named(id);
  if (!regions.ok()) {
    Free(id);
    return user_.OnLent(id, base::Prefix(regions.status(), "memory can't be lent"));
  }
  lease.regions = *std::move(regions);
  lease.state = State::kLent;
  if (lease.return_asked) return Revoke(id);
  user_.OnLent(id, Capability{.port = port_,
                              .address = reinterpret_cast<uint64_t>(lease.memory.data()),
                              .length_bytes = lease.memory.size(),
                              .key = lease.regions.lent.rkey(),
                              .lease = id.index,
                              .epoch = id.epoch,
                              .rights = lease.rights});
}

absl::Status Leases::Return(LeaseId id) {
  Lease* lease = Named(id);
  if (lease == nullptr || lease->return_asked) return NoLease();
  lease->return_asked = true;
  if (lease->state == State::kLending) return absl::OkStatus();
  lease->state = State::kReturning;
  if (lease->uses == 0) Revoke(id);
  return absl::OkStatus();
}

bool Leases::IsEnding(LeaseId id) const {
  const Lease* lease = Named(id);
  return lease != nullptr && lease->return_asked;
}

void Leases::Revoke(LeaseId id) {
  Lease& lease = leases_[id.index];
  lease.state = State::kRevoking;
  // No other code uses the regions until the command has ended. After it, no peer can write to the memory.
  commands_.Submit([regions = &lease.regions] { *regions = Regions(); },
                   [this, id] {
                     Free(id);
                     user_.OnReturned(id);
                   });
}

// Drops the domain in a command: the last reference frees the protection domain, which blocks. IsFor() needs the domain until here.
void Leases::Free(LeaseId id) {
  leases_[id.index].state = State::kFree;
  leases_[id.index].memory = {};
  if (leases_[id.index].domain != nullptr) {
    commands_.Submit([domain = std::move(leases_[id.index].domain)]() mutable { domain.reset(); },
                     [] {});
  }
  free_.push_back(id.index);
  --active_;
}

void Leases::Poll(int64_t now_ns) {
  if (now_ns < look_ns_) return;
  look_ns_ = INT64_MAX;
  for (uint32_t i = 0; i < leases_.size(); ++i) {
    const Lease& lease = leases_[i];
    if (lease.end_ns == 0 || (lease.state != State::kLending && lease.state != State::kLent)) {
      continue;
    }
    if (lease.state == State::kLent && now_ns >= lease.end_ns) {
      (void)Return({i, lease.epoch});
    } else {
      look_ns_ = std::min(look_ns_, lease.end_ns);
    }
  }
}

int64_t Leases::NextEndNs() const {
  int64_t next_ns = 0;
  if (active_ == 0) return next_ns;
  for (const Lease& lease : leases_) {
    if (lease.state != State::kLent || lease.end_ns == 0) continue;
    next_ns = next_ns == 0 ? lease.end_ns : std::min(next_ns, lease.end_ns);
  }
  return next_ns;
}

absl::StatusOr<Leases::Memory> Leases::Use(LeaseId id, uint64_t offset, uint64_t size_bytes,
                                           const memory::Domain* domain) {
  Lease* lease = Named(id);
  if (lease == nullptr || lease->state != State::kLent) return NoLease();
  if (domain != nullptr && domain != lease->domain.get()) {
    return Refused(absl::StatusCode::kFailedPrecondition,
                   "the local memory is not lent for this peer",
                   "a protected transfer with a peer of its own reach takes memory of that peer's "
                   "protection domain",
                   "lend the memory for this peer");
  }
  if (offset > lease->memory.size() || size_bytes > lease->memory.size() - offset) {
    return Refused(absl::StatusCode::kOutOfRange,
                   std::to_string(size_bytes) + " bytes from " + std::to_string(offset) +
                       " on are not all in a lease of " + std::to_string(lease->memory.size()),
                   "protected blocks also take the bytes of their signatures",
                   "lend more, or move less");
  }
  ++lease->uses;
  const bool local = domain == nullptr && lease->domain != nullptr;
  const memory::Region& region = local ? lease->regions.local : lease->regions.lent;
  return Memory{lease->memory.data() + offset, region.lkey()};
}

void Leases::Unuse(LeaseId id) {
  Lease* lease = Named(id);
  if (lease == nullptr || lease->uses == 0) return;
  if (--lease->uses == 0 && lease->state == State::kReturning) Revoke(id);
}

bool Leases::IsFor(LeaseId id, const memory::Domain* domain) const {
  const Lease* lease = Named(id);
  return lease == nullptr || lease->domain.get() == domain;
}

std::span<std::byte> Leases::Find(LeaseId id, uint64_t offset, uint64_t size_bytes) const {
  const Lease* lease = Named(id);
  if (lease == nullptr || lease->state != State::kLent || lease->rights == 0) return {};
  if (offset > lease->memory.size() || size_bytes > lease->memory.size() - offset) return {};
  return lease->memory.subspan(offset, size_bytes);
}

}  // namespace sluice::bulk
