// SPDX-License-Identifier: Apache-2.0
//
// Helper functions for IPv4 and IPv6 addresses. Ports are in network byte order throughout.
#ifndef SLUICE_TRANSPORT_SOFTDC_CM_ADDRESSES_H_
#define SLUICE_TRANSPORT_SOFTDC_CM_ADDRESSES_H_

#include <sys/socket.h>

#include <cstdint>

#include "transport/softdc/cm/wire_message.h"

namespace sluice::softdc::cm {

// Returns 0 if the address is not IPv4 or IPv6.
socklen_t AddressLength(const sockaddr* address);

// `from` must be IPv4 or IPv6.
void CopyAddress(const sockaddr* from, sockaddr_storage* to);

bool IsWildcard(const sockaddr* address);
uint16_t PortOf(const sockaddr* address);
void SetPort(uint16_t port, sockaddr_storage* address);

// Return the wildcard or the loopback address of a family, with port 0.
sockaddr_storage WildcardOf(sa_family_t family);
sockaddr_storage LoopbackOf(sa_family_t family);

WireAddress ToWire(const sockaddr* address);
void FromWire(const WireAddress& from, sockaddr_storage* to);

// Returns whether a listener bound to `bound` accepts requests to `destination`. Does not compare ports.
bool Accepts(const sockaddr* bound, bool v6_only, const sockaddr* destination);

}  // namespace sluice::softdc::cm

#endif  // SLUICE_TRANSPORT_SOFTDC_CM_ADDRESSES_H_
