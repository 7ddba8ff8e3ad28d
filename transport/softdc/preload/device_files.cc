// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/preload/device_files.h"

#include <endian.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <vector>

#include "transport/softdc/device.h"
#include "transport/softdc/loop/gids.h"
#include "transport/softdc/model/soft_device.h"

namespace sluice::softdc::preload {
namespace {

constexpr std::string_view kCharacterDevices = "/dev/infiniband/";
constexpr std::string_view kClass = "/sys/class/infiniband/";
constexpr std::string_view kPort = "ports/1/";

const SoftDevice& TheDevice() { return *SoftDevice::Find(Device()); }

bool IsInfiniband() { return TheDevice().dials().port.link_layer == LinkLayer::kInfiniband; }

std::string FormatWords(const uint16_t* words, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    char word[8];
    std::snprintf(word, sizeof(word), i == 0 ? "%04x" : ":%04x", be16toh(words[i]));
    text += word;
  }
  return text;
}

std::string Guid() {
  const __be64 guid = TheDevice().node_guid();
  uint16_t words[4];
  std::memcpy(words, &guid, sizeof(words));
  return FormatWords(words, 4);
}

std::string Lid() {
  char text[8];
  std::snprintf(text, sizeof(text), "0x%x", IsInfiniband() ? TheDevice().dials().port.lid : 0);
  return text;
}

// Attributes that have one value.
bool PlainAttribute(std::string_view path, std::string* value) {
  const struct {
    std::string_view path;
    std::string text;
  } attributes[] = {
      {"board_id", "SLC0000000001"},
      {"hca_type", "MT4129"},
      {"hw_rev", "0"},
      {"node_type", "1: CA"},
      {"node_guid", Guid()},
      {"sys_image_guid", Guid()},
      {"device/vendor", "0x15b3"},
      {"device/device", "0x1021"},
      {"device/numa_node", "-1"},  // on no bus, so near no node
      {"ports/1/link_layer", IsInfiniband() ? "InfiniBand" : "Ethernet"},
      {"ports/1/lid", Lid()},
      {"ports/1/pkeys/0", "0xffff"},
      {"ports/1/state", "4: ACTIVE"},
      {"ports/1/phys_state", "5: LinkUp"},
      {"ports/1/rate", "200 Gb/sec (4X HDR)"},
  };
  for (const auto& attribute : attributes) {
    if (attribute.path != path) continue;
    *value = attribute.text;
    return true;
  }
  return false;
}

// An attribute of an entry of the GID table. `folder`: the folder that holds a file for each entry, with '/' at its end.
bool GidAttribute(std::string_view folder, const ibv_gid& gid, std::string* value) {
  if (folder == "gids/") {
    uint16_t words[8];
    std::memcpy(words, gid.raw, sizeof(words));
    *value = FormatWords(words, 8);
    return true;
  }
  if (folder == "gid_attrs/types/") {
    *value = IsInfiniband() ? "IB/RoCE v1" : "RoCE v2";
    return true;
  }
  char name[IF_NAMESIZE];
  if (folder != "gid_attrs/ndevs/" || IsInfiniband() ||
      if_indextoname(InterfaceIndexOf(gid), name) == nullptr) {
    return false;
  }
  *value = name;
  return true;
}

bool FindGidAttribute(std::string_view path, std::string* value) {
  if (path.substr(0, kPort.size()) != kPort) return false;
  path.remove_prefix(kPort.size());
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return false;
  const std::string_view number = path.substr(slash + 1);
  size_t index = 0;
  const auto [end, error] = std::from_chars(number.begin(), number.end(), index);
  if (error != std::errc() || end != number.end()) return false;
  const std::vector<ibv_gid> gids = TheDevice().fabric().Gids(TheDevice());
  return index < gids.size() && GidAttribute(path.substr(0, slash + 1), gids[index], value);
}

bool IsFolder(std::string_view path) {
  for (const std::string_view folder :
       {"", "device", "ports", "ports/1", "ports/1/gids", "ports/1/pkeys", "ports/1/gid_attrs",
        "ports/1/gid_attrs/ndevs", "ports/1/gid_attrs/types"}) {
    if (path == folder) return true;
  }
  return false;
}

// Sets *rest to the path below /sys/class/infiniband/softdc0. Returns false if `path` is not in this folder.
bool InDeviceFolder(std::string_view path, std::string_view* rest) {
  const std::string_view name = TheDevice().base.name;
  if (path.substr(0, kClass.size()) != kClass) return false;
  path.remove_prefix(kClass.size());
  if (path.substr(0, name.size()) != name) return false;
  path.remove_prefix(name.size());
  if (!path.empty() && path.front() != '/') return false;
  while (!path.empty() && path.front() == '/') path.remove_prefix(1);
  while (!path.empty() && path.back() == '/') path.remove_suffix(1);
  *rest = path;
  return true;
}

}  // namespace

uint32_t InterfaceIndexOf(const ibv_gid& gid) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return 0;
  uint32_t index = 0;
  for (const ifaddrs* entry = list; entry != nullptr && index == 0; entry = entry->ifa_next) {
    ibv_gid candidate;
    if (entry->ifa_addr == nullptr || !GidOfAddress(entry->ifa_addr, &candidate)) continue;
    if (SameGid(candidate, gid)) index = if_nametoindex(entry->ifa_name);
  }
  freeifaddrs(list);
  return index;
}

bool DeviceAttribute(const std::string& path, std::string* value) {
  return PlainAttribute(path, value) || FindGidAttribute(path, value);
}

int KindOfDeviceFile(const char* path) {
  const std::string_view given = path;
  if (given.substr(0, kCharacterDevices.size()) == kCharacterDevices) {
    const std::string_view name = given.substr(kCharacterDevices.size());
    const bool known = name == "rdma_cm" || name == TheDevice().base.dev_name;
    return static_cast<int>(known ? DeviceFileKind::kCharacterDevice : DeviceFileKind::kNone);
  }
  std::string_view rest;
  std::string value;
  if (!InDeviceFolder(given, &rest)) return static_cast<int>(DeviceFileKind::kNone);
  if (IsFolder(rest)) return static_cast<int>(DeviceFileKind::kFolder);
  return static_cast<int>(DeviceAttribute(std::string(rest), &value) ? DeviceFileKind::kText
                                                                     : DeviceFileKind::kNone);
}

int OpenDeviceFile(const char* path, int flags) {
  std::string_view rest;
  std::string value;
  if (!InDeviceFolder(path, &rest) || !DeviceAttribute(std::string(rest), &value)) {
    errno = ENOENT;
    return -1;
  }
  if ((flags & O_ACCMODE) != O_RDONLY) {
    errno = EACCES;
    return -1;
  }
  value += '\n';
  const unsigned close_on_exec = (flags & O_CLOEXEC) != 0 ? MFD_CLOEXEC : 0;
  const int fd = memfd_create("softdc-attribute", MFD_ALLOW_SEALING | close_on_exec);
  if (fd < 0) return -1;
  const auto length = static_cast<ssize_t>(value.size());
  if (write(fd, value.data(), value.size()) != length || lseek(fd, 0, SEEK_SET) != 0 ||
      fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0) {
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
  }
  return fd;
}

}  // namespace sluice::softdc::preload
