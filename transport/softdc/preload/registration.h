// SPDX-License-Identifier: Apache-2.0
//
// Registration as ibv_reg_mr compiles to it where the access flags are not known at compile time (man ibv_reg_mr).
//
// Threads       All functions may be called from any thread.
#ifndef SLUICE_TRANSPORT_SOFTDC_PRELOAD_REGISTRATION_H_
#define SLUICE_TRANSPORT_SOFTDC_PRELOAD_REGISTRATION_H_

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace sluice::softdc::preload {

// Null and errno. An address of the NIC's own (iova other than the memory's address) is EOPNOTSUPP.
ibv_mr* RegMrIova(ibv_pd* pd, void* address, size_t length_bytes, uint64_t iova, int access);
// The same; flags that a device may ignore (IBV_ACCESS_OPTIONAL_RANGE) are ignored.
ibv_mr* RegMrIova2(ibv_pd* pd, void* address, size_t length_bytes, uint64_t iova,
                   unsigned int access);

}  // namespace sluice::softdc::preload

#endif  // SLUICE_TRANSPORT_SOFTDC_PRELOAD_REGISTRATION_H_
