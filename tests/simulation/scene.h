// SPDX-License-Identifier: Apache-2.0
//
// Scene: what the parts of a run share.
#ifndef SLUICE_TESTS_SIMULATION_SCENE_H_
#define SLUICE_TESTS_SIMULATION_SCENE_H_

#include <cstdint>
#include <memory>
#include <set>
#include <utility>

#include "tests/simulation/ledger.h"
#include "tests/simulation/plan.h"
#include "tests/simulation/trail.h"
#include "tests/simulation/witness.h"
#include "transport/softdc/sim/simulation.h"

namespace sluice::simulation {

struct Scene {
  explicit Scene(const Plan& its)
      : plan(its),
        simulation(softdc::sim::Simulation::Create(its.network).value()),
        ledger(its.network.nodes),
        witness(*simulation, ledger, 4 * its.endpoint.dead_peer_ns) {}

  const Plan plan;
  const std::unique_ptr<softdc::sim::Simulation> simulation;
  Ledger ledger;
  Witness witness;
  Trail trail;
  bool quiet = false;                               // enough was sent
  std::set<std::pair<uint32_t, uint32_t>> refused;  // of the plan's unlike pairs
  uint64_t digest = 0;

  int64_t now_ns() const { return simulation->NowNs(); }
  void Note(uint64_t value) {
    digest = (digest ^ value) * 0x9e3779b97f4a7c15u;
    digest ^= digest >> 29;
  }
};

}  // namespace sluice::simulation

#endif  // SLUICE_TESTS_SIMULATION_SCENE_H_
