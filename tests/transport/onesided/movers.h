// SPDX-License-Identifier: Apache-2.0
//
// Movers on simulated hosts, each with registered memory and a user that writes down what it hears.
#ifndef SLUICE_TESTS_TRANSPORT_ONESIDED_MOVERS_H_
#define SLUICE_TESTS_TRANSPORT_ONESIDED_MOVERS_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/cm/sim_commands.h"
#include "transport/base/random.h"
#include "transport/device/device.h"
#include "transport/memory/slab.h"
#include "transport/onesided/mover.h"
#include "transport/softdc/sim/simulation.h"

namespace sluice::onesided {

inline constexpr size_t kMemoryBytes = size_t{1} << 20;

struct MoverNode : MoverUser {
  void OnPiece(uint32_t place, uint64_t cookie, PieceEnd end) override {
    EXPECT_FALSE(IsDown(place)) << "it was the last call for a peer";
    pieces.emplace_back(cookie, end);
  }
  void OnWord(uint32_t place, std::span<const std::byte> word) override {
    EXPECT_FALSE(IsDown(place)) << "it was the last call for a peer";
    words.emplace_back(place, std::string(reinterpret_cast<const char*>(word.data()), word.size()));
  }
  void OnDown(uint32_t place, const absl::Status& why) override {
    EXPECT_FALSE(why.ok());
    downs.emplace_back(place, why);
  }
  bool IsDown(uint32_t place) const {
    for (const auto& [down, why] : downs) {
      if (down == place) return true;
    }
    return false;
  }

  std::unique_ptr<device::Device> device;
  std::unique_ptr<cm::SimCommands> commands;
  memory::Slab memory;
  std::unique_ptr<Mover> mover;
  bool deaf = false;  // does not poll
  std::vector<std::pair<uint64_t, PieceEnd>> pieces;
  std::vector<std::pair<uint32_t, std::string>> words;
  std::vector<std::pair<uint32_t, absl::Status>> downs;
};

class Movers {
 public:
  using Simulation = softdc::sim::Simulation;

  explicit Movers(uint32_t count, MoverOptions options = {}, softdc::sim::Options sim = {},
                  const std::string& device_name = "softdc0") {
    sim.nodes = count;
    simulation = Simulation::Create(sim).value();
    for (uint32_t i = 0; i < count; ++i) {
      nodes.push_back(std::make_unique<MoverNode>());
      MoverNode& node = *nodes.back();
      const Simulation::As as(*simulation, i);
      node.device = device::Device::Open(device_name, {&Simulation::Verbs()}).value();
      node.commands = std::make_unique<cm::SimCommands>(*simulation, i, random);
      node.memory = memory::Slab::Create(
                        node.device->api(), node.device->pd(), kMemoryBytes,
                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)
                        .value();
      node.mover = Mover::Create(*node.device, *node.commands, random, node, options).value();
    }
  }
  ~Movers() {
    for (uint32_t i = 0; i < nodes.size(); ++i) {
      const Simulation::As as(*simulation, i);
      nodes[i]->commands->Finish();
      nodes[i]->mover.reset();
      nodes[i]->memory = {};
      nodes[i]->device.reset();
    }
  }

  MoverNode& operator[](uint32_t i) { return *nodes[i]; }
  template <typename Task>
  auto Do(uint32_t node, Task task) {
    const Simulation::As as(*simulation, node);
    return task(*nodes[node]->mover);
  }
  // Their places for each other are given.
  void Join(uint32_t one, uint32_t at_one, uint32_t other, uint32_t at_other) {
    const Address from = Do(one, [&](Mover& mover) { return *mover.Open(at_one); });
    const Address to = Do(other, [&](Mover& mover) { return *mover.Open(at_other); });
    EXPECT_TRUE(
        Do(one, [&](Mover& mover) { return mover.Connect(at_one, to, /*last=*/false); }).ok());
    EXPECT_TRUE(
        Do(other, [&](Mover& mover) { return mover.Connect(at_other, from, /*last=*/true); }).ok());
  }
  // From the start of the memory here to so far into the memory there, or back.
  Piece PieceOf(uint32_t from, uint32_t to, uint64_t offset, uint32_t bytes, bool read = false) {
    return {.read = read,
            .memory = nodes[from]->memory.data() + offset,
            .lkey = nodes[from]->memory.lkey(),
            .remote_address = reinterpret_cast<uint64_t>(nodes[to]->memory.data()) + offset,
            .rkey = nodes[to]->memory.rkey(),
            .bytes = bytes,
            .cookie = offset};
  }
  bool Move(uint32_t node, uint32_t place, const Piece& piece) {
    return Do(node, [&](Mover& mover) {
      if (!mover.CanMove(place)) return false;
      mover.Move(place, piece);
      return true;
    });
  }
  bool Say(uint32_t node, uint32_t place, const std::string& word) {
    return Do(node, [&](Mover& mover) {
      if (!mover.CanSay(place)) return false;
      mover.Say(place, {reinterpret_cast<const std::byte*>(word.data()), word.size()});
      return true;
    });
  }
  void Pass() {
    for (uint32_t i = 0; i < nodes.size(); ++i) {
      if (nodes[i]->deaf) continue;
      const Simulation::As as(*simulation, i);
      nodes[i]->commands->Drain();
      nodes[i]->device->ReadAsyncEvents(
          [&](const device::DeviceEvent& event) { nodes[i]->mover->OnDeviceEvent(event); });
      nodes[i]->mover->Poll();
      if (nodes[i]->mover->busy()) nodes[i]->mover->Watch(simulation->NowNs());
    }
  }
  // Until `done`. False: not within a virtual minute.
  bool Run(const std::function<bool()>& done) {
    const int64_t start_ns = simulation->NowNs();
    while (simulation->NowNs() - start_ns < 60'000'000'000) {
      Pass();
      if (done()) return true;
      if (next_ns_ <= simulation->NowNs()) {
        next_ns_ = simulation->NowNs() + 2'000;
        simulation->After(2'000, [] {});
      }
      simulation->Step();
    }
    return false;
  }
  void RunFor(int64_t ns) {
    const int64_t end_ns = simulation->NowNs() + ns;
    Run([&] { return simulation->NowNs() >= end_ns; });
  }

  base::SeededRandom random{11};
  std::unique_ptr<Simulation> simulation;
  std::vector<std::unique_ptr<MoverNode>> nodes;

 private:
  int64_t next_ns_ = 0;
};

}  // namespace sluice::onesided

#endif  // SLUICE_TESTS_TRANSPORT_ONESIDED_MOVERS_H_
