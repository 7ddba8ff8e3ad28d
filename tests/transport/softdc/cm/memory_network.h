// SPDX-License-Identifier: Apache-2.0
//
// A CM fabric in memory: hosts of one thread on a virtual clock, so that minutes of repetition take
// no time, and messages can be lost. Host n has the address 10.0.0.n and nothing else.
#ifndef SLUICE_TESTS_TRANSPORT_SOFTDC_CM_MEMORY_NETWORK_H_
#define SLUICE_TESTS_TRANSPORT_SOFTDC_CM_MEMORY_NETWORK_H_

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "transport/softdc/cm/addresses.h"
#include "transport/softdc/cm/fabric.h"

namespace sluice::softdc::cm {

constexpr int64_t kHopNs = 1'000'000;
constexpr uint32_t kFirstAddress = 0x0a000000;  // 10.0.0.0

class MemoryNetwork final : public Timers {
 public:
  uint64_t After(int64_t delay_ns, std::function<void()> task) override {
    const uint64_t id = next_task_++;
    tasks_.emplace(std::make_pair(now_ns_ + delay_ns, id), std::move(task));
    due_ns_[id] = now_ns_ + delay_ns;
    return id;
  }

  void Cancel(uint64_t timer_id) override {
    const auto due = due_ns_.find(timer_id);
    if (due == due_ns_.end()) return;
    tasks_.erase({due->second, timer_id});
    due_ns_.erase(due);
  }

  // Runs the next task if it is due by then. False: none is, and that is the time now.
  bool StepUntil(int64_t end_ns) {
    if (tasks_.empty() || tasks_.begin()->first.first > end_ns) {
      now_ns_ = std::max(now_ns_, end_ns);
      return false;
    }
    auto task = tasks_.extract(tasks_.begin());
    now_ns_ = task.key().first;
    due_ns_.erase(task.key().second);
    task.mapped()();
    return true;
  }

  int64_t now_ns() const { return now_ns_; }

  // Loses so many of a hundred messages, by this seed.
  void Lose(uint32_t percent, uint32_t seed) {
    loss_percent_ = percent;
    random_.seed(seed);
  }

 private:
  friend class MemoryFabric;
  struct Object {
    FabricEvents* owner = nullptr;
    Handle peer = 0;  // the wire's other end
    bool ended = false;
    bool duplicate = false;
    bool listens = false;
    std::deque<std::vector<std::byte>> inbox;
    std::deque<Handle> backlog;
    std::function<void()> forget;  // gives the port or the key back
  };
  struct Host {
    std::map<std::pair<PortSpace, uint16_t>, Handle> ports;
    std::map<std::pair<uint64_t, uint32_t>, Handle> keys;
    uint16_t next_port = 32768;
  };

  void Tell(Handle handle) {
    After(kHopNs, [this, handle] {
      const auto found = objects_.find(handle);
      if (found != objects_.end() && found->second.owner != nullptr) {
        found->second.owner->OnReady(handle);
      }
    });
  }
  bool Lost() { return loss_percent_ != 0 && random_() % 100 < loss_percent_; }

  std::map<std::pair<int64_t, uint64_t>, std::function<void()>> tasks_;
  std::map<uint64_t, int64_t> due_ns_;
  int64_t now_ns_ = 0;
  uint64_t next_task_ = 1;
  std::map<Handle, Object> objects_;
  std::map<uint32_t, Host> hosts_;
  Handle next_handle_ = 1;
  uint32_t loss_percent_ = 0;
  std::mt19937 random_;
};

class MemoryFabric final : public Fabric {
 public:
  // Several engines of one host share its ports and its table of numbers.
  MemoryFabric(MemoryNetwork* network, uint32_t host, FabricEvents* events)
      : network_(network), host_(host), events_(events) {}

  bool IsOwn(const sockaddr* address) override { return HostOf(address) == host_; }
  bool Reaches(const sockaddr* address) override {
    return network_->hosts_.count(HostOf(address)) != 0 || IsOwn(address);
  }
  sockaddr_storage SourceFor(const sockaddr* destination) override {
    sockaddr_storage storage = WildcardOf(destination->sa_family);
    reinterpret_cast<sockaddr_in*>(&storage)->sin_addr.s_addr = htonl(kFirstAddress + host_);
    return storage;
  }
  uint8_t GidIndex(const ibv_gid&) override { return 0; }

