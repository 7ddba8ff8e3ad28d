// SPDX-License-Identifier: Apache-2.0
//
// Address: the host and the port of an address text. The transport resolves host names later.
//
// The targets of gRPC that mean host:port are accepted: "dns:///name:7471", "dns:name:7471", "ipv4:127.0.0.1:7471" and
// "ipv6:[::1]:7471". Not supported: a name server in a dns target, unix, unix-abstract, vsock, xds, http and https. The
// error says what to write instead.
#ifndef SLUICE_MIDDLEWARE_API_ADDRESS_H_
#define SLUICE_MIDDLEWARE_API_ADDRESS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace sluice {

struct Address {
  std::string host;  // name, IPv4 address, or IPv6 address without its brackets
  uint16_t port = 0;
};

// Parses "name:7471", "127.0.0.1:7471", "[::1]:7471", or one of the targets above. Accepts port 0 (for Listen: any free port) only
// if `allow_port_0`. INVALID_ARGUMENT: any other text.
absl::StatusOr<Address> ParseAddress(const std::string& target, bool allow_port_0);

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_ADDRESS_H_
