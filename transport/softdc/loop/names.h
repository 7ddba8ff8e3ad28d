// SPDX-License-Identifier: Apache-2.0
//
// Names of softdc's rendezvous points: abstract Unix sockets (man 7 unix), which belong to the
// network namespace, leave nothing in a file system, and are freed by the kernel when their process
// dies, however it dies.
//
// An abstract name has no permissions: the first process that binds it has it. So both sides ask the kernel for the
// peer's user (SO_PEERCRED) and deal with processes of their own user only; another user can
// occupy a name, but never impersonate.
//
// Threads       All functions may be called from any thread.
#ifndef SLUICE_TRANSPORT_SOFTDC_LOOP_NAMES_H_
#define SLUICE_TRANSPORT_SOFTDC_LOOP_NAMES_H_

#include <string>
#include <string_view>

#include "transport/softdc/loop/unique_fd.h"

namespace sluice::softdc {

// SOFTDC_DOMAIN separates fabrics on one host; "0" when unset. Longer values than this stand in
// names as a hash.
constexpr size_t kMaxDomainBytes = 40;

// sun_path less the leading zero byte.
constexpr size_t kMaxAbstractNameBytes = 107;

// The fabric of this process: SOFTDC_DOMAIN as it is now.
std::string FabricDomain();

// softdc/<uid>/<domain>/<kind>/<key>
std::string AbstractName(std::string_view kind, std::string_view key);

// All of these return an empty UniqueFd and set errno on failure. Sockets are SOCK_SEQPACKET,
// close-on-exec and non-blocking: accept() and recv() say EAGAIN when nothing is there.

// EADDRINUSE: the name is taken. ENAMETOOLONG: more than kMaxAbstractNameBytes.
UniqueFd ListenAbstract(std::string_view name, int backlog);

// Holds the name without listening: connecting to it fails, binding it again says EADDRINUSE.
UniqueFd HoldAbstract(std::string_view name);

// Connects a socket of one of these functions. 0, or errno: ECONNREFUSED: nobody listens; EAGAIN:
// the listener's backlog is full; EACCES: it belongs to another user (then `fd` is of no use any
// more).
int ConnectFd(int fd, std::string_view name);

// The same with a socket of its own.
UniqueFd ConnectAbstract(std::string_view name);

// EAGAIN: nobody waits. EACCES: somebody of another user was there, and has been turned away.
UniqueFd AcceptSameUser(int listening_fd);

// Whether the process at the other end (at the time of its connect() or listen()) has this
// process's effective user id.
bool PeerIsSameUser(int connected_fd);

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_LOOP_NAMES_H_
