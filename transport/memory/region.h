// SPDX-License-Identifier: Apache-2.0
//
// Region: registers memory that another object owns, with exactly the given rights. After its destructor, no device and no peer
// accesses the memory through it.
//
// Ownership     The creator. Device and memory outlive it.
// Threads       Any. Creation and destruction block: a poller runs them in Commands.
#ifndef SLUICE_TRANSPORT_MEMORY_REGION_H_
#define SLUICE_TRANSPORT_MEMORY_REGION_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "transport/verbs/handles.h"

namespace sluice::memory {

// A protection domain: its queues can access only memory that is registered in it. It outlives its queues and its memory regions.
using Domain = verbs::Pd;

// Rights of peers. Local transfers may read and write.
struct RemoteRights {
  bool read = false;
  bool write = false;
};

class Region {
 public:
  static absl::StatusOr<Region> Register(const verbs::VerbsApi& api, ibv_pd* pd,
                                         std::span<std::byte> memory, RemoteRights rights);
  Region() = default;

  uint32_t lkey() const { return mr_->lkey; }
  uint32_t rkey() const { return mr_->rkey; }
  void reset() { mr_.reset(); }

 private:
  verbs::Mr mr_;
};

}  // namespace sluice::memory

#endif  // SLUICE_TRANSPORT_MEMORY_REGION_H_
