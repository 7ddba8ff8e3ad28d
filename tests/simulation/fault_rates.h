// SPDX-License-Identifier: Apache-2.0
//
// FaultRates: the faults in progress that are rates of message and connection manager faults, and their sum in a simulation.
#ifndef SLUICE_TESTS_SIMULATION_FAULT_RATES_H_
#define SLUICE_TESTS_SIMULATION_FAULT_RATES_H_

#include <vector>

#include "tests/simulation/fault.h"
#include "transport/softdc/sim/simulation.h"

namespace sluice::simulation {

// Changes how often messages fail. All other faults happen once.
bool IsRate(FaultKind kind);
// Concerns all peers of the host.
bool IsOfHost(FaultKind kind);

class FaultRates {
 public:
  void Begin(const Fault& fault, softdc::sim::Simulation& simulation);
  void End(const Fault& fault, softdc::sim::Simulation& simulation);

 private:
  void Apply(softdc::sim::Simulation& simulation) const;

  std::vector<Fault> rates_;
};

}  // namespace sluice::simulation

#endif  // SLUICE_TESTS_SIMULATION_FAULT_RATES_H_
