// SPDX-License-Identifier: Apache-2.0
//
// softdc0, the one device of softdc: identity and limits, and the context that RDMA_CM shares among
// its ids. Thread-safety: all functions may be called from any thread.
#ifndef SLUICE_TRANSPORT_SOFTDC_DEVICE_H_
#define SLUICE_TRANSPORT_SOFTDC_DEVICE_H_

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <cstdint>

namespace sluice::softdc {

inline constexpr char kDeviceName[] = "softdc0";
inline constexpr uint32_t kVendorId = 0x02c9;
inline constexpr uint32_t kVendorPartId = 0x1021;

ibv_device* Device();
// The same in all processes of this user in this SOFTDC_DOMAIN. Network byte order.
uint64_t NodeGuid();

int QueryDevice(ibv_context* context, ibv_device_attr* attr);
int QueryPort(ibv_context* context, uint8_t port_num, ibv_port_attr* attr);
int QueryDv(ibv_context* context, mlx5dv_context* attr);

// Opened at the first call, shared by all RDMA_CM ids of the process, as librdmacm does; never
// closed. Null with errno.
ibv_context* CmContext();
ibv_pd* CmPd();

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_DEVICE_H_
