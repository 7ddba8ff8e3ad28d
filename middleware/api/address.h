// SPDX-License-Identifier: Apache-2.0
//
// Address: "host:port" taken apart. Names are looked up later, by the transport.
//
// The targets of gRPC that mean host:port are accepted: "dns:///name:7471", "dns:name:7471", "ipv4:127.0.0.1:7471" and
// "ipv6:[::1]:7471". Not supported: a name server in a dns target, unix, unix-abstract, vsock, xds, http and https; the error says
// so, and what to write instead.
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

// "name:7471", "127.0.0.1:7471", "[::1]:7471", or one of the targets above. Port 0 (for Listen: any free one) only if
// `allow_port_0`. INVALID_ARGUMENT: anything else.
absl::StatusOr<Address> ParseAddress(const std::string& target, bool allow_port_0);

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_ADDRESS_H_
