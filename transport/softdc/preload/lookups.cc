// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/preload/lookups.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string>

#include "transport/softdc/preload/device_files.h"
#include "transport/softdc/verbs.h"

namespace sluice::softdc::preload {
namespace {

constexpr uint16_t kNoVlan = 0xffff;
constexpr int kSysfsTypeIbOrRoceV1 = 0;
constexpr int kSysfsTypeRoceV2 = 1;

const verbs::VerbsApi& Api() { return Verbs(); }

bool IsInfiniband(ibv_context* context, uint8_t port_num) {
  ibv_port_attr port{};
  return Api().query_port(context, port_num, &port) == 0 &&
         port.link_layer == IBV_LINK_LAYER_INFINIBAND;
}

int FillEntry(ibv_context* context, uint32_t port_num, uint32_t gid_index, ibv_gid_entry* entry) {
  if (const int error = Api().query_gid_ex(context, port_num, gid_index, entry); error != 0) {
    return error;
  }
  if (entry->gid_type != IBV_GID_TYPE_IB) entry->ndev_ifindex = InterfaceIndexOf(entry->gid);
  return 0;
}

std::string DeviceFolder() {
  int count = 0;
  ibv_device** list = Api().get_device_list(&count);
  if (list == nullptr) return "";
  const std::string folder = count == 0 ? "" : list[0]->ibdev_path;
  Api().free_device_list(list);
  return folder;
}

int CopyOut(const std::string& value, char* buffer, size_t buffer_bytes) {
  if (buffer_bytes == 0) {
    errno = EINVAL;
    return -1;
  }
  const size_t length = std::min(value.size(), buffer_bytes - 1);
  std::memcpy(buffer, value.data(), length);
  buffer[length] = '\0';
  return static_cast<int>(length);
}

int ReadFile(const std::string& path, char* buffer, size_t buffer_bytes) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  const ssize_t length = read(fd, buffer, buffer_bytes);
  const int read_errno = errno;
  close(fd);
  if (length <= 0) {
    errno = length == 0 ? ENODATA : read_errno;
    return -1;
  }
  ssize_t kept = length;
  if (buffer[kept - 1] == '\n') --kept;
  if (static_cast<size_t>(kept) < buffer_bytes) buffer[kept] = '\0';
  return static_cast<int>(kept);
}

}  // namespace

int QueryGidEx(ibv_context* context, uint32_t port_num, uint32_t gid_index, ibv_gid_entry* entry,
               uint32_t flags, size_t entry_bytes) {
  if (flags != 0 || entry_bytes < sizeof(*entry)) return EOPNOTSUPP;
  if (context == nullptr || entry == nullptr) return EINVAL;
  return FillEntry(context, port_num, gid_index, entry);
}

ssize_t QueryGidTable(ibv_context* context, ibv_gid_entry* entries, size_t max_entries,
                      uint32_t flags, size_t entry_bytes) {
  if (flags != 0 || entry_bytes < sizeof(*entries)) return -EOPNOTSUPP;
  if (context == nullptr || entries == nullptr) return -EINVAL;
  ibv_device_attr device{};
  if (Api().query_device(context, &device) != 0) return -EINVAL;
  size_t found = 0;
  for (uint8_t port = 1; port <= device.phys_port_cnt; ++port) {
    ibv_port_attr attr{};
    if (Api().query_port(context, port, &attr) != 0) return -EINVAL;
    for (int index = 0; index < attr.gid_tbl_len; ++index) {
      ibv_gid_entry entry;
      if (FillEntry(context, port, static_cast<uint32_t>(index), &entry) != 0) continue;
      if (found == max_entries) return -EINVAL;
      // The caller's entries may be longer than ours.
      std::memcpy(reinterpret_cast<char*>(entries) + found++ * entry_bytes, &entry, sizeof(entry));
    }
  }
  return static_cast<ssize_t>(found);
}

int QueryGidType(ibv_context* context, uint8_t port_num, unsigned int index, int* type) {
  ibv_gid gid;
  if (Api().query_gid(context, port_num, static_cast<int>(index), &gid) != 0) return -1;
  ibv_gid_entry entry{};
  const bool v2 = Api().query_gid_ex(context, port_num, index, &entry) == 0
                      ? entry.gid_type == IBV_GID_TYPE_ROCE_V2
                      : !IsInfiniband(context, port_num);
  *type = v2 ? kSysfsTypeRoceV2 : kSysfsTypeIbOrRoceV1;
  return 0;
}

int GetPkeyIndex(ibv_context* context, uint8_t port_num, __be16 pkey) {
  ibv_port_attr attr{};
  if (const int error = Api().query_port(context, port_num, &attr); error != 0) {
    errno = error;
    return -1;
  }
  for (int index = 0; index < attr.pkey_tbl_len; ++index) {
    __be16 candidate = 0;
    if (Api().query_pkey(context, port_num, index, &candidate) == 0 && candidate == pkey) {
      return index;
    }
  }
  errno = EINVAL;
  return -1;
}

int ReadSysfsFile(const char* folder, const char* file, char* buffer, size_t buffer_bytes) {
  std::string value;
  if (folder == DeviceFolder()) {
    if (DeviceAttribute(file, &value)) return CopyOut(value, buffer, buffer_bytes);
    errno = ENOENT;
    return -1;
  }
  return ReadFile(std::string(folder) + "/" + file, buffer, buffer_bytes);
}

int ReadIbdevSysfsFile(char* buffer, size_t buffer_bytes, ibv_device* device, const char* format,
                       ...) {
  char file[256];
  va_list arguments;
  va_start(arguments, format);
  const int length = std::vsnprintf(file, sizeof(file), format, arguments);
  va_end(arguments);
  if (length < 0 || static_cast<size_t>(length) >= sizeof(file)) {
    errno = EINVAL;
    return -1;
  }
  return ReadSysfsFile(device->ibdev_path, file, buffer, buffer_bytes);
}

int ResolveEthL2FromGid(ibv_context* context, ibv_ah_attr* attr, uint8_t* mac, uint16_t* vlan) {
  if (IsInfiniband(context, attr->port_num)) return EOPNOTSUPP;
  // Locally administered, and different for different destinations. Nothing on this fabric reads it.
  mac[0] = 0x02;
  mac[1] = 0;
  std::memcpy(mac + 2, attr->grh.dgid.raw + 12, 4);
  if (vlan != nullptr) *vlan = kNoVlan;
  return 0;
}

ibv_context* DvOpenDevice(ibv_device* device, mlx5dv_context_attr* attr) {
  if (attr != nullptr && (attr->flags != 0 || attr->comp_mask != 0)) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  return Api().open_device(device);
}

}  // namespace sluice::softdc::preload
