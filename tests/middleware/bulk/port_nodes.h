// SPDX-License-Identifier: Apache-2.0
//
// PortNodes: ports on simulated hosts, or in this process, each with memory of its own and a user that writes down what it
// hears.
#ifndef SLUICE_TESTS_MIDDLEWARE_BULK_PORT_NODES_H_
#define SLUICE_TESTS_MIDDLEWARE_BULK_PORT_NODES_H_

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "middleware/bulk/port.h"
#include "tests/transport/cm/sim_commands.h"
#include "transport/base/clock.h"
#include "transport/base/random.h"
#include "transport/device/device.h"
#include "transport/integrity/convert.h"
#include "transport/poller/commands.h"
#include "transport/softdc/sim/simulation.h"
#include "transport/softdc/verbs.h"

namespace sluice::bulk {

inline constexpr size_t kMemoryBytes = size_t{1} << 20;

struct PortNode : PortUser {
  void OnLent(LeaseId lease, const absl::StatusOr<Capability>& capability) override {
    lent.emplace_back(lease, capability);
  }
  void OnReturned(LeaseId lease) override { returned.push_back(lease); }
  void OnTransferred(TransferId transfer, const absl::Status& status) override {
    EXPECT_EQ(ended.count(transfer), 0u);
    ended[transfer] = status;
    if (on_transferred) on_transferred(transfer);
  }
  void OnArrival(PeerId, const Arrival& arrival) override { arrivals.push_back(arrival); }
  void OnPeerDown(PeerId peer, const absl::Status& why) override { downs.emplace_back(peer, why); }

  std::span<std::byte> at(size_t offset, size_t size) {
    return std::span(memory).subspan(offset, size);
  }

  std::vector<std::byte> memory = std::vector<std::byte>(kMemoryBytes);
  std::unique_ptr<device::Device> device;
  std::unique_ptr<base::Clock> clock;
  std::unique_ptr<poller::Commands> commands;
  std::unique_ptr<Port> port;
  std::vector<std::pair<LeaseId, absl::StatusOr<Capability>>> lent;
  std::vector<LeaseId> returned;
  std::map<TransferId, absl::Status> ended;
  std::vector<Arrival> arrivals;
  std::vector<std::pair<PeerId, absl::Status>> downs;
  std::function<void(TransferId)> on_transferred;
};

struct PortNodesOptions {
  PortOptions port;
  bool simulated = true;
  uint32_t nodes = 2;
  std::vector<uint32_t> piece_bytes;  // by node; none: as in `port`
  softdc::sim::Options sim;
  std::string device = "softdc0";
  const verbs::VerbsApi* table = nullptr;  // instead of the simulation's or the software NIC's
};

class PortNodes {
 public:
  using Simulation = softdc::sim::Simulation;

  explicit PortNodes(PortNodesOptions options = {}) {
    if (options.simulated) {
      options.sim.nodes = options.nodes;
      simulation = Simulation::Create(options.sim).value();
    }
    for (uint32_t i = 0; i < options.nodes; ++i) {
      if (i < options.piece_bytes.size()) options.port.piece_bytes = options.piece_bytes[i];
      Open(i, options);
    }
  }
  ~PortNodes() {
    for (uint32_t i = 0; i < nodes.size(); ++i) {
      const auto as = As(i);
      nodes[i]->commands->Finish();
      nodes[i]->port.reset();
      nodes[i]->device.reset();
    }
  }

  std::optional<Simulation::As> As(uint32_t node) {
    if (simulation == nullptr) return std::nullopt;
    return std::optional<Simulation::As>(std::in_place, *simulation, node);
  }
  PortNode& operator[](uint32_t i) { return *nodes[i]; }

