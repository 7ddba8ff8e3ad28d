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

// A user's share in a handle.
struct Route {
  ibv_ah* handle = nullptr;
  bool mapped = false;  // to the template that was asked for
  bool first = false;   // this user made it
  int map_error = 0;    // why it is not mapped; 0: it is, or there was nothing to try
};

struct HandleLimits {
  size_t max_idle = 256;
  int64_t max_idle_ns = 30'000'000'000;  // a neighbour entry of the kernel's is trusted as long
};

// Since the start, but for the first two, which are as of now.
struct HandleCounts {
  uint32_t in_use = 0;
  uint32_t idle = 0;
  uint64_t made = 0;
  uint64_t reused = 0;  // given to one more user, or again
  uint64_t evicted = 0;
  uint64_t mapped = 0;
  uint64_t unmapped = 0;      // made, and not mapped, for whatever reason
  uint64_t map_failures = 0;  // of those: the device refused
  int last_map_error = 0;     // errno
  uint64_t make_failures = 0;
};

class AddressHandles {
 public:
  // `map`: the device can map handles (Feature::kAhMapping). `path`: of it, the traffic class and the service level, if it has
  // them, replace those of RDMA_CM.
  AddressHandles(const verbs::VerbsApi& api, ibv_pd* pd, bool map, base::Clock& clock,
                 HandleLimits limits = {}, const verbs::PathOptions& path = {})
      : api_(api), pd_(pd), map_(map), clock_(clock), limits_(limits), path_(path) {}

  // The handle for this destination and template, mapped once, right after it is made. One that
  // can't be mapped is used unmapped and counted: mapping is a hint.
  absl::StatusOr<Route> Acquire(const ibv_ah_attr& attr, uint32_t template_qpn);
  // `suspect`: packets sent with it had no answer. Nobody gets it any more, and it is freed with its
  // last user: the next peer's way is looked up anew.
  void Release(ibv_ah* handle, bool suspect = false);

  // The template goes: handles without users that are mapped to it go first.
  void Forget(uint32_t template_qpn);

  // An address of this host changed: who comes from now on shares no handle with those before, whose
  // handles stay as they are. Those without users go.
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
    bool current = true;  // by_destination_ leads here
    int64_t idle_since_ns = 0;
    std::list<Entry*>::iterator place = {};  // in idle_, without users
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

  // With that flow label of the destination whose handle has the fewest users. Of several, another one each time: a peer that comes back
  // because its path is broken does not get the same path again.
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
  std::list<Entry*> idle_;  // unused longest first
  std::atomic<uint64_t> counts_[kFailed + 1] = {};
};

}  // namespace sluice::path

#endif  // SLUICE_TRANSPORT_PATH_ADDRESS_HANDLES_H_
