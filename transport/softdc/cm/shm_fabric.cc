// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/cm/shm_fabric.h"

#include <arpa/inet.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string>

#include "transport/softdc/cm/addresses.h"
#include "transport/softdc/loop/gids.h"
#include "transport/softdc/loop/messages.h"
#include "transport/softdc/loop/names.h"

namespace sluice::softdc::cm {
namespace {

constexpr int kKeyBacklog = 8;           // one waiting connection is sufficient
constexpr int kStrangersPerAccept = 16;  // attempts of other users skipped per call
constexpr uint32_t kPortRange = ShmFabric::kLastEphemeralPort - ShmFabric::kFirstEphemeralPort + 1;

std::string PortName(PortSpace space, uint16_t port) {
  const char* kind = "cm";
  if (space == PortSpace::kUdp) kind = "udp";
  if (space == PortSpace::kIpoib) kind = "ipoib";
  if (space == PortSpace::kIb) kind = "ib";
  return AbstractName(kind, std::to_string(port));
}

std::string KeyName(uint64_t node_guid, uint32_t qp_num) {
  char key[40];
  std::snprintf(key, sizeof(key), "%016llx/%06x", static_cast<unsigned long long>(node_guid),
                qp_num);
  return AbstractName("live", key);
}

}  // namespace

ShmFabric::ShmFabric(Loop* loop, FabricEvents* events)
    : loop_(loop),
      events_(events),
      // Processes that start together should not try the same ports.
      next_port_(static_cast<uint16_t>(kFirstEphemeralPort +
                                       (static_cast<uint32_t>(getpid()) * 251) % kPortRange)) {}

ShmFabric::~ShmFabric() {
  for (auto& [handle, socket] : sockets_) {
    if (socket.watched) loop_->Unwatch(socket.fd.get());
    loop_->Cancel(socket.pause_timer);
  }
  loop_->RunAndWait([] {});  // a pause timer that had started has ended now
}

Handle ShmFabric::Add(UniqueFd fd) {
  const Handle handle = next_handle_++;
  sockets_[handle].fd = std::move(fd);
  return handle;
}

ShmFabric::Socket* ShmFabric::Find(Handle handle) {
  const auto found = sockets_.find(handle);
  return found == sockets_.end() ? nullptr : &found->second;
}

int ShmFabric::Watch(Handle handle, Socket* socket) {
  const int error = loop_->Watch(socket->fd.get(), EPOLLIN,
                                 [this, handle](uint32_t) { events_->OnReady(handle); });
  socket->watched = error == 0;
  return error;
}

// This fabric has only one host.
bool ShmFabric::IsOwn(const sockaddr* address) { return IsLocalAddress(address); }
bool ShmFabric::Reaches(const sockaddr* address) { return IsLocalAddress(address); }

sockaddr_storage ShmFabric::SourceFor(const sockaddr* destination) {
  if (IsWildcard(destination)) return LoopbackOf(destination->sa_family);
  sockaddr_storage source{};
  CopyAddress(destination, &source);
  SetPort(0, &source);
  return source;
}

uint8_t ShmFabric::GidIndex(const ibv_gid& gid) {
  return static_cast<uint8_t>(std::max(0, IndexOfGid(gid)));
}

int ShmFabric::ReservePort(PortSpace space, uint16_t port, Handle* handle, uint16_t* chosen) {
  for (uint32_t tries = 0; tries < (port != 0 ? 1 : kPortRange); ++tries) {
    uint16_t candidate = port;
    if (port == 0) {
      candidate = next_port_;
      next_port_ = next_port_ == kLastEphemeralPort ? kFirstEphemeralPort : next_port_ + 1;
    }
    UniqueFd fd = HoldAbstract(PortName(space, candidate));
    if (fd) {
      *handle = Add(std::move(fd));
      Find(*handle)->space = space;
      *chosen = candidate;
      return 0;
    }
    if (errno != EADDRINUSE) return errno;
  }
  return port != 0 ? EADDRINUSE : EADDRNOTAVAIL;
}

int ShmFabric::Listen(Handle port) {
  Socket* socket = Find(port);
  if (socket == nullptr) return EBADF;
  if (listen(socket->fd.get(), kListenBacklog) != 0) return errno;
  return Watch(port, socket);
}

int ShmFabric::Connect(Handle port, const sockaddr* destination) {
  Socket* socket = Find(port);
  if (socket == nullptr) return EBADF;
  int error = ConnectFd(socket->fd.get(), PortName(socket->space, ntohs(PortOf(destination))));
  if (error == 0) error = Watch(port, socket);
  if (error != 0) Close(port);
  return error;
}

int ShmFabric::Accept(Handle listener, Handle* wire) {
  Socket* socket = Find(listener);
  if (socket == nullptr) return EBADF;
  if (socket->paused) {
    socket->paused = false;
    loop_->Rewatch(socket->fd.get(), EPOLLIN);
  }
  for (int i = 0; i < kStrangersPerAccept; ++i) {
    UniqueFd fd = AcceptSameUser(socket->fd.get());
    if (fd) {
      *wire = Add(std::move(fd));
      const int error = Watch(*wire, Find(*wire));
      if (error != 0) Close(*wire);
      return error;
    }
    if (errno != EACCES && errno != ECONNABORTED && errno != EINTR) break;
  }
  const int error = errno;
  if (error != EAGAIN && error != EACCES) {
    // Most likely, no descriptor is free. The connection stays in the backlog, and a level-triggered watch
    // would call back without end.
    socket->paused = true;
    loop_->Rewatch(socket->fd.get(), 0);
    socket->pause_timer =
        loop_->After(kAcceptPauseNs, [this, listener] { events_->OnReady(listener); });
  }
  return error;
}

int ShmFabric::Send(Handle wire, std::span<const std::byte> message) {
  Socket* socket = Find(wire);
  return socket == nullptr ? EPIPE : SendWithFds(socket->fd.get(), message);
}

ssize_t ShmFabric::Receive(Handle wire, std::span<std::byte> buffer) {
  Socket* socket = Find(wire);
  if (socket == nullptr) return 0;
  ssize_t length = RecvWithFds(socket->fd.get(), buffer);
  // The peer closed before it read all our messages. Its earlier messages can still be received.
  if (length < 0 && errno == ECONNRESET) length = RecvWithFds(socket->fd.get(), buffer);
  if (length < 0 && errno != EAGAIN && errno != EMSGSIZE) return 0;
  return length;
}

int ShmFabric::ClaimKey(uint64_t node_guid, uint32_t qp_num, Handle* key) {
  const std::string name = KeyName(node_guid, qp_num);
  for (int tries = 0; tries < 2; ++tries) {
    UniqueFd fd = ListenAbstract(name, kKeyBacklog);
    if (fd) {
      *key = Add(std::move(fd));
      const int error = Watch(*key, Find(*key));
      if (error != 0) Close(*key);
      return error;
    }
    if (errno != EADDRINUSE) return errno;
    // The connection notifies the owner. ECONNREFUSED: the owner died in the meantime.
    if (ConnectAbstract(name) || errno != ECONNREFUSED) return EEXIST;
  }
  return EEXIST;
}

bool ShmFabric::TakeDuplicate(Handle key) {
  Socket* socket = Find(key);
  if (socket == nullptr) return false;
  bool any = false;
  for (int i = 0; i <= kKeyBacklog; ++i) {
    if (!AcceptSameUser(socket->fd.get())) break;
    any = true;
  }
  return any;
}

void ShmFabric::Close(Handle handle) {
  const auto found = sockets_.find(handle);
  if (found == sockets_.end()) return;
  // Forget instead of Unwatch: the callback may be waiting for the engine's lock now.
  if (found->second.watched) loop_->Forget(found->second.fd.get());
  loop_->Cancel(found->second.pause_timer);
  sockets_.erase(found);
}

}  // namespace sluice::softdc::cm