  struct Joined {
    PeerId at_one, at_other;
  };
  Joined Join(uint32_t one, uint32_t other) {
    std::string ticket, answer;
    Joined joined;
    {
      const auto as = As(one);
      auto peer = nodes[one]->port->Offer(&ticket);
      EXPECT_TRUE(peer.ok()) << peer.status();
      joined.at_one = *peer;
    }
    {
      const auto as = As(other);
      auto peer = nodes[other]->port->Accept(ticket, &answer);
      EXPECT_TRUE(peer.ok()) << peer.status();
      joined.at_other = *peer;
    }
    const auto as = As(one);
    const absl::Status status = nodes[one]->port->Complete(joined.at_one, answer);
    EXPECT_TRUE(status.ok()) << status;
    return joined;
  }
  struct Lent {
    LeaseId id;
    Capability capability;
  };
  Lent Lend(uint32_t node, uint8_t rights, size_t offset = 0, size_t size = kMemoryBytes,
            int64_t end_ns = 0) {
    const size_t before = nodes[node]->lent.size();
    Lent lent;
    {
      const auto as = As(node);
      auto id = nodes[node]->port->leases().Lend(nodes[node]->at(offset, size), rights, end_ns);
      EXPECT_TRUE(id.ok()) << id.status();
      lent.id = *id;
    }
    EXPECT_TRUE(Run([&] { return nodes[node]->lent.size() > before; }));
    const auto& [id, capability] = nodes[node]->lent.back();
    EXPECT_EQ(id, lent.id);
    EXPECT_TRUE(capability.ok()) << capability.status();
    if (capability.ok()) lent.capability = *capability;
    return lent;
  }
  absl::StatusOr<TransferId> Start(uint32_t node, PeerId peer, const TransferRequest& request) {
    const auto as = As(node);
    return nodes[node]->port->Start(peer, request);
  }

  void Pass() {
    in_pass = true;
    for (uint32_t i = 0; i < nodes.size(); ++i) {
      if (dead.size() > i && dead[i]) continue;
      const auto as = As(i);
      nodes[i]->port->Poll();
    }
    in_pass = false;
  }
  // Until `done`. False: not within a (virtual) minute.
  bool Run(const std::function<bool()>& done) {
    const int64_t start_ns = simulation == nullptr ? 0 : simulation->NowNs();
    for (uint64_t pass = 0; pass < 100'000'000; ++pass) {
      Pass();
      if (done()) return true;
      if (simulation == nullptr) continue;
      // As somebody who polls at least so often.
      if (next_ns_ <= simulation->NowNs()) {
        next_ns_ = simulation->NowNs() + 5'000;
        simulation->After(5'000, [] {});
      }
      simulation->Step();
      if (simulation->NowNs() - start_ns > 60'000'000'000) return false;
    }
    return false;
  }

  std::unique_ptr<Simulation> simulation;
  std::vector<std::unique_ptr<PortNode>> nodes;
  std::vector<bool> dead;
  bool in_pass = false;  // a poller is at work: nothing may block
  base::SeededRandom random{7};

 private:
  void Open(uint32_t i, const PortNodesOptions& options) {
    nodes.push_back(std::make_unique<PortNode>());
    PortNode& node = *nodes.back();
    const auto as = As(i);
    const verbs::VerbsApi* table = options.table;
    if (table == nullptr) table = simulation ? &Simulation::Verbs() : &softdc::Verbs();
    auto device = device::Device::Open(options.device, {table});
    ASSERT_TRUE(device.ok()) << device.status();
    node.device = *std::move(device);
    if (simulation != nullptr) {
      node.clock = std::make_unique<cm::SimClock>(*simulation);
      node.commands = std::make_unique<cm::SimCommands>(*simulation, i, random);
    } else {
      node.clock = std::make_unique<base::RealClock>();
      node.commands = std::make_unique<poller::InlineCommands>();
    }
    auto port = Port::Create(*node.device, *node.clock, random, *node.commands, node, options.port);
    ASSERT_TRUE(port.ok()) << port.status();
    node.port = *std::move(port);
  }

  int64_t next_ns_ = 0;
};

inline void Fill(base::Random& random, std::span<std::byte> data) {
  for (std::byte& byte : data) byte = static_cast<std::byte>(random.Next64());
}

}  // namespace sluice::bulk

#endif  // SLUICE_TESTS_MIDDLEWARE_BULK_PORT_NODES_H_
