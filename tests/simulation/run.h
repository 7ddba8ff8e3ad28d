// SPDX-License-Identifier: Apache-2.0
//
// RunPlan: a whole run, from the first process to the last descriptor.
#ifndef SLUICE_TESTS_SIMULATION_RUN_H_
#define SLUICE_TESTS_SIMULATION_RUN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/simulation/ledger.h"
#include "tests/simulation/node.h"
#include "tests/simulation/plan.h"

namespace sluice::simulation {

struct Result {
  std::vector<Violation> violations;  // the first is what matters
  uint64_t digest = 0;
  uint64_t messages = 0;
  uint64_t delivered = 0;
  uint64_t peers_down = 0;
  uint64_t faults = 0;  // that happened
  uint64_t events = 0;
  int64_t virtual_ns = 0;
  Totals totals;
  std::string log;    // likewise, of the network, where the plan wants text
  std::string trail;  // of a run that failed: what happened last between those concerned

  bool ok() const { return violations.empty(); }
};

Result RunPlan(const Plan& plan);
// One line.
std::string ToString(const Plan& plan, const Result& result);

}  // namespace sluice::simulation

#endif  // SLUICE_TESTS_SIMULATION_RUN_H_
