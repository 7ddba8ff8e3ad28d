// SPDX-License-Identifier: Apache-2.0
//
// Sends and receives messages of limited size with file descriptors over a SOCK_SEQPACKET socket (man 7 unix,
// SCM_RIGHTS). Input is not trusted: messages that are too long, truncated or malformed are refused, and
// their descriptors are closed.
#ifndef SLUICE_TRANSPORT_SOFTDC_LOOP_MESSAGES_H_
#define SLUICE_TRANSPORT_SOFTDC_LOOP_MESSAGES_H_

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <vector>

#include "transport/softdc/loop/unique_fd.h"

namespace sluice::softdc {

constexpr size_t kMaxMessageBytes = 4096;
constexpr size_t kMaxMessageFds = 16;

// Sends a complete message or nothing. The caller keeps the descriptors. Returns 0 or an errno:
//   EAGAIN            the socket is non-blocking and its peer has not read
//   EPIPE/ECONNRESET  the peer is gone
//   EMSGSIZE, EINVAL  above the limits, or empty
int SendWithFds(int socket_fd, std::span<const std::byte> bytes, std::span<const int> fds = {});

// Receives a message into `buffer`, and its descriptors, close-on-exec, into `fds` (replaced; nullptr: none
// are expected). Returns the length of the message, 0 at the end of the connection, or -1 with errno:
//   EAGAIN      no message
//   EMSGSIZE    longer than `buffer`, or more descriptors than allowed; the message is dropped, its descriptors are closed
//   EMFILE      this process had no descriptors left for the message's; they are closed, the message is in `buffer`
//   ECONNRESET  the peer closed while messages of ours were unread; reported once; earlier messages can still be received
ssize_t RecvWithFds(int socket_fd, std::span<std::byte> buffer,
                    std::vector<UniqueFd>* fds = nullptr);

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_LOOP_MESSAGES_H_
