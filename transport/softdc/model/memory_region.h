// SPDX-License-Identifier: Apache-2.0
//
// Memory regions: registration, and the check of a local key on each use.
#ifndef SLUICE_TRANSPORT_SOFTDC_MODEL_MEMORY_REGION_H_
#define SLUICE_TRANSPORT_SOFTDC_MODEL_MEMORY_REGION_H_

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transport/softdc/model/context.h"
#include "transport/softdc/model/mkey_area.h"
#include "transport/softdc/shm/layout.h"
#include "transport/softdc/shm/srq_area.h"

namespace sluice::softdc {

// Null with errno set. man ibv_reg_mr.
ibv_mr* RegisterMemory(ibv_pd* pd, void* address, size_t length_bytes, int access);
// Returns when no peer writes there any more. EBUSY while a window is bound to it.
int DeregisterMemory(ibv_mr* mr);
// man ibv_rereg_mr, all three of them given: `mr` has new keys then (mlx5 may keep them). An errno: it
// is as it was.
int ReregisterMemory(ibv_mr* mr, ibv_pd* pd, void* address, size_t length_bytes, int access);
int AccessOf(const ibv_mr& mr);
// The same range with another domain or other rights under the same keys, as mlx5 does it without a new
// registration: if the rights differ in LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ and RELAXED_ORDERING
// only. Returns when no peer is at a copy any more that needs what was taken. 0, an errno, or
// kNeedsNewKeys.
inline constexpr int kNeedsNewKeys = -1;
int ChangeRights(ibv_mr* mr, ibv_pd* pd, int access);

// The region that a local SGE names, if its key covers it, belongs to `pd` and grants all of
// `access` (IBV_ACCESS_LOCAL_WRITE for what is written to). Null: a local protection error.
inline const shm::MemoryRegionEntry* FindLocalRegion(Context& context, const ibv_sge& sge,
                                                     uint32_t pd, uint32_t access) {
  const uint32_t index = sge.lkey >> 8;
  if (index >= shm::kMaxMemoryRegions || sge.lkey == 0) return nullptr;
  const shm::MemoryRegionEntry& region = context.memory_regions()[index];
  const uint64_t into = sge.addr - region.address;
  if (region.key.load(std::memory_order_acquire) != sge.lkey || region.pd != pd ||
      (region.access & access) != access || sge.addr < region.address ||
      into > region.length_bytes || sge.length > region.length_bytes - into) {
    return nullptr;
  }
  return &region;
}

// The same place as peers name it. A key that covers nothing gives key 0: whoever delivers into the
// piece finds out, as a device does when it uses the WQE.
inline shm::Sge SharedPlace(Context& context, const ibv_sge& sge, uint32_t pd) {
  if (IsMkey(sge.lkey)) return {.offset = sge.addr, .key = sge.lkey, .length = sge.length};
  const shm::MemoryRegionEntry* region = FindLocalRegion(context, sge, pd, IBV_ACCESS_LOCAL_WRITE);
  if (region == nullptr) return {.length = sge.length};
  return {.offset = sge.addr - region->address, .key = sge.lkey, .length = sge.length};
}

// The region of a place that SharedPlace gave, if it is still registered.
inline const shm::MemoryRegionEntry* FindSharedPlace(Context& context, const shm::Sge& sge) {
  const uint32_t index = sge.key >> 8;
  if (index >= shm::kMaxMemoryRegions || sge.key == 0) return nullptr;
  const shm::MemoryRegionEntry& region = context.memory_regions()[index];
  if (region.key.load(std::memory_order_acquire) != sge.key || sge.offset > region.length_bytes ||
      sge.length > region.length_bytes - sge.offset) {
    return nullptr;
  }
  return &region;
}

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_MEMORY_REGION_H_
