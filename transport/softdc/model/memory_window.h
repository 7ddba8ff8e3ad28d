// SPDX-License-Identifier: Apache-2.0
//
// Memory windows (IBA 10.6.7; man ibv_alloc_mw, ibv_bind_mw, ibv_wr_bind_mw): a key of its own for a part of a region, bound and invalidated
// by work requests.
//
//   type 2   kind 2B: the key works only through the queue pair that bound it. If a DCI bound it, it works through any DCT of the PD,
//            because requests arrive at DCTs.
//   type 1   the key works through any queue pair of the PD. A bound window may be bound again.
//
// A window has an entry in the table of memory regions, filled while it is bound. The check of an rkey needs only bound_qp of it (MayPass).
// The user selects the low 8 bits of the rkey at each bind. The other bits are the number of the entry.
//
// Threads       As verbs: calls on one window must not overlap.
#ifndef SLUICE_TRANSPORT_SOFTDC_MODEL_MEMORY_WINDOW_H_
#define SLUICE_TRANSPORT_SOFTDC_MODEL_MEMORY_WINDOW_H_

#include <infiniband/verbs.h>

#include <cstdint>
#include <span>

#include "transport/softdc/shm/layout.h"

namespace sluice::softdc {

class Context;

// Null with errno set.
ibv_mw* AllocateWindow(ibv_pd* pd, ibv_mw_type type);
// Ends a binding that stands.
int DeallocateWindow(ibv_mw* mw);

// --- For the queue that executes the work requests ---

// What ibv_wr_bind_mw asks for. `qp_number`: 0 for a DCI. Of `new_rkey` only the low byte counts, and
// a length of 0 ends a binding, whether there is one or not: as mlx5 has it. SUCCESS; MW_BIND_ERR: the
// window is bound, the region lacks IBV_ACCESS_MW_BIND or LOCAL_WRITE, the range is not inside, or
// something belongs to another PD.
ibv_wc_status BindWindow(Context& context, uint32_t pd, uint32_t qp_number, uint32_t window_rkey,
                         uint32_t new_rkey, const ibv_mw_bind_info& info);
// Ends the binding of a window, if it has one: what a bind of a type 1 window does first. Copies through it
// may be under way.
void UnbindWindow(Context& context, uint32_t pd, uint32_t window_rkey);
// Local invalidate: MW_BIND_ERR unless the key is that of a bound window of the PD. Copies through it may
// be under way: it is complete when Context::SettleWindow says so.
ibv_wc_status InvalidateWindow(Context& context, uint32_t pd, uint32_t rkey);
// The invalidation that comes with a SEND, where it arrives, in the target's table: it is looked at before
// anything of the message is placed, and done when all of it is, before the receive completes (with
// IBV_WC_WITH_INV and the key). False: the key is not that of a window that is bound to this queue pair:
// a remote access error for the sender.
bool MayInvalidateArriving(std::span<const shm::MemoryRegionEntry> regions, uint32_t rkey,
                           uint32_t pd, uint32_t qp_number);
bool InvalidateArriving(std::span<shm::MemoryRegionEntry> regions, uint32_t rkey, uint32_t pd,
                        uint32_t qp_number);

// Whether a request that comes in through `qp_number` may use this entry.
inline bool MayPass(const shm::MemoryRegionEntry& region, uint32_t qp_number) {
  return region.bound_qp == 0 || region.bound_qp == qp_number;
}

// Whether a window is bound to the region at `index`: it cannot be deregistered then.
bool HasBoundWindow(Context& context, uint32_t index);

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_MEMORY_WINDOW_H_
