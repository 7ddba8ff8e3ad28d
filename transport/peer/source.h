// SPDX-License-Identifier: Apache-2.0
//
// SourceOf(): the source to which a handshake is charged, from the address of the client.
//
// Threads       Any: a pure function.
#ifndef SLUICE_TRANSPORT_PEER_SOURCE_H_
#define SLUICE_TRANSPORT_PEER_SOURCE_H_

#include <string>

namespace sluice::peer {

// `address`: "host:port" or "host". The port is ignored, because a client has a new port each time. An IPv6 host can choose among 2^64
// addresses, so its source is the /64 ("2001:db8:0:1::/64"). An IPv4 address written as IPv6 counts as IPv4.
std::string SourceOf(const std::string& address);

}  // namespace sluice::peer

#endif  // SLUICE_TRANSPORT_PEER_SOURCE_H_
