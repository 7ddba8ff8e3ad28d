// SPDX-License-Identifier: Apache-2.0
//
// DeviceSpec: the requested device and port.
//
// Ownership     A value.
#ifndef SLUICE_TRANSPORT_DEVICE_DEVICE_SPEC_H_
#define SLUICE_TRANSPORT_DEVICE_DEVICE_SPEC_H_

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::device {

struct DeviceSpec {
  std::string text;  // as given, without "/rc"
  bool automatic = false;
  std::string name;            // empty: any device
  uint8_t port = 0;            // 0: the first active port
  std::optional<ibv_gid> gid;  // GID that the port must have
  bool rc = false;             // use RC queue pairs, even if the device has DC

  bool Names(std::string_view device) const { return name.empty() || name == device; }
};

// Parses "auto", "mlx5_0", "mlx5_0:2", or an address of this host, "10.0.0.5" or "fe80::1". A text that is not an address and does not
// end in a port number is a name. Each form may end in "/rc": "mlx5_0/rc".
DeviceSpec ParseSpec(std::string_view text);

}  // namespace sluice::device

#endif  // SLUICE_TRANSPORT_DEVICE_DEVICE_SPEC_H_
