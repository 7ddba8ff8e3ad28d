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

// Registers memory (man ibv_reg_mr). Returns null with errno on failure.
ibv_mr* RegisterMemory(ibv_pd* pd, void* address, size_t length_bytes, int access);
// Deregisters the region. Blocks until no peer copies to or from it. Returns EBUSY while a window is bound to the region.
int DeregisterMemory(ibv_mr* mr);
// Changes range, PD and rights of `mr` (man ibv_rereg_mr with all three flags). `mr` gets new keys; mlx5 may keep the keys. On failure
// returns an errno and leaves `mr` unchanged.
int ReregisterMemory(ibv_mr* mr, ibv_pd* pd, void* address, size_t length_bytes, int access);
int AccessOf(const ibv_mr& mr);
// Changes PD and rights of `mr` and keeps its keys, as mlx5 does without a new registration. The rights may differ only in LOCAL_WRITE,
// REMOTE_WRITE, REMOTE_READ and RELAXED_ORDERING; otherwise returns kNeedsNewKeys. Blocks until no copy of a peer needs a revoked right.
// Returns 0 or an errno.
inline constexpr int kNeedsNewKeys = -1;
int ChangeRights(ibv_mr* mr, ibv_pd* pd, int access);

// Returns the region that a local SGE names. The key must cover the range, belong to `pd` and grant all of `access` (IBV_ACCESS_LOCAL_WRITE
// if the memory is written). Otherwise returns null: a local protection error.
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

// Returns the place of an SGE in the form that peers use. If the key does not cover the range, the key of the result is 0. The error then
// appears on delivery, as on a device that uses the WQE.
inline shm::Sge SharedPlace(Context& context, const ibv_sge& sge, uint32_t pd) {
  if (IsMkey(sge.lkey)) return {.offset = sge.addr, .key = sge.lkey, .length = sge.length};
  const shm::MemoryRegionEntry* region = FindLocalRegion(context, sge, pd, IBV_ACCESS_LOCAL_WRITE);
  if (region == nullptr) return {.length = sge.length};
  return {.offset = sge.addr - region->address, .key = sge.lkey, .length = sge.length};
}

// Returns the region of a place from SharedPlace, or null if it is not registered now.
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
