// SPDX-License-Identifier: Apache-2.0
//
// SimNodesTest: the fixture of tests that run a SimNode on every host of one simulation.
#ifndef SLUICE_TESTS_TRANSPORT_SOFTDC_SIM_SIM_NODES_TEST_H_
#define SLUICE_TESTS_TRANSPORT_SOFTDC_SIM_SIM_NODES_TEST_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/transport/softdc/sim/sim_node.h"
#include "transport/softdc/sim/simulation.h"

namespace sluice::softdc::sim {

class SimNodesTest : public ::testing::Test {
 protected:
  void Build(const Options& options, const SimNodeOptions& node = {}) {
    simulation_ = Simulation::Create(options).value();
    for (uint32_t i = 0; i < options.nodes; ++i) {
      nodes_.push_back(std::make_unique<SimNode>(*simulation_, i, node));
    }
  }
  SimNode& node(size_t i) { return *nodes_[i]; }

  std::unique_ptr<Simulation> simulation_;
  std::vector<std::unique_ptr<SimNode>> nodes_;
};

}  // namespace sluice::softdc::sim

#endif  // SLUICE_TESTS_TRANSPORT_SOFTDC_SIM_SIM_NODES_TEST_H_
