// SPDX-License-Identifier: Apache-2.0
//
// The functions that ibv_reg_mr compiles to if the access flags are not known at compile time (man ibv_reg_mr).
//
// Threads       All functions may be called from any thread.
#ifndef SLUICE_TRANSPORT_SOFTDC_PRELOAD_REGISTRATION_H_
#define SLUICE_TRANSPORT_SOFTDC_PRELOAD_REGISTRATION_H_

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace sluice::softdc::preload {

// Registers memory. Returns null with errno on failure: EOPNOTSUPP if `iova` is not the address of the memory.
ibv_mr* RegMrIova(ibv_pd* pd, void* address, size_t length_bytes, uint64_t iova, int access);
// As RegMrIova. Ignores flags that a device may ignore (IBV_ACCESS_OPTIONAL_RANGE).
ibv_mr* RegMrIova2(ibv_pd* pd, void* address, size_t length_bytes, uint64_t iova,
                   unsigned int access);

}  // namespace sluice::softdc::preload

#endif  // SLUICE_TRANSPORT_SOFTDC_PRELOAD_REGISTRATION_H_
