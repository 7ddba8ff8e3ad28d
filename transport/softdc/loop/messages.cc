// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/loop/messages.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace sluice::softdc {

int SendWithFds(int socket_fd, std::span<const std::byte> bytes, std::span<const int> fds) {
  if (bytes.empty()) return EINVAL;  // an empty packet looks like the end of the connection
  if (bytes.size() > kMaxMessageBytes || fds.size() > kMaxMessageFds) return EMSGSIZE;
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxMessageFds)] = {};
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  ssize_t sent;
  do {
    sent = sendmsg(socket_fd, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent < 0 ? errno : 0;
}

ssize_t RecvWithFds(int socket_fd, std::span<std::byte> buffer, std::vector<UniqueFd>* fds) {
  if (fds != nullptr) fds->clear();
  iovec part{buffer.data(), buffer.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxMessageFds)];
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t received;
  do {
    received = recvmsg(socket_fd, &message, MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  if (received < 0) return -1;

  std::vector<UniqueFd> taken;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      taken.emplace_back(fd);
    }
  }
  // The buffer has room for kMaxMessageFds. If fewer arrived and some were cut off, this process has no free
  // descriptors.
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == MSG_CTRUNC && fds != nullptr &&
      taken.size() < kMaxMessageFds) {
    errno = EMFILE;
    return -1;
  }
  const bool cut = (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
  if (cut || (fds == nullptr && !taken.empty())) {
    errno = EMSGSIZE;
    return -1;
  }
  if (fds != nullptr) *fds = std::move(taken);
  return received;
}

}  // namespace sluice::softdc
