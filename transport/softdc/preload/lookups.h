// SPDX-License-Identifier: Apache-2.0
//
// Lookups that unmodified programs make and Sluice does not: GID entries with their type and interface, sysfs attributes, link-layer
// addresses. Signatures and results are those of rdma-core's functions of similar names (man ibv_query_gid_ex, ibv_query_gid_table; the
// others have no page).
//
// Threads       All functions may be called from any thread.
#ifndef SLUICE_TRANSPORT_SOFTDC_PRELOAD_LOOKUPS_H_
#define SLUICE_TRANSPORT_SOFTDC_PRELOAD_LOOKUPS_H_

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace sluice::softdc::preload {

// 0, or errno: ENODATA for an entry beyond the last one, EINVAL for a port or index that cannot be.
int QueryGidEx(ibv_context* context, uint32_t port_num, uint32_t gid_index, ibv_gid_entry* entry,
               uint32_t flags, size_t entry_bytes);
// The number of entries, or a negative errno. Empty entries are left out.
ssize_t QueryGidTable(ibv_context* context, ibv_gid_entry* entries, size_t max_entries,
                      uint32_t flags, size_t entry_bytes);
// *type: 0 is InfiniBand or RoCE v1, 1 is RoCE v2. 0, or -1 and errno.
int QueryGidType(ibv_context* context, uint8_t port_num, unsigned int index, int* type);

// The index, or -1 and errno.
int GetPkeyIndex(ibv_context* context, uint8_t port_num, __be16 pkey);

// The length of what was read, less a newline at its end; -1 and errno. Attributes of softdc0 come from the device,
// every other file is read as it is.
int ReadSysfsFile(const char* folder, const char* file, char* buffer, size_t buffer_bytes);
int ReadIbdevSysfsFile(char* buffer, size_t buffer_bytes, ibv_device* device, const char* format,
                       ...) __attribute__((format(printf, 4, 5)));

// The MAC that stands for a destination, and no VLAN (0xffff). 0 or errno.
int ResolveEthL2FromGid(ibv_context* context, ibv_ah_attr* attr, uint8_t* mac, uint16_t* vlan);

// Null and errno: EOPNOTSUPP for devx, which softdc has not.
ibv_context* DvOpenDevice(ibv_device* device, mlx5dv_context_attr* attr);

}  // namespace sluice::softdc::preload

#endif  // SLUICE_TRANSPORT_SOFTDC_PRELOAD_LOOKUPS_H_
