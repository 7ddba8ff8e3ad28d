// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/cm/addresses.h"

#include <netinet/in.h>

#include <cstring>

#include "transport/softdc/loop/gids.h"

namespace sluice::softdc::cm {
namespace {

const sockaddr_in* V4(const sockaddr* address) {
  return reinterpret_cast<const sockaddr_in*>(address);
}
const sockaddr_in6* V6(const sockaddr* address) {
  return reinterpret_cast<const sockaddr_in6*>(address);
}

// An IPv4-mapped IPv6 address is an IPv4 address.
bool IsIpv4(const sockaddr* address) {
  return address->sa_family == AF_INET || IN6_IS_ADDR_V4MAPPED(&V6(address)->sin6_addr);
}

}  // namespace

socklen_t AddressLength(const sockaddr* address) {
  if (address == nullptr) return 0;
  if (address->sa_family == AF_INET) return sizeof(sockaddr_in);
  if (address->sa_family == AF_INET6) return sizeof(sockaddr_in6);
  return 0;
}

void CopyAddress(const sockaddr* from, sockaddr_storage* to) {
  sockaddr_storage copy{};  // `from` may be a part of `to`
  std::memcpy(&copy, from, AddressLength(from));
  *to = copy;
}

bool IsWildcard(const sockaddr* address) {
  if (address->sa_family == AF_INET) return V4(address)->sin_addr.s_addr == htonl(INADDR_ANY);
  return IN6_IS_ADDR_UNSPECIFIED(&V6(address)->sin6_addr);
}

uint16_t PortOf(const sockaddr* address) {
  if (address->sa_family == AF_INET) return V4(address)->sin_port;
  if (address->sa_family == AF_INET6) return V6(address)->sin6_port;
  return 0;
}

void SetPort(uint16_t port, sockaddr_storage* address) {
  if (address->ss_family == AF_INET) {
    reinterpret_cast<sockaddr_in*>(address)->sin_port = port;
  } else {
    reinterpret_cast<sockaddr_in6*>(address)->sin6_port = port;
  }
}

sockaddr_storage WildcardOf(sa_family_t family) {
  sockaddr_storage address{};
  address.ss_family = family;
  return address;
}

sockaddr_storage LoopbackOf(sa_family_t family) {
  sockaddr_storage address = WildcardOf(family);
  if (family == AF_INET) {
    reinterpret_cast<sockaddr_in*>(&address)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  } else {
    reinterpret_cast<sockaddr_in6*>(&address)->sin6_addr = in6addr_loopback;
  }
  return address;
}

WireAddress ToWire(const sockaddr* address) {
  WireAddress wire{};
  wire.family = address->sa_family;
  wire.port = PortOf(address);
  if (address->sa_family == AF_INET) {
    std::memcpy(wire.bytes, &V4(address)->sin_addr, 4);
  } else {
    std::memcpy(wire.bytes, &V6(address)->sin6_addr, 16);
    wire.scope_id = V6(address)->sin6_scope_id;
  }
  return wire;
}

void FromWire(const WireAddress& from, sockaddr_storage* to) {
  *to = WildcardOf(from.family);
  SetPort(from.port, to);
  if (from.family == AF_INET) {
    std::memcpy(&reinterpret_cast<sockaddr_in*>(to)->sin_addr, from.bytes, 4);
  } else {
    std::memcpy(&reinterpret_cast<sockaddr_in6*>(to)->sin6_addr, from.bytes, 16);
    reinterpret_cast<sockaddr_in6*>(to)->sin6_scope_id = from.scope_id;
  }
}

bool Accepts(const sockaddr* bound, bool v6_only, const sockaddr* destination) {
  if (IsWildcard(bound)) {
    return bound->sa_family == AF_INET6 ? !v6_only || !IsIpv4(destination) : IsIpv4(destination);
  }
  Gid a, b;
  return GidOfAddress(bound, &a) && GidOfAddress(destination, &b) && SameGid(a, b);
}

}  // namespace sluice::softdc::cm
