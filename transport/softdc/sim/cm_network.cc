// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/sim/cm_network.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace sluice::softdc::sim {
namespace {

// Returns the message type, for the log and to recognize a request. The other contents concern only the
// engines.
uint64_t TypeOf(std::span<const std::byte> message) {
  if (message.size() != sizeof(cm::WireMessage)) return 0;
  return static_cast<uint64_t>(message[offsetof(cm::WireMessage, type)]);
}

}  // namespace

bool CmNetwork::WayIsUp(uint32_t a, uint32_t b) const {
  return world_.nodes[a].port_up && world_.nodes[b].port_up && world_.faults.LinkIsUp(a, b);
}

int CmNetwork::Transfer(cm::Handle from, std::span<const std::byte> message) {
  const auto found = ends_.find(from);
  if (found == ends_.end()) return EPIPE;
  End& end = found->second;
  const auto peer = ends_.find(end.peer);
  const uint64_t type = TypeOf(message);
  const bool first = !std::exchange(end.sent_any, true);
  if (peer == ends_.end()) {
    // The peer no longer knows this wire. If the peer is alive, it reports the end of the wire.
    if (end.ended) return EPIPE;
    TellEnd(end.peer_node, from);
    return 0;
  }
  CmFaults& faults = world_.faults.cm();
  const uint32_t to_node = peer->second.node;
  world_.Log(LogKind::kCmMessage, end.node, to_node, from, type);
  if (first && type == static_cast<uint64_t>(cm::MessageType::kReq) &&
      world_.random.Chance(faults.reject_ppm)) {
    world_.Log(LogKind::kCmRejected, end.node, to_node, from, faults.reject_reason);
    cm::WireMessage reject = cm::NewMessage(cm::MessageType::kRej);
    reject.reject_reason = static_cast<uint8_t>(faults.reject_reason);
    const auto bytes = std::as_bytes(std::span(&reject, 1));
    Deliver(from, Bytes(bytes.begin(), bytes.end()), 2 * LatencyNs());
    return 0;
  }
  if (world_.random.Chance(faults.loss_ppm)) {
    world_.Log(LogKind::kCmLost, end.node, to_node, from, type);
    return 0;
  }
  int64_t delay_ns = LatencyNs() + world_.JitterNs();
  if (world_.random.Chance(faults.delay_ppm)) {
    world_.Log(LogKind::kCmDelayed, end.node, to_node, from, faults.delay_ns);
    delay_ns += faults.delay_ns;
  }
  const Bytes bytes(message.begin(), message.end());
  if (world_.random.Chance(faults.duplicate_ppm)) {
    world_.Log(LogKind::kCmDuplicated, end.node, to_node, from, type);
    Deliver(peer->first, bytes, delay_ns);
  }
  Deliver(peer->first, bytes, delay_ns);
  return 0;
}

void CmNetwork::Deliver(cm::Handle to, Bytes bytes, int64_t delay_ns) {
  End& end = ends_.at(to);
  end.last_arrival_ns = std::max(end.last_arrival_ns, world_.now_ns() + delay_ns);
  world_.clock.ScheduleAt(end.last_arrival_ns, [this, to, bytes = std::move(bytes)]() mutable {
    const auto found = ends_.find(to);
    if (found == ends_.end()) return;
    if (!WayIsUp(found->second.node, found->second.peer_node)) {
      world_.Log(LogKind::kCmLost, found->second.peer_node, found->second.node, to, TypeOf(bytes));
      return;
    }
    found->second.inbox.push_back(std::move(bytes));
    TellNow(to);
  });
}

void CmNetwork::TellEnd(uint32_t from_node, cm::Handle to) {
  const auto found = ends_.find(to);
  if (found == ends_.end()) return;
  End& end = found->second;
  if (world_.random.Chance(world_.faults.cm().loss_ppm)) {
    world_.Log(LogKind::kCmLost, from_node, end.node, to, 0);
    return;
  }
  end.last_arrival_ns = std::max(end.last_arrival_ns, world_.now_ns() + LatencyNs());
  world_.clock.ScheduleAt(end.last_arrival_ns, [this, from_node, to] {
    const auto still = ends_.find(to);
    if (still == ends_.end() || !WayIsUp(from_node, still->second.node)) return;
    still->second.ended = true;
    TellNow(to);
  });
}

// Calls TellNow in a separate step, never from inside a call of the engine.
void CmNetwork::Tell(cm::Handle handle) {
  world_.clock.ScheduleAt(world_.now_ns(), [this, handle] { TellNow(handle); });
}

// Reports a handle as ready while input is left, because the engine takes only some of it at a time.
void CmNetwork::TellNow(cm::Handle handle) {
  SimCmFabric* owner = nullptr;
  if (const auto end = ends_.find(handle); end != ends_.end()) {
    if (end->second.inbox.empty() && !end->second.ended) return;
    owner = end->second.owner;
  } else if (const auto port = ports_.find(handle); port != ports_.end()) {
    if (port->second.backlog.empty()) return;
    owner = port->second.owner;
  } else if (const auto key = keys_.find(handle); key != keys_.end()) {
    if (!key->second.duplicate) return;
    owner = key->second.owner;
  }
  if (owner == nullptr) return;
  // Reports the rest again. When the engine takes the end of a wire, it closes the handle.
  const size_t left_before = Waiting(handle);
  owner->events_.OnReady(handle);
  world_.Tell(owner->node_.index, Activity::kEvent);
  if (Waiting(handle) != 0 && Waiting(handle) != left_before) Tell(handle);
}

size_t CmNetwork::Waiting(cm::Handle handle) const {
  if (const auto end = ends_.find(handle); end != ends_.end()) return end->second.inbox.size();
  if (const auto port = ports_.find(handle); port != ports_.end()) {
    return port->second.backlog.size();
  }
  return 0;
}

uint64_t SimTimers::After(int64_t delay_ns, std::function<void()> task) {
  return world_.clock.ScheduleAt(world_.now_ns() + delay_ns, [this, task = std::move(task)] {
    if (node_.life != life_) return;
    task();
    world_.Tell(node_.index, Activity::kEvent);
  });
}

}  // namespace sluice::softdc::sim
