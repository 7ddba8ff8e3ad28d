// SPDX-License-Identifier: Apache-2.0
//
// The 40 bytes before the payload in the receive buffer of a UD queue pair (man ibv_post_recv): a global routing header. On RoCE v2 between
// IPv4 addresses: 20 undefined bytes and an IPv4 header.
//
// Threads       Pure functions.
#ifndef SLUICE_TRANSPORT_SOFTDC_MODEL_GRH_H_
#define SLUICE_TRANSPORT_SOFTDC_MODEL_GRH_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "transport/softdc/model/wqe.h"

namespace sluice::softdc {

inline constexpr uint32_t kGrhBytes = 40;
using Grh = std::array<std::byte, kGrhBytes>;

// Returns the header of a packet with that address and payload size. Without a GRH (InfiniBand) the bytes are undefined; all are 0.
Grh MakeGrh(const DatagramOperands& address, uint32_t payload_bytes);

// Returns the service level for the receive completion of a datagram on RoCE, as mlx5 reports it. Bit 3: the packet has a UDP header (RoCE
// v2). Bits 2:0: network header, 1 IPv6, 2 IPv4. Programs use it to find the destination in the 40 bytes.
uint8_t RocePacketType(const ibv_gid& source, const ibv_gid& destination);

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_GRH_H_
