// SPDX-License-Identifier: Apache-2.0
//
// The RoCE v2 GID table of softdc0, port 1. Index 0 is ::ffff:127.0.0.1. Each address of this host follows as
// one entry, an IPv4 address in its IPv4-mapped form. All addresses of 127/8 and both wildcard addresses
// count as index 0.
//
// Threads       Any.
//
// Updates       If an address is added or removed, the table changes at once, as that of a NIC. Entries keep
//               the order in which the kernel lists the addresses. Each process keeps a copy of the list and
//               reads it again after the kernel has announced a change (rtnetlink(7)). If the kernel
//               announces no changes, each call reads the list. If no descriptor is free, a call uses the
//               last list, and the next call reads again.
//
// Limits        A process that moves to another network namespace after its first call is not detected. If a
//               program closes the descriptor of the announcements and reuses its number, this is detected
//               when that descriptor becomes readable.
#ifndef SLUICE_TRANSPORT_SOFTDC_LOOP_GIDS_H_
#define SLUICE_TRANSPORT_SOFTDC_LOOP_GIDS_H_

#include <infiniband/verbs.h>
#include <sys/socket.h>

#include <cstdint>
#include <vector>

#include "transport/softdc/config/dials.h"

namespace sluice::softdc {

using Gid = ibv_gid;

constexpr size_t kMaxGids = 256;  // ibv_port_attr.gid_tbl_len; further addresses are left out

std::vector<Gid> LocalGids();

// Returns the number of times that this process has read the list of addresses.
uint64_t AddressListReads();

// Sets *gid to the GID of an IPv4 or IPv6 address; ignores scope and port. Returns false for another family.
bool GidOfAddress(const sockaddr* address, Gid* gid);

// Returns the index of `gid` in the table, or -1 if it is not a GID of this host.
int IndexOfGid(const Gid& gid);

// Returns whether the address belongs to this host: in the table, in 127/8, ::1, or a wildcard.
bool IsLocalAddress(const sockaddr* address);

// The second NIC of a host that has one (Dials::Port::second_device): its name, its address in network byte
// order, and whether a GID belongs to it.
inline constexpr char kSecondDeviceName[] = "softdc1";
uint32_t SecondDeviceAddress();
bool IsOfSecondDevice(const Gid& gid);

// Tables with entries of RoCE v1, which contain each address twice. The order shows which of the two entries
// has version 1.
std::vector<Gid> WithRoceV1(const std::vector<Gid>& gids, RoceV1 where);
bool IsRoceV1(const std::vector<Gid>& gids, size_t index, RoceV1 where);
// Converts an index in a table with version 2 only to the index of the same entry in a table with both
// versions.
size_t IndexWithRoceV1(size_t index, RoceV1 where);

bool SameGid(const Gid& a, const Gid& b);

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_LOOP_GIDS_H_
