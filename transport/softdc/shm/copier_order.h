// SPDX-License-Identifier: Apache-2.0
//
// A full barrier between two processes of which one pays nothing: what a copier stores before
// OrderCopier and loads after it is ordered against what an owner stores before MakeCopiersSee and
// loads after it. At least one of the two sees the other. The owner's side runs a barrier on every
// core on which a process that uses this is running (membarrier(2), global expedited); where the
// kernel has none, the copier's side is a fence.
#ifndef SLUICE_TRANSPORT_SOFTDC_SHM_COPIER_ORDER_H_
#define SLUICE_TRANSPORT_SOFTDC_SHM_COPIER_ORDER_H_

#include <atomic>

#include "transport/softdc/shm/area.h"

namespace sluice::softdc::shm {

namespace internal {
// Whether this process's cores take part. Asked once.
bool RegisterCopier();
inline const bool kCopierRegistered = RegisterCopier();
}  // namespace internal

inline void OrderCopier() {
  if (internal::kCopierRegistered) {
    std::atomic_signal_fence(std::memory_order_seq_cst);
  } else {
    FullFence();
  }
}

// Some microseconds.
void MakeCopiersSee();

}  // namespace sluice::softdc::shm

#endif  // SLUICE_TRANSPORT_SOFTDC_SHM_COPIER_ORDER_H_
