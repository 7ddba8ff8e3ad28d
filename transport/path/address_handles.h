// SPDX-License-Identifier: Apache-2.0
//
// AddressHandles: one ibv_ah for each destination, shared by all peers behind it. Each is mapped to a template DCI, so that its packets use
// the negotiated congestion control.
//
// Purpose       A cache with the address vector (address, port, class) and the template as its key. A handle can be mapped once (man
//               mlx5dv_map_ah_to_qp), so a peer that returns with another result of ECE gets another handle.
// Ownership     The creator. The protection domain outlives it.
// Threads       Only inside Commands (creation blocks), one at a time. Counts: any.
// Limits        A handle in use is never freed: at most one per peer. Unused handles are kept, so that a returning peer needs no
//               new one: `max_idle` of them, the longest unused is freed first. A handle unused for `max_idle_ns` is not used again,
//               because its address may belong to another host by then.
#ifndef SLUICE_TRANSPORT_PATH_ADDRESS_HANDLES_H_
#define SLUICE_TRANSPORT_PATH_ADDRESS_HANDLES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "transport/base/clock.h"
#include "transport/verbs/handles.h"

namespace sluice::path {

// A handle that a user has acquired.
struct Route {
  ibv_ah* handle = nullptr;
  bool mapped = false;  // mapped to the requested template
  bool first = false;   // created for this user
  int map_error = 0;    // errno of the failed mapping; 0: mapped, or no mapping was tried
};

struct HandleLimits {
  size_t max_idle = 256;
  int64_t max_idle_ns = 30'000'000'000;  // a neighbour entry of the kernel's is trusted as long
};

// Counts since the start. `in_use` and `idle` are present numbers.
struct HandleCounts {
  uint32_t in_use = 0;
  uint32_t idle = 0;
  uint64_t made = 0;
  uint64_t reused = 0;  // acquired by a further user, or again
  uint64_t evicted = 0;
  uint64_t mapped = 0;
  uint64_t unmapped = 0;      // created without a mapping
  uint64_t map_failures = 0;  // of the unmapped handles: the device refused to map
  int last_map_error = 0;     // errno
  uint64_t make_failures = 0;
};

class AddressHandles {
 public:
  // `map`: the device can map handles (Feature::kAhMapping). `path`: number of flow labels, and traffic class and service level, which
  // replace the values of RDMA_CM if they are set.
  AddressHandles(const verbs::VerbsApi& api, ibv_pd* pd, bool map, base::Clock& clock,
                 HandleLimits limits = {}, const verbs::PathOptions& path = {})
      : api_(api), pd_(pd), map_(map), clock_(clock), limits_(limits), path_(path) {}

  // Returns the handle for this destination and template. Creates and maps it if there is none. A
  // handle that can't be mapped is used unmapped, and counted: mapping is only a hint.
  absl::StatusOr<Route> Acquire(const ibv_ah_attr& attr, uint32_t template_qpn);
  // Releases a user's share. `suspect`: packets sent with the handle were not answered. No further user
  // gets it, and it is freed with its last user. So the route to the next peer is looked up again.
  void Release(ibv_ah* handle, bool suspect = false);

  // Frees unused handles of this template. Call it before the template is destroyed.
  void Forget(uint32_t template_qpn);

  // Handles a change of this host's addresses: later users share no handle with present users, whose
  // handles do not change. Frees unused handles.
  void Renew();

  // Any thread.
  HandleCounts counts() const;

 private:
  struct Entry {
    std::string destination;
    uint32_t template_qpn = 0;
    verbs::Ah handle;
    bool mapped = false;
    int map_error = 0;
    uint32_t users = 0;
    bool current = true;  // by_destination_ refers to it
    int64_t idle_since_ns = 0;
    std::list<Entry*>::iterator place = {};  // position in idle_ while it has no users
  };
  enum Count {
    kInUse,
    kIdle,
    kMade,
    kReused,
    kEvicted,
    kMapped,
    kUnmapped,
    kMapFailed,
    kMapError,
    kFailed
  };

  // Returns attributes with the flow label whose handle has the fewest users. If several have equally few, it selects another label
  // each time, so that a peer that reconnects because its path is broken does not get the same path.
  ibv_ah_attr LeastUsed(const ibv_ah_attr& from_cm, uint32_t template_qpn);
  absl::StatusOr<Entry*> Make(const ibv_ah_attr& attr, uint32_t template_qpn,
                              std::string destination);
  void Retire(Entry* entry);
  void Free(Entry* entry);
  void Evict();
  void EvictOne(std::list<Entry*>::iterator place);
  void Add(Count which, int64_t difference = 1) {
    counts_[which].fetch_add(static_cast<uint64_t>(difference));
  }

  const verbs::VerbsApi& api_;
  ibv_pd* const pd_;
  const bool map_;
  base::Clock& clock_;
  const HandleLimits limits_;
  const verbs::PathOptions path_;
  uint32_t acquired_ = 0;
  absl::flat_hash_map<ibv_ah*, std::unique_ptr<Entry>> entries_;
  absl::flat_hash_map<std::string, Entry*> by_destination_;
  std::list<Entry*> idle_;  // the longest unused first
  std::atomic<uint64_t> counts_[kFailed + 1] = {};
};

}  // namespace sluice::path

#endif  // SLUICE_TRANSPORT_PATH_ADDRESS_HANDLES_H_
