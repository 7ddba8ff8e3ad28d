// SPDX-License-Identifier: Apache-2.0
//
// AddressHandles: one ibv_ah per distinct destination, shared by all peers behind it, mapped to a
// template DCI so that its packets follow the congestion-control settings that were negotiated for
// it.
//
// Who owns it   Its creator; the protection domain outlives it.
// Which thread  Inside Commands only (making one blocks), one at a time.
// Bound         As many as there are peers; each handle is counted by its users.
#ifndef SLUICE_TRANSPORT_PATH_ADDRESS_HANDLES_H_
#define SLUICE_TRANSPORT_PATH_ADDRESS_HANDLES_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "transport/verbs/handles.h"

namespace sluice::path {

// A user's share in a handle.
struct Route {
  ibv_ah* handle = nullptr;
  bool mapped = false;  // to the template that was asked for
  bool first = false;   // this user made it
};

class AddressHandles {
 public:
  // `map`: the device can map handles (Feature::kAhMapping).
  AddressHandles(const verbs::VerbsApi& api, ibv_pd* pd, bool map)
      : api_(api), pd_(pd), map_(map) {}

  // The handle for this destination and template, mapped once, right after it is made: a second
  // mapping of a handle would do nothing (man mlx5dv_map_ah_to_qp), so another template means
  // another handle. One that can't be mapped is used unmapped and counted: mapping is a hint.
  absl::StatusOr<Route> Acquire(const ibv_ah_attr& attr, uint32_t template_qpn);
  // Frees the handle with its last user.
  void Release(ibv_ah* handle);

  // An address of this host changed: who comes from now on shares no handle with those before, whose
  // handles stay as they are.
  void Renew() { ++generation_; }

  // Any thread.
  uint32_t mapped() const { return mapped_.load(std::memory_order_relaxed); }
  uint32_t unmapped() const { return unmapped_.load(std::memory_order_relaxed); }

 private:
  struct Entry {
    verbs::Ah handle;
    bool mapped = false;
    uint32_t users = 0;
  };

  const verbs::VerbsApi& api_;
  ibv_pd* const pd_;
  const bool map_;
  uint64_t generation_ = 0;
  std::atomic<uint32_t> mapped_{0};  // since the start
  std::atomic<uint32_t> unmapped_{0};
  absl::flat_hash_map<std::string, Entry> by_destination_;
  absl::flat_hash_map<ibv_ah*, std::string> destination_of_;
};

}  // namespace sluice::path

#endif  // SLUICE_TRANSPORT_PATH_ADDRESS_HANDLES_H_
