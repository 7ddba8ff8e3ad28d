// SPDX-License-Identifier: Apache-2.0
//
// SimFabric: many devices in one process, on a virtual clock. SimPort: one opened device on it.
//
// Node n has the address 10.x.y.z with x.y.z = n + 1, as RoCE v2 GID 0 (::ffff:10.x.y.z). With the InfiniBand
// link layer it also has LID n + 1. Its node GUID is 02:00:00:53:44:00:00:00 + n.
//
// A context that its node has outlived (Kill, a fatal device) is dead. Its requests do not continue, no peer
// finds it, and it can be closed at any time.
//
// Threads       One thread for all objects opened on it.
#ifndef SLUICE_TRANSPORT_SOFTDC_SIM_SIM_FABRIC_H_
#define SLUICE_TRANSPORT_SOFTDC_SIM_SIM_FABRIC_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "transport/softdc/model/fabric.h"
#include "transport/softdc/sim/arrivals.h"
#include "transport/softdc/sim/node.h"
#include "transport/softdc/sim/world.h"

namespace sluice::softdc::sim {

class SimRequester;

class SimFabric final : public Fabric, public std::enable_shared_from_this<SimFabric> {
 public:
  explicit SimFabric(const Options& options);
  ~SimFabric() override;

  int64_t NowNs() override { return world_.now_ns(); }
  uint64_t After(int64_t delay_ns, std::function<void()> task) override;
  bool Cancel(uint64_t timer) override { return world_.clock.Cancel(timer); }
  std::unique_ptr<FabricPort> Attach(Context& context) override;
  std::vector<ibv_gid> Gids(const SoftDevice& device) override;
  NodeId NodeOf(const SoftDevice& from, const ibv_ah_attr& address) override;
  NodeId SelfNode(const SoftDevice& device) override;
  bool SharesMemory() const override { return false; }
  uint64_t ArenaBytes() const override { return world_.options.arena_bytes; }

  World& world() { return world_; }
  Arrivals& arrivals() { return arrivals_; }
  Node& NodeOf(const SoftDevice& device);

 private:
  World world_;
  Arrivals arrivals_;
};

class SimPort final : public FabricPort {
 public:
  SimPort(std::shared_ptr<SimFabric> fabric, Node& node, Context& context);
  ~SimPort() override;

  uint32_t AllocateNumber() override;
  bool FreeNumber(uint32_t number) override;
  uint32_t AllocateReservedNumber() override;
  bool FreeReservedNumber(uint32_t number) override;
  std::unique_ptr<Requester> NewRequester(SendQueue& queue) override;
  void WaitForCopies() override {}  // a block that has not landed checks the key before it lands
  bool WindowInUse(uint32_t) override { return false; }
  bool LinkIsUp() override { return !dead_ && node_.port_up; }

  SimFabric& fabric() { return *fabric_; }
  Node& node() { return node_; }
  Context& context() { return context_; }
  bool dead() const { return dead_; }
  void Die() { dead_ = true; }

  void Add(SimRequester* requester) { requesters_.push_back(requester); }
  void Remove(SimRequester* requester) { std::erase(requesters_, requester); }
  SimRequester* FindRequester(uint32_t number);
  const std::vector<SimRequester*>& requesters() const { return requesters_; }

 private:
  const std::shared_ptr<SimFabric> fabric_;  // open contexts keep the fabric alive
  Node& node_;
  Context& context_;
  bool dead_ = false;
  std::vector<SimRequester*> requesters_;
  std::vector<uint32_t> reserved_;
};

// Return the GID and GUID of node `index`, in network byte order.
ibv_gid GidOf(uint32_t index);
__be64 GuidOf(uint32_t index);
uint32_t AddressOf(uint32_t index);  // IPv4, host byte order

}  // namespace sluice::softdc::sim

#endif  // SLUICE_TRANSPORT_SOFTDC_SIM_SIM_FABRIC_H_
