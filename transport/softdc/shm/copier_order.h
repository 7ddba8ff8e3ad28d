// SPDX-License-Identifier: Apache-2.0
//
// A full barrier between two processes in which one side costs nothing. It orders the stores of a copier
// before OrderCopier, and its loads after it, against the stores of an owner before MakeCopiersSee, and its
// loads after it. At least one of the two sees the store of the other. The owner's side runs a barrier on
// every core that runs a registered process (membarrier(2), global expedited). If the kernel has no such
// barrier, the copier's side is a fence.
#ifndef SLUICE_TRANSPORT_SOFTDC_SHM_COPIER_ORDER_H_
#define SLUICE_TRANSPORT_SOFTDC_SHM_COPIER_ORDER_H_

#include <atomic>

#include "transport/softdc/shm/area.h"

namespace sluice::softdc::shm {

namespace internal {
// Registers this process for the barrier and returns whether the kernel accepted it. Called once.
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

// Takes some microseconds.
void MakeCopiersSee();

}  // namespace sluice::softdc::shm

#endif  // SLUICE_TRANSPORT_SOFTDC_SHM_COPIER_ORDER_H_
