// SPDX-License-Identifier: Apache-2.0
//
// The devices of softdc that users find: softdc0, and softdc1 if a dial requests it: their identity, and the contexts that RDMA_CM shares
// among its ids.
//
// Threads       All functions may be called from any thread.
#ifndef SLUICE_TRANSPORT_SOFTDC_DEVICE_H_
#define SLUICE_TRANSPORT_SOFTDC_DEVICE_H_

#include <infiniband/verbs.h>

#include <cstdint>

namespace sluice::softdc {

inline constexpr char kDeviceName[] = "softdc0";

ibv_device* Device();
// Null: the host has one device only (Dials::Port::second_device).
ibv_device* SecondDevice();
// The same in all processes of this user in this SOFTDC_DOMAIN. Network byte order.
uint64_t NodeGuid();

// Opened at the first call, shared by all RDMA_CM ids of the process, as librdmacm does; never
// closed. Null with errno.
ibv_context* CmContext();
ibv_pd* CmPd();
ibv_context* SecondCmContext();
ibv_pd* SecondCmPd();

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_DEVICE_H_
