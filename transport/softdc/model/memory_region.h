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
#include "transport/softdc/shm/layout.h"
#include "transport/softdc/shm/srq_area.h"

namespace sluice::softdc {

// Null with errno set. man ibv_reg_mr.
ibv_mr* RegisterMemory(ibv_pd* pd, void* address, size_t length_bytes, int access);
int DeregisterMemory(ibv_mr* mr);

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

// The same place as peers name it. A key that covers nothing gives a place without length.
inline shm::Sge SharedPlace(Context& context, const ibv_sge& sge, uint32_t pd) {
  const shm::MemoryRegionEntry* region = FindLocalRegion(context, sge, pd, IBV_ACCESS_LOCAL_WRITE);
  if (region == nullptr) return {};
  return {.offset = region->segment_offset + (sge.addr - region->address),
          .segment = region->segment,
          .length = sge.length};
}

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_MEMORY_REGION_H_
