// SPDX-License-Identifier: Apache-2.0
//
// Host names and socket addresses.
#ifndef SLUICE_TRANSPORT_CM_ADDRESS_H_
#define SLUICE_TRANSPORT_CM_ADDRESS_H_

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace sluice::cm {

// "host:port", IPv6 addresses in brackets.
std::string HostPort(const std::string& host, uint16_t port);
std::string ToString(const sockaddr* address);
// "mlx5_0:2", as devices are asked for; without the port if that is 0.
std::string PlaceOf(const std::string& device, uint8_t port);

// An address, not a name: Resolve() asks nobody.
bool IsNumeric(const std::string& host);

// Whether the address belongs to an interface of this host. True if that is not known. Makes system calls.
bool IsOfThisHost(const sockaddr_storage& address);

// All addresses of a name, IPv4 first (man getaddrinfo). Blocks on a name server. `passive`: for listening; an empty host or "*" is every address then.
absl::StatusOr<std::vector<sockaddr_storage>> Resolve(const std::string& host, uint16_t port,
                                                      bool passive);

}  // namespace sluice::cm

#endif  // SLUICE_TRANSPORT_CM_ADDRESS_H_
