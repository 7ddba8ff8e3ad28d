// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/loop/gids.h"

#include <ifaddrs.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

namespace sluice::softdc {
namespace {

bool IsMappedIpv4(const Gid& gid) {
  static constexpr uint8_t kPrefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid.raw, kPrefix, sizeof(kPrefix)) == 0;
}

Gid MapIpv4(uint32_t address_be) {
  Gid gid{};
  gid.raw[10] = gid.raw[11] = 0xff;
  std::memcpy(gid.raw + 12, &address_be, 4);
  return gid;
}

// 127/8, 0.0.0.0 and :: live on entry 0.
bool IsEntryZero(const Gid& gid) {
  static constexpr Gid kAny{};
  if (SameGid(gid, kAny)) return true;
  if (!IsMappedIpv4(gid)) return false;
  uint32_t address_be;
  std::memcpy(&address_be, gid.raw + 12, 4);
  return gid.raw[12] == 127 || address_be == 0;
}

}  // namespace

bool SameGid(const Gid& a, const Gid& b) { return std::memcmp(a.raw, b.raw, sizeof(a.raw)) == 0; }

std::vector<Gid> LocalGids() {
  std::vector<Gid> gids = {MapIpv4(htonl(INADDR_LOOPBACK))};
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return gids;
  for (const ifaddrs* entry = list; entry != nullptr && gids.size() < kMaxGids;
       entry = entry->ifa_next) {
    Gid gid;
    if (entry->ifa_addr == nullptr || !GidOfAddress(entry->ifa_addr, &gid)) continue;
    if (IsEntryZero(gid)) continue;
    const bool known =
        std::any_of(gids.begin(), gids.end(), [&](const Gid& g) { return SameGid(g, gid); });
    if (!known) gids.push_back(gid);
  }
  freeifaddrs(list);
  return gids;
}

bool GidOfAddress(const sockaddr* address, Gid* gid) {
  if (address->sa_family == AF_INET) {
    *gid = MapIpv4(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr);
    return true;
  }
  if (address->sa_family == AF_INET6) {
    std::memcpy(gid->raw, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, 16);
    return true;
  }
  return false;
}

int IndexOfGid(const Gid& gid) {
  if (IsEntryZero(gid)) return 0;
  const std::vector<Gid> gids = LocalGids();
  for (size_t i = 0; i < gids.size(); ++i) {
    if (SameGid(gids[i], gid)) return static_cast<int>(i);
  }
  return -1;
}

uint32_t SecondDeviceAddress() { return htonl(0x7f010001); }

bool IsOfSecondDevice(const Gid& gid) {
  return IsMappedIpv4(gid) && gid.raw[12] == 127 && gid.raw[13] == 1;
}

std::vector<Gid> WithRoceV1(const std::vector<Gid>& gids, RoceV1 where) {
  if (where == RoceV1::kNone) return gids;
  std::vector<Gid> all;
  for (const Gid& gid : gids) all.insert(all.end(), 2, gid);
  all.resize(std::min(all.size(), kMaxGids));
  return all;
}

bool IsRoceV1(const std::vector<Gid>& gids, size_t index, RoceV1 where) {
  if (where == RoceV1::kNone || index >= gids.size()) return false;
  const auto self = gids.begin() + static_cast<ptrdiff_t>(index);
  const auto same = [&](const Gid& gid) { return SameGid(gid, *self); };
  return where == RoceV1::kBefore ? std::any_of(self + 1, gids.end(), same)
                                  : std::any_of(gids.begin(), self, same);
}

size_t IndexWithRoceV1(size_t index, RoceV1 where) {
  if (where == RoceV1::kNone) return index;
  return 2 * index + (where == RoceV1::kBefore ? 1 : 0);
}

bool IsLocalAddress(const sockaddr* address) {
  Gid gid;
  return GidOfAddress(address, &gid) && IndexOfGid(gid) >= 0;
}

}  // namespace sluice::softdc
