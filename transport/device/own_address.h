// SPDX-License-Identifier: Apache-2.0
//
// The network address of the queues of this process: the GID at Device::path(). Packets that answer a peer carry this source address, so
// a connection must use it too.
//
// Threads       Inside Commands, as Device::RefreshAddress().
#ifndef SLUICE_TRANSPORT_DEVICE_OWN_ADDRESS_H_
#define SLUICE_TRANSPORT_DEVICE_OWN_ADDRESS_H_

#include <sys/socket.h>

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "transport/device/device.h"

namespace sluice::device {

// For RDMA_CM to resolve a peer's address from, at any port. Nothing: the GID is no address of IP (InfiniBand), or a
// link-local one of an interface that is not known.
std::optional<sockaddr_storage> OwnAddress(const Device& device);

// OK, or FAILED_PRECONDITION: RDMA_CM has made the connection with `path` at another GID of the port than the queues have.
// Short enough for a refusal.
absl::Status CheckOwnAddress(const Device& device, const ibv_ah_attr& path);

}  // namespace sluice::device

#endif  // SLUICE_TRANSPORT_DEVICE_OWN_ADDRESS_H_
