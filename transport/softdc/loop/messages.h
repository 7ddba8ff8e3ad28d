// SPDX-License-Identifier: Apache-2.0
//
// One bounded message with file descriptors over a SOCK_SEQPACKET socket (man 7 unix, SCM_RIGHTS).
// What comes in is not trusted: too long, cut or odd messages are refused, and no descriptor that
// came along is leaked.
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

// Sends all or nothing; the descriptors stay the caller's. 0 or errno: EAGAIN: the socket is
// non-blocking and its peer has not read; EPIPE/ECONNRESET: the peer is gone; EMSGSIZE, EINVAL:
// empty or beyond the bounds above.
int SendWithFds(int socket_fd, std::span<const std::byte> bytes, std::span<const int> fds = {});

// Receives one message into `buffer`, and what came with it, close-on-exec, into `fds` (replaced;
// nullptr: none are expected). Returns its length, 0 at the end of the connection, or -1 with
// errno: EAGAIN: nothing there; EMSGSIZE: longer than `buffer` or more descriptors than allowed;
// that message is gone and its descriptors are closed; EMFILE: this process had no descriptors for those
// that came along; they are closed, and the message is in `buffer`; ECONNRESET: the peer closed while messages
// of ours were unread: said once, what it had sent before is still there to be received.
ssize_t RecvWithFds(int socket_fd, std::span<std::byte> buffer,
                    std::vector<UniqueFd>* fds = nullptr);

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_LOOP_MESSAGES_H_
