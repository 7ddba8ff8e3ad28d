// SPDX-License-Identifier: Apache-2.0
//
// Interface of one process to the CM network: addresses, ports, wires and keys.
#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "transport/softdc/loop/gids.h"
#include "transport/softdc/sim/cm_network.h"
#include "transport/softdc/sim/sim_fabric.h"

namespace sluice::softdc::sim {
namespace {

constexpr uint16_t kFirstEphemeral = 32768;
constexpr uint16_t kLastEphemeral = 60999;
constexpr uint32_t kLoopbackNetwork = 127;

// Returns the IPv4 or IPv4-mapped address, host byte order. Returns 0 if it is neither. Maps ::1 to
// 127.0.0.1.
uint32_t V4Of(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    return ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr);
  }
  if (address->sa_family != AF_INET6) return 0;
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  if (IN6_IS_ADDR_LOOPBACK(&v6)) return INADDR_LOOPBACK;
  if (!IN6_IS_ADDR_V4MAPPED(&v6)) return 0;
  uint32_t v4 = 0;
  std::memcpy(&v4, &v6.s6_addr[12], sizeof(v4));
  return ntohl(v4);
}

uint16_t PortOf(const sockaddr* address) {
  return ntohs(address->sa_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(address)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(address)->sin_port);
}

constexpr uint32_t kNobody = UINT32_MAX;

}  // namespace

// Returns the node of an address, as seen from this node. Returns kNobody if no node has it.
uint32_t SimCmFabric::HostOf(const sockaddr* address) const {
  const uint32_t v4 = V4Of(address);
  if (v4 >> 24 == kLoopbackNetwork) return node_.index;
  const uint32_t index = v4 - AddressOf(0);
  return index < network_.world_.nodes.size() ? index : kNobody;
}

bool SimCmFabric::IsOwn(const sockaddr* address) { return HostOf(address) == node_.index; }

bool SimCmFabric::Reaches(const sockaddr* address) { return HostOf(address) != kNobody; }

sockaddr_storage SimCmFabric::SourceFor(const sockaddr* destination) {
  sockaddr_storage storage{};
  const uint32_t own = htonl(AddressOf(node_.index));
  if (destination->sa_family == AF_INET6) {
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage);
    v6->sin6_family = AF_INET6;
    v6->sin6_addr.s6_addr[10] = v6->sin6_addr.s6_addr[11] = 0xff;
    std::memcpy(&v6->sin6_addr.s6_addr[12], &own, sizeof(own));
    return storage;
  }
  auto* v4 = reinterpret_cast<sockaddr_in*>(&storage);
  v4->sin_family = AF_INET;
  v4->sin_addr.s_addr = own;
  return storage;
}

uint8_t SimCmFabric::GidIndex(const ibv_gid& gid) {
  const RoceV1 v1 = node_.device->dials().port.roce_v1;
  for (size_t i = 0; i < node_.gids.size(); ++i) {
    if (SameGid(node_.gids[i], gid) && !IsRoceV1(node_.gids, i, v1)) return static_cast<uint8_t>(i);
  }
  return 0;
}

int SimCmFabric::ReservePort(cm::PortSpace space, uint16_t port, cm::Handle* handle,
                             uint16_t* chosen) {
  if (dead_) return EADDRNOTAVAIL;
  CmNetwork::Host& host = network_.hosts_[node_.index];
  const uint32_t range = port != 0 ? 1 : kLastEphemeral - kFirstEphemeral + 1u;
  for (uint32_t tries = 0; tries < range; ++tries) {
    uint16_t candidate = port;
    if (port == 0) {
      candidate = host.next_port;
      host.next_port = candidate == kLastEphemeral ? kFirstEphemeral : candidate + 1;
    }
    if (host.ports.contains({space, candidate})) continue;
    *handle = network_.next_handle_++;
    *chosen = candidate;
    host.ports[{space, candidate}] = *handle;
    network_.ports_[*handle] = {
        .owner = this, .node = node_.index, .space = space, .number = candidate};
    return 0;
  }
  return port != 0 ? EADDRINUSE : EADDRNOTAVAIL;
}

int SimCmFabric::Listen(cm::Handle handle) {
  const auto port = network_.ports_.find(handle);
  if (port == network_.ports_.end()) return EBADF;
  port->second.listens = true;
  return 0;
}

