// SPDX-License-Identifier: Apache-2.0
//
// Attributes of a device, with the signatures and results of the man pages (ibv_query_device, ibv_query_device_ex, ibv_query_port,
// ibv_query_rt_values_ex, mlx5dv_query_device, mlx5dv_get_clock_info). Limits come from the dials of the context's device.
//
// Threads       All functions may be called from any thread.
#ifndef SLUICE_TRANSPORT_SOFTDC_DEVICE_ATTRIBUTES_H_
#define SLUICE_TRANSPORT_SOFTDC_DEVICE_ATTRIBUTES_H_

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace sluice::softdc {

inline constexpr uint32_t kVendorId = 0x02c9;
inline constexpr uint32_t kVendorPartId = 0x1021;

int QueryDevice(ibv_context* context, ibv_device_attr* attr);
// `attr_bytes`: size of the caller's structure. The function does not write beyond it.
int QueryDeviceEx(ibv_context* context, const ibv_query_device_ex_input* input,
                  ibv_device_attr_ex* attr, size_t attr_bytes);
int QueryPort(ibv_context* context, uint8_t port_num, ibv_port_attr* attr);
int QueryPortSized(ibv_context* context, uint8_t port_num, ibv_port_attr* attr, size_t attr_bytes);
int QueryRtValues(ibv_context* context, ibv_values_ex* values);
int QueryDv(ibv_context* context, mlx5dv_context* attr);
// Writes zeros: softdc has no switch representors, and only they have these attributes. Returns 0, or EINVAL if the port does not exist.
int DvQueryPort(ibv_context* context, uint32_t port_num, mlx5dv_port* info, size_t info_bytes);
int DvGetClockInfo(ibv_context* context, mlx5dv_clock_info* info);

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_DEVICE_ATTRIBUTES_H_
