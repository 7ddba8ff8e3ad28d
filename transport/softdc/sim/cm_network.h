// SPDX-License-Identifier: Apache-2.0
//
// CmNetwork: carries RDMA_CM messages between simulated nodes. It has each node's ports and table of
// connected queue pairs, and the wires between nodes. SimCmFabric is the interface of one process to it. A
// node has one SimCmFabric for each of its lives.
//
// Messages of a wire arrive in order, one latency after they were sent. The fault plan drops them, delays
// them (and all messages behind them), duplicates them, or answers a request with a reject of its own. A
// connect to a port without a listener is refused at once. A connect to a node that is down or not reachable
// gets no answer.
//
// If a process is killed, its wires end for its peers, as with a kernel. While the path between them is down,
// the peers do not notice, as when a host dies. The message that ends a wire can be lost like any other
// message. It is repeated to a process that sends to the ended wire.
//
// Threads       One thread.
#ifndef SLUICE_TRANSPORT_SOFTDC_SIM_CM_NETWORK_H_
#define SLUICE_TRANSPORT_SOFTDC_SIM_CM_NETWORK_H_

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "transport/softdc/cm/fabric.h"
#include "transport/softdc/cm/wire_message.h"
#include "transport/softdc/sim/world.h"

namespace sluice::softdc::sim {

class SimCmFabric;

class CmNetwork {
 public:
  explicit CmNetwork(World& world) : world_(world), hosts_(world.options.nodes) {}

 private:
  friend class SimCmFabric;
  using Bytes = std::vector<std::byte>;

  // One end of a wire. The ends know each other by their handles, which are never reused.
  struct End {
    SimCmFabric* owner = nullptr;
    uint32_t node = 0;
    cm::Handle peer = 0;
    uint32_t peer_node = 0;
    std::deque<Bytes> inbox;
    bool ended = false;  // the end of the wire has arrived
    int64_t last_arrival_ns = 0;
    bool sent_any = false;
  };
  struct Port {
    SimCmFabric* owner = nullptr;
    uint32_t node = 0;
    cm::PortSpace space{};
    uint16_t number = 0;
    bool listens = false;
    std::deque<cm::Handle> backlog;
  };
  struct Key {
    SimCmFabric* owner = nullptr;
    uint32_t node = 0;
    std::pair<uint64_t, uint32_t> name;
    bool duplicate = false;
  };
  struct Host {
    std::map<std::pair<cm::PortSpace, uint16_t>, cm::Handle> ports;
    std::map<std::pair<uint64_t, uint32_t>, cm::Handle> keys;
    uint16_t next_port = 32768;  // ephemeral range of Linux
  };

  bool WayIsUp(uint32_t a, uint32_t b) const;
  int64_t LatencyNs() const { return world_.options.latency_ns; }
  int Transfer(cm::Handle from, std::span<const std::byte> message);
  void Deliver(cm::Handle to, Bytes bytes, int64_t delay_ns);
  void TellEnd(uint32_t from_node, cm::Handle to);
  void Tell(cm::Handle handle);
  void TellNow(cm::Handle handle);
  size_t Waiting(cm::Handle handle) const;

  World& world_;
  std::vector<Host> hosts_;
  std::map<cm::Handle, End> ends_;
  std::map<cm::Handle, Port> ports_;
  std::map<cm::Handle, Key> keys_;
  cm::Handle next_handle_ = 1;
};

class SimCmFabric final : public cm::Fabric {
 public:
  // All arguments must outlive the object.
  SimCmFabric(CmNetwork& network, Node& node, cm::FabricEvents& events)
      : network_(network), node_(node), events_(events) {}
  ~SimCmFabric() override { Die(); }

  // Called when the process dies: closes everything the process holds. No event is reported afterwards.
  void Die();

  bool IsOwn(const sockaddr* address) override;
  bool Reaches(const sockaddr* address) override;
  sockaddr_storage SourceFor(const sockaddr* destination) override;
  uint8_t GidIndex(const ibv_gid& gid) override;
  int ReservePort(cm::PortSpace space, uint16_t port, cm::Handle* handle,
                  uint16_t* chosen) override;
  int Listen(cm::Handle port) override;
  int Connect(cm::Handle port, const sockaddr* destination) override;
  int Accept(cm::Handle listener, cm::Handle* wire) override;
  int Send(cm::Handle wire, std::span<const std::byte> message) override;
  ssize_t Receive(cm::Handle wire, std::span<std::byte> buffer) override;
  int ClaimKey(uint64_t node_guid, uint32_t qp_num, cm::Handle* key) override;
  bool TakeDuplicate(cm::Handle key) override;
  void Close(cm::Handle handle) override;

 private:
  friend class CmNetwork;
  uint32_t HostOf(const sockaddr* address) const;
  void ClosePort(cm::Handle handle);
  void CloseEnd(cm::Handle handle);

  CmNetwork& network_;
  Node& node_;
  cm::FabricEvents& events_;
  bool dead_ = false;
};

// Timers of the virtual clock for one life of a node; none fires after its end.
class SimTimers final : public cm::Timers {
 public:
  SimTimers(World& world, const Node& node) : world_(world), node_(node), life_(node.life) {}
  uint64_t After(int64_t delay_ns, std::function<void()> task) override;
  void Cancel(uint64_t timer_id) override { world_.clock.Cancel(timer_id); }

 private:
  World& world_;
  const Node& node_;
  const uint32_t life_;
};

}  // namespace sluice::softdc::sim

#endif  // SLUICE_TRANSPORT_SOFTDC_SIM_CM_NETWORK_H_
