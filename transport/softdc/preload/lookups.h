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

// Returns 0 or an errno: ENODATA for an entry beyond the last one, EINVAL for an invalid port or index.
int QueryGidEx(ibv_context* context, uint32_t port_num, uint32_t gid_index, ibv_gid_entry* entry,
               uint32_t flags, size_t entry_bytes);
// Returns the number of entries, or a negative errno. Skips empty entries.
ssize_t QueryGidTable(ibv_context* context, ibv_gid_entry* entries, size_t max_entries,
                      uint32_t flags, size_t entry_bytes);
// Sets *type: 0 for InfiniBand or RoCE v1, 1 for RoCE v2. Returns 0, or -1 with errno.
int QueryGidType(ibv_context* context, uint8_t port_num, unsigned int index, int* type);

// Returns the index, or -1 with errno.
int GetPkeyIndex(ibv_context* context, uint8_t port_num, __be16 pkey);

// Return the length of the text, without a newline at its end, or -1 with errno. Attributes of softdc0 come from the device. All other
// files are read from the file system.
int ReadSysfsFile(const char* folder, const char* file, char* buffer, size_t buffer_bytes);
int ReadIbdevSysfsFile(char* buffer, size_t buffer_bytes, ibv_device* device, const char* format,
                       ...) __attribute__((format(printf, 4, 5)));

// Sets *mac to an address derived from the destination GID, and *vlan to 0xffff (no VLAN). Returns 0 or an errno.
int ResolveEthL2FromGid(ibv_context* context, ibv_ah_attr* attr, uint8_t* mac, uint16_t* vlan);

// Returns null with errno on failure: EOPNOTSUPP for devx, which softdc does not support.
ibv_context* DvOpenDevice(ibv_device* device, mlx5dv_context_attr* attr);

}  // namespace sluice::softdc::preload

#endif  // SLUICE_TRANSPORT_SOFTDC_PRELOAD_LOOKUPS_H_
