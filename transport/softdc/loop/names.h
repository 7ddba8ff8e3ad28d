// SPDX-License-Identifier: Apache-2.0
//
// Names of softdc's rendezvous points: abstract Unix sockets (man 7 unix). They belong to the network
// namespace and leave nothing in a file system. The kernel frees them when their process ends, also after a
// crash.
//
// An abstract name has no permissions: the first process that binds it owns it. Therefore both sides ask the
// kernel for the user of the peer (SO_PEERCRED) and accept only processes of their own user. Another user can
// occupy a name, but cannot impersonate.
//
// Threads       Any.
#ifndef SLUICE_TRANSPORT_SOFTDC_LOOP_NAMES_H_
#define SLUICE_TRANSPORT_SOFTDC_LOOP_NAMES_H_

#include <string>
#include <string_view>

#include "transport/softdc/loop/unique_fd.h"

namespace sluice::softdc {

// SOFTDC_DOMAIN separates fabrics on one host; "0" if unset. A longer value is replaced by a hash in names.
constexpr size_t kMaxDomainBytes = 40;

// sun_path without the leading zero byte.
constexpr size_t kMaxAbstractNameBytes = 107;

// Returns the fabric of this process: the present value of SOFTDC_DOMAIN, or its hash.
std::string FabricDomain();

// softdc/<uid>/<domain>/<kind>/<key>
std::string AbstractName(std::string_view kind, std::string_view key);

// All of these functions return an empty UniqueFd and set errno on failure. Sockets are SOCK_SEQPACKET,
// close-on-exec and non-blocking: accept() and recv() fail with EAGAIN if there is nothing to take.

// EADDRINUSE: the name is taken. ENAMETOOLONG: more than kMaxAbstractNameBytes.
UniqueFd ListenAbstract(std::string_view name, int backlog);

// Binds the name without listening: a connect to it fails, and a second bind fails with EADDRINUSE.
UniqueFd HoldAbstract(std::string_view name);

// Connects a socket of one of these functions. Returns 0 or an errno. ECONNREFUSED: no listener. EAGAIN: the
// backlog of the listener is full. EACCES: the listener belongs to another user; `fd` is then not usable.
int ConnectFd(int fd, std::string_view name);

// Does the same with a new socket.
UniqueFd ConnectAbstract(std::string_view name);

// EAGAIN: no connection waits. EACCES: a process of another user had connected; the connection is closed.
UniqueFd AcceptSameUser(int listening_fd);

// Returns whether the peer process (at the time of its connect() or listen()) has the effective user id of
// this process.
bool PeerIsSameUser(int connected_fd);

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_LOOP_NAMES_H_
