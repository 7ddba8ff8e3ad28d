// SPDX-License-Identifier: Apache-2.0
//
// softdc0, the one device of softdc that users find: its identity, and the context that
// RDMA_CM shares among its ids. Thread-safety: all functions may be called from any thread.
#ifndef SLUICE_TRANSPORT_SOFTDC_DEVICE_H_
#define SLUICE_TRANSPORT_SOFTDC_DEVICE_H_

#include <infiniband/verbs.h>

#include <cstdint>

namespace sluice::softdc {

inline constexpr char kDeviceName[] = "softdc0";

ibv_device* Device();
// The same in all processes of this user in this SOFTDC_DOMAIN. Network byte order.
uint64_t NodeGuid();

// Opened at the first call, shared by all RDMA_CM ids of the process, as librdmacm does; never
// closed. Null with errno.
ibv_context* CmContext();
ibv_pd* CmPd();

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_DEVICE_H_
