// SPDX-License-Identifier: Apache-2.0
//
// CurrentNode: the simulated host for which the calling thread acts, for calls that name no device.
#ifndef SLUICE_TRANSPORT_SOFTDC_SIM_CURRENT_NODE_H_
#define SLUICE_TRANSPORT_SOFTDC_SIM_CURRENT_NODE_H_

#include <cstdint>

namespace sluice::softdc::sim {

class Simulation;

struct CurrentNode {
  Simulation* simulation = nullptr;
  uint32_t node = 0;

  static CurrentNode& OfThread();
};

}  // namespace sluice::softdc::sim

#endif  // SLUICE_TRANSPORT_SOFTDC_SIM_CURRENT_NODE_H_