  int ReservePort(PortSpace space, uint16_t port, Handle* handle, uint16_t* chosen) override {
    auto& host = Mine();
    const uint16_t wanted = port != 0 ? port : host.next_port++;
    if (host.ports.count({space, wanted}) != 0) return EADDRINUSE;
    *handle = Add();
    *chosen = wanted;
    host.ports[{space, wanted}] = *handle;
    network_->objects_[*handle].forget = [this, space, wanted] {
      Mine().ports.erase({space, wanted});
    };
    spaces_[*handle] = space;
    return 0;
  }

  int Listen(Handle port) override {
    network_->objects_.at(port).listens = true;
    return 0;
  }

  int Connect(Handle port, const sockaddr* destination) override {
    auto& ports = network_->hosts_[HostOf(destination)].ports;
    const auto found = ports.find({spaces_.at(port), ntohs(PortOf(destination))});
    if (found == ports.end() || !network_->objects_.at(found->second).listens) {
      Close(port);
      return ECONNREFUSED;
    }
    const Handle far = network_->next_handle_++;
    network_->objects_[far].peer = port;
    network_->objects_.at(port).peer = far;
    network_->objects_.at(found->second).backlog.push_back(far);
    network_->Tell(found->second);
    return 0;
  }

  int Accept(Handle listener, Handle* wire) override {
    auto& backlog = network_->objects_.at(listener).backlog;
    if (backlog.empty()) return EAGAIN;
    *wire = backlog.front();
    backlog.pop_front();
    network_->objects_.at(*wire).owner = events_;
    network_->Tell(*wire);
    if (!backlog.empty()) network_->Tell(listener);
    return 0;
  }

  int Send(Handle wire, std::span<const std::byte> message) override {
    const auto found = network_->objects_.find(wire);
    if (found == network_->objects_.end()) return EPIPE;
    if (network_->Lost()) return 0;
    const Handle peer = found->second.peer;
    network_->After(kHopNs, [network = network_, peer,
                             bytes = std::vector(message.begin(), message.end())]() mutable {
      const auto end = network->objects_.find(peer);
      if (end == network->objects_.end()) return;
      end->second.inbox.push_back(std::move(bytes));
      if (end->second.owner != nullptr) end->second.owner->OnReady(peer);
    });
    return 0;
  }

  ssize_t Receive(Handle wire, std::span<std::byte> buffer) override {
    const auto found = network_->objects_.find(wire);
    if (found == network_->objects_.end()) return 0;
    if (found->second.inbox.empty()) {
      if (found->second.ended) return 0;
      errno = EAGAIN;
      return -1;
    }
    const std::vector<std::byte> message = std::move(found->second.inbox.front());
    found->second.inbox.pop_front();
    std::memcpy(buffer.data(), message.data(), std::min(buffer.size(), message.size()));
    return static_cast<ssize_t>(message.size());
  }

  int ClaimKey(uint64_t node_guid, uint32_t qp_num, Handle* key) override {
    auto& keys = Mine().keys;
    const auto taken = keys.find({node_guid, qp_num});
    if (taken != keys.end()) {
      network_->objects_.at(taken->second).duplicate = true;
      network_->Tell(taken->second);
      return EEXIST;
    }
    *key = Add();
    keys[{node_guid, qp_num}] = *key;
    network_->objects_[*key].forget = [this, node_guid, qp_num] {
      Mine().keys.erase({node_guid, qp_num});
    };
    return 0;
  }

  bool TakeDuplicate(Handle key) override {
    return std::exchange(network_->objects_.at(key).duplicate, false);
  }

  void Close(Handle handle) override {
    const auto found = network_->objects_.find(handle);
    if (found == network_->objects_.end()) return;
    const Handle peer = found->second.peer;
    if (found->second.forget) found->second.forget();
    network_->objects_.erase(found);
    if (peer == 0) return;
    network_->After(kHopNs, [network = network_, peer] {
      const auto end = network->objects_.find(peer);
      if (end == network->objects_.end()) return;
      end->second.ended = true;
      if (end->second.owner != nullptr) end->second.owner->OnReady(peer);
    });
  }

 private:
  static uint32_t HostOf(const sockaddr* address) {
    if (address->sa_family != AF_INET) return UINT32_MAX;
    return ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) - kFirstAddress;
  }
  MemoryNetwork::Host& Mine() { return network_->hosts_[host_]; }
  Handle Add() {
    const Handle handle = network_->next_handle_++;
    network_->objects_[handle].owner = events_;
    return handle;
  }

  MemoryNetwork* const network_;
  const uint32_t host_;
  FabricEvents* const events_;
  std::map<Handle, PortSpace> spaces_;
};

}  // namespace sluice::softdc::cm

#endif  // SLUICE_TESTS_TRANSPORT_SOFTDC_CM_MEMORY_NETWORK_H_
