// SPDX-License-Identifier: Apache-2.0
//
// The devices of softdc that users find: softdc0, and softdc1 if a dial requests it. Their identity, and the contexts that RDMA_CM ids
// share.
//
// Threads       All functions may be called from any thread.
#ifndef SLUICE_TRANSPORT_SOFTDC_DEVICE_H_
#define SLUICE_TRANSPORT_SOFTDC_DEVICE_H_

#include <infiniband/verbs.h>

#include <cstdint>

namespace sluice::softdc {

inline constexpr char kDeviceName[] = "softdc0";

ibv_device* Device();
// Returns softdc1, or null if the host has only one device (Dials::Port::second_device).
ibv_device* SecondDevice();
// Returns the GUID in network byte order. It is the same in all processes of this user in this SOFTDC_DOMAIN.
uint64_t NodeGuid();

// Return the context and the PD that all RDMA_CM ids of the process share, as in librdmacm. The first call opens them; they are never
// closed. Null if the first call failed; that call sets errno.
ibv_context* CmContext();
ibv_pd* CmPd();
ibv_context* SecondCmContext();
ibv_pd* SecondCmPd();

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_DEVICE_H_
