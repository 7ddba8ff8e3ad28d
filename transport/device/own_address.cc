// SPDX-License-Identifier: Apache-2.0
#include "transport/device/own_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstring>

#include "transport/base/error.h"
#include "transport/device/gids.h"

namespace sluice::device {
namespace {

const in6_addr& V6Of(const ibv_gid& gid) { return reinterpret_cast<const in6_addr&>(gid.raw); }

// "10.0.0.5 (GID 3)".
std::string TextOf(const GidEntry& entry, int index) {
  if (entry.index < 0) return "GID " + std::to_string(index) + ", which is empty";
  char text[INET6_ADDRSTRLEN] = "?";
  if (IN6_IS_ADDR_V4MAPPED(&V6Of(entry.gid))) {
    inet_ntop(AF_INET, &entry.gid.raw[12], text, sizeof(text));
  } else {
    inet_ntop(AF_INET6, entry.gid.raw, text, sizeof(text));
  }
  return text + std::string(" (GID ") + std::to_string(index) +
         (entry.roce_v1 ? ", RoCE v1)" : ")");
}

GidEntry Read(const Device& device, int index) {
  return ReadGid(device.api(), device.context(), device.path().port, index);
}

}  // namespace

std::optional<sockaddr_storage> OwnAddress(const Device& device) {
  const GidEntry entry = Read(device, device.path().sgid_index);
  if (entry.index < 0 || entry.infiniband) return std::nullopt;
  sockaddr_storage address = {};
  if (IN6_IS_ADDR_V4MAPPED(&V6Of(entry.gid))) {
    auto* v4 = reinterpret_cast<sockaddr_in*>(&address);
    v4->sin_family = AF_INET;
    std::memcpy(&v4->sin_addr, &entry.gid.raw[12], sizeof(v4->sin_addr));
    return address;
  }
  const bool link_local = IN6_IS_ADDR_LINKLOCAL(&V6Of(entry.gid));
  if (link_local && entry.interface == 0) return std::nullopt;
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address);
  v6->sin6_family = AF_INET6;
  std::memcpy(&v6->sin6_addr, entry.gid.raw, sizeof(v6->sin6_addr));
  if (link_local) v6->sin6_scope_id = entry.interface;
  return address;
}

absl::Status CheckOwnAddress(const Device& device, const ibv_ah_attr& path) {
  const int own = device.path().sgid_index;
  const bool roce = path.is_global != 0 && path.dlid == 0;
  if (!roce || path.grh.sgid_index == own) return absl::OkStatus();
  const GidEntry other = Read(device, path.grh.sgid_index);
  // In softdc, each address of this host leads to each queue, and programs may connect to the name of their own host.
  if (device.provider() == "softdc" && other.index >= 0 && !other.roce_v1) {
    return absl::OkStatus();
  }
  return base::Error(
      absl::StatusCode::kFailedPrecondition,
      "connection at " + TextOf(other, path.grh.sgid_index) + " of " + device.name() +
          ", queues at " + TextOf(Read(device, own), own),
      {.layer = "device",
       .operation = "connect",
       .cause = "answers would leave with the address of the queues, which the peer does not know",
       .remedy = "use the address of the queues, or start with --device and the other address"});
}

}  // namespace sluice::device
