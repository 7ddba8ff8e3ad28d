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

// Returns "host:port". An IPv6 address is in brackets.
std::string HostPort(const std::string& host, uint16_t port);
std::string ToString(const sockaddr* address);
// Returns "mlx5_0:2", the form of --device. Omits the port if it is 0.
std::string PlaceOf(const std::string& device, uint8_t port);

// Returns whether `host` is a numeric address. Resolve() sends no query for it.
bool IsNumeric(const std::string& host);

// Returns whether the address belongs to an interface of this host, and true if that is unknown. Makes system calls.
bool IsOfThisHost(const sockaddr_storage& address);

// Returns all addresses of a name, IPv4 first (man getaddrinfo). Blocks on the name server. `passive`: for listening; an empty host or "*"
// then means all addresses.
absl::StatusOr<std::vector<sockaddr_storage>> Resolve(const std::string& host, uint16_t port,
                                                      bool passive);

}  // namespace sluice::cm

#endif  // SLUICE_TRANSPORT_CM_ADDRESS_H_
