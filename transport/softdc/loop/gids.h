// SPDX-License-Identifier: Apache-2.0
//
// The RoCE v2 GID table of softdc0, port 1: index 0 is ::ffff:127.0.0.1, then one entry per address
// of this host, an IPv4 address in its IPv4-mapped form. All of 127/8 and both wildcard addresses
// count as index 0.
//
// Threads       All functions may be called from any thread. An address that comes or goes changes the table at once, as it changes a
//               NIC's; entries keep the order in which the kernel lists the addresses. The list is kept per process and read again after
//               the kernel has announced a change (rtnetlink(7)); where it announces none, each call reads it. Without free descriptors
//               a call keeps the list that was read last, and the next one reads again. A process that moves to another network
//               namespace after its first call is not noticed. A program that closes the descriptor of the announcements and reuses its
//               number is noticed as soon as that descriptor is readable.
#ifndef SLUICE_TRANSPORT_SOFTDC_LOOP_GIDS_H_
#define SLUICE_TRANSPORT_SOFTDC_LOOP_GIDS_H_

#include <infiniband/verbs.h>
#include <sys/socket.h>

#include <cstdint>
#include <vector>

#include "transport/softdc/config/dials.h"

namespace sluice::softdc {

using Gid = ibv_gid;

constexpr size_t kMaxGids = 256;  // ibv_port_attr.gid_tbl_len; addresses beyond are left out

std::vector<Gid> LocalGids();

// How often this process has read the list of addresses.
uint64_t AddressListReads();

// The GID of an IPv4 or IPv6 address (scope and port don't matter); false: another family.
bool GidOfAddress(const sockaddr* address, Gid* gid);

// Index of `gid` in the table, or -1 when it isn't this host's.
int IndexOfGid(const Gid& gid);

// Whether the address is one of this host's: in the table, in 127/8, ::1, or a wildcard.
bool IsLocalAddress(const sockaddr* address);

// The second NIC of a host that has one (Dials::Port::second_device): its name, its address in network byte order, and whether
// an address is one of those that lead to it.
inline constexpr char kSecondDeviceName[] = "softdc1";
uint32_t SecondDeviceAddress();
bool IsOfSecondDevice(const Gid& gid);

// Tables with entries of RoCE v1. An address is there twice then; which of the two is of version 1 follows from their order.
std::vector<Gid> WithRoceV1(const std::vector<Gid>& gids, RoceV1 where);
bool IsRoceV1(const std::vector<Gid>& gids, size_t index, RoceV1 where);
// Where the entry that has `index` in a table of version 2 alone stands.
size_t IndexWithRoceV1(size_t index, RoceV1 where);

bool SameGid(const Gid& a, const Gid& b);

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_LOOP_GIDS_H_