int SimCmFabric::Connect(cm::Handle handle, const sockaddr* destination) {
  const auto port = network_.ports_.find(handle);
  if (port == network_.ports_.end()) return EBADF;
  const uint32_t to = HostOf(destination);
  int error = 0;
  cm::Handle listener = 0;
  if (to == kNobody || !network_.world_.nodes[to].up || !network_.WayIsUp(node_.index, to)) {
    error = EAGAIN;  // no answer
  } else {
    const auto& ports = network_.hosts_[to].ports;
    const auto found = ports.find({port->second.space, PortOf(destination)});
    if (found != ports.end()) listener = found->second;
    const auto listening = network_.ports_.find(listener);
    if (listening == network_.ports_.end() || !listening->second.listens) error = ECONNREFUSED;
  }
  if (error != 0) {
    Close(handle);
    return error;
  }
  const cm::Handle far = network_.next_handle_++;
  network_.ends_[handle] = {.owner = this, .node = node_.index, .peer = far, .peer_node = to};
  network_.ends_[far] = {.owner = nullptr, .node = to, .peer = handle, .peer_node = node_.index};
  network_.ports_[listener].backlog.push_back(far);
  network_.world_.clock.ScheduleAt(network_.world_.now_ns() + network_.LatencyNs(),
                                   [network = &network_, listener] { network->TellNow(listener); });
  return 0;
}

int SimCmFabric::Accept(cm::Handle listener, cm::Handle* wire) {
  const auto port = network_.ports_.find(listener);
  if (port == network_.ports_.end()) return EBADF;
  if (port->second.backlog.empty()) return EAGAIN;
  *wire = port->second.backlog.front();
  port->second.backlog.pop_front();
  network_.ends_[*wire].owner = this;
  network_.Tell(*wire);
  return 0;
}

int SimCmFabric::Send(cm::Handle wire, std::span<const std::byte> message) {
  return dead_ ? EPIPE : network_.Transfer(wire, message);
}

ssize_t SimCmFabric::Receive(cm::Handle wire, std::span<std::byte> buffer) {
  const auto found = network_.ends_.find(wire);
  if (found == network_.ends_.end()) return 0;
  CmNetwork::End& end = found->second;
  if (end.inbox.empty()) {
    if (end.ended) return 0;
    errno = EAGAIN;
    return -1;
  }
  const CmNetwork::Bytes message = std::move(end.inbox.front());
  end.inbox.pop_front();
  if (message.size() > buffer.size()) {
    errno = EMSGSIZE;
    return -1;
  }
  std::memcpy(buffer.data(), message.data(), message.size());
  return static_cast<ssize_t>(message.size());
}

int SimCmFabric::ClaimKey(uint64_t node_guid, uint32_t qp_num, cm::Handle* key) {
  CmNetwork::Host& host = network_.hosts_[node_.index];
  const std::pair name(node_guid, qp_num);
  const auto known = host.keys.find(name);
  if (known != host.keys.end()) {
    network_.keys_[known->second].duplicate = true;
    network_.Tell(known->second);
    return EEXIST;
  }
  *key = network_.next_handle_++;
  host.keys[name] = *key;
  network_.keys_[*key] = {.owner = this, .node = node_.index, .name = name};
  return 0;
}

bool SimCmFabric::TakeDuplicate(cm::Handle key) {
  const auto found = network_.keys_.find(key);
  return found != network_.keys_.end() && std::exchange(found->second.duplicate, false);
}

void SimCmFabric::ClosePort(cm::Handle handle) {
  const auto port = network_.ports_.find(handle);
  if (port == network_.ports_.end()) return;
  const std::deque<cm::Handle> unaccepted = std::move(port->second.backlog);
  network_.hosts_[node_.index].ports.erase({port->second.space, port->second.number});
  network_.ports_.erase(port);
  for (const cm::Handle wire : unaccepted) CloseEnd(wire);
}

void SimCmFabric::CloseEnd(cm::Handle handle) {
  const auto end = network_.ends_.find(handle);
  if (end == network_.ends_.end()) return;
  const cm::Handle peer = end->second.peer;
  network_.ends_.erase(end);
  network_.TellEnd(node_.index, peer);
}

void SimCmFabric::Close(cm::Handle handle) {
  CloseEnd(handle);
  ClosePort(handle);
  const auto key = network_.keys_.find(handle);
  if (key == network_.keys_.end()) return;
  network_.hosts_[node_.index].keys.erase(key->second.name);
  network_.keys_.erase(key);
}

void SimCmFabric::Die() {
  if (std::exchange(dead_, true)) return;
  std::vector<cm::Handle> mine;
  for (const auto& [handle, port] : network_.ports_) {
    if (port.owner == this) mine.push_back(handle);
  }
  for (const auto& [handle, end] : network_.ends_) {
    if (end.owner == this) mine.push_back(handle);
  }
  for (const auto& [handle, key] : network_.keys_) {
    if (key.owner == this) mine.push_back(handle);
  }
  for (const cm::Handle handle : mine) Close(handle);
}

}  // namespace sluice::softdc::sim
