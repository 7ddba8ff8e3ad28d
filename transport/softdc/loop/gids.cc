// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/loop/gids.h"

#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

#include "transport/softdc/loop/out_of_descriptors.h"
#include "transport/softdc/loop/unique_fd.h"

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

// Returns whether the address belongs to entry 0: 127/8, 0.0.0.0 and ::.
bool IsEntryZero(const Gid& gid) {
  static constexpr Gid kAny{};
  if (SameGid(gid, kAny)) return true;
  if (!IsMappedIpv4(gid)) return false;
  uint32_t address_be;
  std::memcpy(&address_be, gid.raw + 12, 4);
  return gid.raw[12] == 127 || address_be == 0;
}

// Reads the list of addresses into `kept`. On failure returns false, sets errno, and leaves `kept` unchanged.
bool ReadAddresses(std::vector<Gid>& kept) {
  std::vector<Gid> gids = {MapIpv4(htonl(INADDR_LOOPBACK))};
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return false;
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
  kept = std::move(gids);
  return true;
}

// A socket to which the kernel announces added and removed addresses. The number does not prove that a
// descriptor is ours: a program may close all descriptors that it finds (closefrom(3)) and get the number for
// its own file.
class Announcements {
 public:
  // Opens the socket. Returns false if the kernel announces nothing.
  bool Open() {
    UniqueFd fd(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE));
    sockaddr_nl groups{};
    groups.nl_family = AF_NETLINK;
    groups.nl_groups = RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
    if (fd && bind(fd.get(), reinterpret_cast<const sockaddr*>(&groups), sizeof(groups)) == 0 &&
        fstat(fd.get(), &self_) == 0) {
      fd_ = std::move(fd);
    }
    return IsOpen();
  }
  bool IsOpen() const { return static_cast<bool>(fd_); }

  // Closes the descriptor if it is ours.
  void Close() {
    if (!IsOurs()) fd_.Release();
    fd_.Reset();
  }

  // Returns whether addresses may have changed since the last call. Dropped announcements (ENOBUFS) count as
  // a change. Neither reads a descriptor that is not ours nor fetches its error, which would clear the error.
  bool HaveCome() {
    pollfd wait{.fd = fd_.get(), .events = POLLIN, .revents = 0};
    if (poll(&wait, 1, 0) == 0) return false;
    if (!IsOurs()) {
      fd_.Release();
      return true;
    }
    char ignored[1];  // recv removes the complete datagram
    ssize_t bytes;
    do {
      bytes = recv(fd_.get(), ignored, sizeof(ignored), MSG_DONTWAIT);
    } while (bytes > 0 || (bytes < 0 && (errno == ENOBUFS || errno == EINTR)));
    return true;
  }

 private:
  bool IsOurs() const {
    struct stat now;
    return fd_ && fstat(fd_.get(), &now) == 0 && now.st_dev == self_.st_dev &&
           now.st_ino == self_.st_ino;
  }

  UniqueFd fd_;
  struct stat self_ {};
};

// The addresses of this host as the kernel lists them now.
class AddressList {
 public:
  static AddressList& Get() {
    // Never destroyed, so that it outlives static destructors.
    static AddressList* const list = [] {
      auto* made = new AddressList();
      pthread_atfork([] { Get().mutex_.lock(); }, [] { Get().mutex_.unlock(); },
                     [] { Get().StartAnew(); });
      return made;
    }();
    return *list;
  }

  template <typename Visit>
  auto With(Visit visit) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (announcements_.IsOpen() && announcements_.HaveCome()) current_ = false;
    if (!announcements_.IsOpen()) current_ = false;
    if (!current_) Read();
    return visit(static_cast<const std::vector<Gid>&>(gids_));
  }
  uint64_t reads() {
    std::lock_guard<std::mutex> lock(mutex_);
    return reads_;
  }

 private:
  void Read() {
    // Opens the announcements first: the next call then learns of a later change.
    const bool announced = announcements_.IsOpen() || announcements_.Open();
    bool read = ReadAddresses(gids_);
    current_ = read && announced;
    // If only one descriptor is left, uses it for the list and not for the announcements.
    if (!read && announced && IsOutOfDescriptors(errno)) {
      announcements_.Close();
      read = ReadAddresses(gids_);
    }
    // Uses the last list until a read succeeds.
    if (gids_.empty()) gids_ = {MapIpv4(htonl(INADDR_LOOPBACK))};
    if (read) ++reads_;
  }
  // In a forked child: closes the socket that is shared with the parent, because a read would take the
  // parent's announcements.
  void StartAnew() {
    announcements_.Close();
    current_ = false;
    mutex_.unlock();
  }

  std::mutex mutex_;
  Announcements announcements_;  // mutex_, like all members below
  bool current_ = false;
  std::vector<Gid> gids_;
  uint64_t reads_ = 0;
};

}  // namespace

bool SameGid(const Gid& a, const Gid& b) { return std::memcmp(a.raw, b.raw, sizeof(a.raw)) == 0; }

std::vector<Gid> LocalGids() {
  return AddressList::Get().With([](const std::vector<Gid>& gids) { return gids; });
}

uint64_t AddressListReads() { return AddressList::Get().reads(); }

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
  return AddressList::Get().With([&](const std::vector<Gid>& gids) {
    for (size_t i = 0; i < gids.size(); ++i) {
      if (SameGid(gids[i], gid)) return static_cast<int>(i);
    }
    return -1;
  });
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
