// SPDX-License-Identifier: Apache-2.0
//
// Shrink: the least of a failing plan that still fails.
#ifndef SLUICE_TESTS_SIMULATION_SHRINK_H_
#define SLUICE_TESTS_SIMULATION_SHRINK_H_

#include <functional>
#include <string>

#include "tests/simulation/plan.h"

namespace sluice::simulation {

// Drops faults, and messages at the end, as long as `fails` says so.
Plan Shrink(const Plan& plan, const std::function<bool(const Plan&)>& fails);
// As long as the run breaks the same invariant.
Plan Shrink(const Plan& plan);

// The options of ./dev simulate that give this plan.
std::string CommandOf(const Plan& plan);

}  // namespace sluice::simulation

#endif  // SLUICE_TESTS_SIMULATION_SHRINK_H_
