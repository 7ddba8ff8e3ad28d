// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/loop/names.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace sluice::softdc {
namespace {

static_assert(kMaxAbstractNameBytes == sizeof(sockaddr_un::sun_path) - 1);

struct Address {
  sockaddr_un un{};
  socklen_t length = 0;
};

bool MakeAddress(std::string_view name, Address* address) {
  if (name.empty() || name.size() > kMaxAbstractNameBytes) {
    errno = name.empty() ? EINVAL : ENAMETOOLONG;
    return false;
  }
  address->un.sun_family = AF_UNIX;
  std::memcpy(address->un.sun_path + 1, name.data(), name.size());
  address->length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return true;
}

UniqueFd NewSocket() {
  return UniqueFd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

}  // namespace

std::string FabricDomain() {
  const char* domain = std::getenv("SOFTDC_DOMAIN");
  if (domain == nullptr || *domain == '\0') return "0";
  std::string name(domain);
  if (name.size() <= kMaxDomainBytes) return name;
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a: with truncation, two long names could collide
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  char text[24];
  std::snprintf(text, sizeof(text), "#%016llx", static_cast<unsigned long long>(hash));
  return text;
}

std::string AbstractName(std::string_view kind, std::string_view key) {
  std::string name = "softdc/" + std::to_string(geteuid()) + "/" + FabricDomain() + "/";
  name.append(kind).append("/").append(key);
  return name;
}

UniqueFd HoldAbstract(std::string_view name) {
  Address address;
  if (!MakeAddress(name, &address)) return UniqueFd();
  UniqueFd fd = NewSocket();
  if (!fd) return fd;
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.un), address.length) != 0) {
    return UniqueFd();
  }
  return fd;
}

UniqueFd ListenAbstract(std::string_view name, int backlog) {
  UniqueFd fd = HoldAbstract(name);
  if (fd && listen(fd.get(), backlog) != 0) fd.Reset();
  return fd;
}

int ConnectFd(int fd, std::string_view name) {
  Address address;
  if (!MakeAddress(name, &address)) return errno;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address.un), address.length) != 0) {
    return errno;
  }
  return PeerIsSameUser(fd) ? 0 : EACCES;
}

UniqueFd ConnectAbstract(std::string_view name) {
  UniqueFd fd = NewSocket();
  if (!fd) return fd;
  if (const int error = ConnectFd(fd.get(), name); error != 0) {
    fd.Reset();
    errno = error;
  }
  return fd;
}

UniqueFd AcceptSameUser(int listening_fd) {
  UniqueFd fd(accept4(listening_fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (fd && !PeerIsSameUser(fd.get())) {
    errno = EACCES;
    fd.Reset();
  }
  return fd;
}

bool PeerIsSameUser(int connected_fd) {
  ucred credentials{};
  socklen_t length = sizeof(credentials);
  return getsockopt(connected_fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0 &&
         credentials.uid == geteuid();
}

}  // namespace sluice::softdc
