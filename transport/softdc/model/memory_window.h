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
// Ends the binding, if any. Blocks until no copy uses the window.
int DeallocateWindow(ibv_mw* mw);

// --- For the queue that executes the work requests ---

// Executes ibv_wr_bind_mw. `qp_number`: 0 for a DCI. Only the low byte of `new_rkey` counts. As on mlx5, length 0 ends the binding, if any.
// Returns IBV_WC_SUCCESS or IBV_WC_MW_BIND_ERR. Reasons for the error:
// - the window is bound
// - the region lacks IBV_ACCESS_MW_BIND, or LOCAL_WRITE for a writable window
// - the range is not inside the region
// - an object belongs to another PD
// - `info` has unknown rights
ibv_wc_status BindWindow(Context& context, uint32_t pd, uint32_t qp_number, uint32_t window_rkey,
                         uint32_t new_rkey, const ibv_mw_bind_info& info);
// Ends the binding of a window, if any, before a type 1 window is bound again. Copies through the window may still be in progress.
void UnbindWindow(Context& context, uint32_t pd, uint32_t window_rkey);
// Executes a local invalidate. Returns IBV_WC_MW_BIND_ERR unless `rkey` is the key of a bound window of the PD. Copies through the window
// may still be in progress: the request is complete when Context::SettleWindow returns true.
ibv_wc_status InvalidateWindow(Context& context, uint32_t pd, uint32_t rkey);
// Check and execute the invalidation of a SEND at its target, in the target's table. The check comes before any byte of the message is
// placed. The invalidation comes after all bytes are placed, before the receive completes (with IBV_WC_WITH_INV and the key). Both return
// false if `rkey` is not the key of a bound window that this queue pair may use: a remote access error for the sender.
bool MayInvalidateArriving(std::span<const shm::MemoryRegionEntry> regions, uint32_t rkey,
                           uint32_t pd, uint32_t qp_number);
bool InvalidateArriving(std::span<shm::MemoryRegionEntry> regions, uint32_t rkey, uint32_t pd,
                        uint32_t qp_number);

// Returns whether a request through `qp_number` may use this entry.
inline bool MayPass(const shm::MemoryRegionEntry& region, uint32_t qp_number) {
  return region.bound_qp == 0 || region.bound_qp == qp_number;
}

// Returns whether a window is bound to the region at `index`. Such a region cannot be deregistered.
bool HasBoundWindow(Context& context, uint32_t index);

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_MEMORY_WINDOW_H_
