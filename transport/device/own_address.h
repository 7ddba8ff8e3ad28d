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

// Returns the source address for RDMA_CM, with port 0. Returns nullopt if the GID is not an IP address (InfiniBand), or is a link-local
// address of an unknown interface.
std::optional<sockaddr_storage> OwnAddress(const Device& device);

// Returns OK, or FAILED_PRECONDITION if RDMA_CM made the connection with `path` at another GID of the port than the GID of the queues. The
// message is short enough for a refusal.
absl::Status CheckOwnAddress(const Device& device, const ibv_ah_attr& path);

}  // namespace sluice::device

#endif  // SLUICE_TRANSPORT_DEVICE_OWN_ADDRESS_H_
