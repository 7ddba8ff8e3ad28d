// SPDX-License-Identifier: Apache-2.0
//
// Simulated messages a second on one core: nodes send 64-byte messages to each other, everybody to
// everybody, each with a window of sends; every message is received, polled and its receive posted
// again. RESULTS.md says how to repeat it, and how many instructions a message takes.
#include <benchmark/benchmark.h>
#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "tests/transport/softdc/sim/sim_node.h"
#include "transport/softdc/sim/simulation.h"

namespace {

using sluice::softdc::sim::LogMode;
using sluice::softdc::sim::Options;
using sluice::softdc::sim::SimNode;
using sluice::softdc::sim::Simulation;

constexpr uint32_t kMessageBytes = 64;
constexpr uint32_t kWindow = 16;  // sends outstanding, per node
constexpr size_t kSendOffset = 128 << 10;
constexpr uint64_t kRoundMessages = 8'000;  // of one iteration

class Mesh {
 public:
  Mesh(uint32_t nodes, bool streams, LogMode log) {
    Options options;
    options.nodes = nodes;
    options.log = log;
    simulation_ = Simulation::Create(options).value();
    for (uint32_t i = 0; i < nodes; ++i) {
      nodes_.push_back(
          std::make_unique<SimNode>(*simulation_, i,
                                    sluice::softdc::sim::SimNodeOptions{.receives = 1024,
                                                                        .receive_bytes = 128,
                                                                        .send_wr = 64,
                                                                        .cqe = 4096,
                                                                        .streams = streams}));
    }
    turns_.resize(nodes);
    for (auto& node : nodes_) {
      for (uint32_t i = 0; i < kWindow; ++i) Send(*node);
    }
  }

  // Runs until that many more messages were received. Not inlined: callgrind counts what is in it.
  __attribute__((noinline)) void Run(uint64_t messages) {
    const uint64_t until = received_ + messages;
    while (received_ < until) {
      simulation_->Step();
      if (++steps_ % kPollEvery == 0) PollAll();
    }
  }
  uint64_t received() const { return received_; }
  uint64_t events() const { return simulation_->events(); }

 private:
  static constexpr uint64_t kPollEvery = 32;

  void Send(SimNode& node) {
    uint32_t& turn = turns_[node.index()];
    turn = (turn + 1) % nodes_.size();
    if (turn == node.index()) turn = (turn + 1) % nodes_.size();
    node.SendBytes(*nodes_[turn], kSendOffset, kMessageBytes, turn, static_cast<uint16_t>(turn));
  }

  void PollAll() {
    ibv_wc wc[kWindow];
    for (auto& node : nodes_) {
      const int sent = ibv_poll_cq(node->send_cq, kWindow, wc);
      for (int i = 0; i < sent; ++i) Send(*node);
      const int came = ibv_poll_cq(node->receive_cq, kWindow, wc);
      if (came > 0) node->PostReceives(static_cast<uint32_t>(came));
      received_ += static_cast<uint64_t>(came);
    }
  }

  std::unique_ptr<Simulation> simulation_;
  std::vector<std::unique_ptr<SimNode>> nodes_;
  std::vector<uint32_t> turns_;
  uint64_t received_ = 0;
  uint64_t steps_ = 0;
};

void BM_AllToAll(benchmark::State& state) {
  Mesh mesh(static_cast<uint32_t>(state.range(0)), state.range(1) != 0,
            state.range(2) != 0 ? LogMode::kDigest : LogMode::kOff);
  mesh.Run(kRoundMessages);  // warm
  const uint64_t received = mesh.received();
  const uint64_t events = mesh.events();
  for (auto _ : state) mesh.Run(kRoundMessages);
  const auto messages = static_cast<double>(mesh.received() - received);
  state.counters["messages"] = benchmark::Counter(messages, benchmark::Counter::kIsRate);
  state.counters["events_per_message"] = static_cast<double>(mesh.events() - events) / messages;
}
BENCHMARK(BM_AllToAll)
    ->ArgNames({"nodes", "streams", "log"})
    ->Args({8, 1, 0})
    ->Args({8, 1, 1})
    ->Args({8, 0, 1})
    ->Args({64, 1, 1})
    ->Unit(benchmark::kMillisecond);

}  // namespace
