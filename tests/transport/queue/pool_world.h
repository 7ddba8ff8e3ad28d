// SPDX-License-Identifier: Apache-2.0
//
// World: a PoolHarness on simulated hosts, in virtual time.
#ifndef SLUICE_TESTS_TRANSPORT_QUEUE_POOL_WORLD_H_
#define SLUICE_TESTS_TRANSPORT_QUEUE_POOL_WORLD_H_

#include <cerrno>
#include <functional>
#include <memory>
#include <vector>

#include "tests/transport/cm/sim_commands.h"
#include "tests/transport/queue/pool_harness.h"
#include "transport/base/random.h"

namespace sluice::queue {

using softdc::sim::Simulation;

inline constexpr int64_t kMs = 1'000'000;
inline constexpr int64_t kDeadPeerNs = 300 * kMs;

inline std::vector<ibv_qp*> created_dcis;
inline bool refuse_reset = false;

// The simulation's table, with an eye on the queue pairs that are made.
inline const verbs::VerbsApi& WatchedVerbs() {
  static const verbs::VerbsApi table = [] {
    verbs::VerbsApi api = Simulation::Verbs();
    api.dv_create_qp = [](ibv_context* context, ibv_qp_init_attr_ex* attr,
                          mlx5dv_qp_init_attr* dv_attr) {
      ibv_qp* qp = Simulation::Verbs().dv_create_qp(context, attr, dv_attr);
      created_dcis.push_back(qp);
      return qp;
    };
    api.modify_qp = [](ibv_qp* qp, ibv_qp_attr* attr, int mask) {
      if (refuse_reset && attr->qp_state == IBV_QPS_RESET) return EIO;
      return Simulation::Verbs().modify_qp(qp, attr, mask);
    };
    return api;
  }();
  return table;
}

class World {
 public:
  explicit World(PoolOptions options, uint32_t data_slots = 512, const softdc::Dials& dials = {})
      : random(1) {
    created_dcis.clear();
    refuse_reset = false;
    softdc::sim::Options sim;
    sim.nodes = 3;
    sim.dials = dials;
    simulation = Simulation::Create(sim).value();
    commands = std::make_unique<cm::SimCommands>(*simulation, 0, random);
    options.dead_peer_ns = kDeadPeerNs;
    // The trial objects of the capability report come first.
    harness = std::make_unique<PoolHarness>(HarnessOptions{.pool = options,
                                                           .data_slots = data_slots,
                                                           .receive_depth = 256,
                                                           .api = &WatchedVerbs()},
                                            simulation.get(), commands.get());
    harness->passes = 65;
    const size_t made = harness->pool().dci_count();
    dcis.assign(created_dcis.end() - made, created_dcis.end());
  }
  // Until `done`, asked before and after each step; calls `task` about every `period_ns`.
  bool Run(const std::function<bool()>& done, int64_t limit_ns = 10'000 * kMs,
           int64_t period_ns = 0, const std::function<void()>& task = nullptr) {
    const int64_t end_ns = simulation->NowNs() + limit_ns;
    int64_t next_ns = simulation->NowNs();
    for (;;) {
      if (task != nullptr && simulation->NowNs() >= next_ns) {
        task();
        next_ns += period_ns;
        simulation->After(next_ns - simulation->NowNs(), [] {});
      }
      harness->Pass();
      if (done()) return true;
      if (simulation->NowNs() >= end_ns || !simulation->Step()) return false;
    }
  }
  int64_t AttemptNs() const { return harness->pool().WatchPeriodNs(); }

  base::SeededRandom random;
  std::unique_ptr<Simulation> simulation;
  std::unique_ptr<cm::SimCommands> commands;
  std::unique_ptr<PoolHarness> harness;
  std::vector<ibv_qp*> dcis;
};

}  // namespace sluice::queue

#endif  // SLUICE_TESTS_TRANSPORT_QUEUE_POOL_WORLD_H_
