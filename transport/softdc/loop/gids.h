// SPDX-License-Identifier: Apache-2.0
//
// The RoCE v2 GID table of softdc0, port 1: index 0 is ::ffff:127.0.0.1, then one entry per address
// of this host, an IPv4 address in its IPv4-mapped form. All of 127/8 and both wildcard addresses
// count as index 0.
//
// Thread-safety: all functions may be called from any thread. The table is read anew at each call,
// as an address that comes or goes changes the kernel's table too; entries keep the order in which
// the kernel lists the addresses.
#ifndef SLUICE_TRANSPORT_SOFTDC_LOOP_GIDS_H_
#define SLUICE_TRANSPORT_SOFTDC_LOOP_GIDS_H_

#include <infiniband/verbs.h>
#include <sys/socket.h>

#include <vector>

namespace sluice::softdc {

using Gid = ibv_gid;

constexpr size_t kMaxGids = 256;  // ibv_port_attr.gid_tbl_len; addresses beyond are left out

std::vector<Gid> LocalGids();

// The GID of an IPv4 or IPv6 address (scope and port don't matter); false: another family.
bool GidOfAddress(const sockaddr* address, Gid* gid);

// Index of `gid` in the table, or -1 when it isn't this host's.
int IndexOfGid(const Gid& gid);

// Whether the address is one of this host's: in the table, in 127/8, ::1, or a wildcard.
bool IsLocalAddress(const sockaddr* address);

bool SameGid(const Gid& a, const Gid& b);

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_LOOP_GIDS_H_
