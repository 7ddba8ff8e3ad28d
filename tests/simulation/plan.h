// SPDX-License-Identifier: Apache-2.0
//
// Plan: all that a run depends on, drawn from its seed: hosts, devices, endpoints, what the programs send, and what goes
// wrong. A value: a plan with fewer faults or fewer messages is a plan too.
#ifndef SLUICE_TESTS_SIMULATION_PLAN_H_
#define SLUICE_TESTS_SIMULATION_PLAN_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/fault.h"
#include "tests/simulation/workload.h"
#include "transport/endpoint/create.h"
#include "transport/softdc/sim/options.h"

namespace sluice::simulation {

// What the hosts' devices have.
enum class DeviceKind : uint8_t {
  kDc,
  kRc,     // RC queue pairs: the device has no DC, or its program asks for RC
  kMixed,  // either; the hosts of each kind connect among themselves, and refuse the others
};

struct PlanOptions {
  uint64_t seed = 1;
  uint64_t messages = 100'000;  // in the whole run
  FaultSet faults = FaultSet::kAll;
  // With all faults: completions that come twice, and requests that run after they have failed.
  bool late = true;
  // Programs disconnect peers inside callbacks.
  bool leaves = false;
  DeviceKind device = DeviceKind::kDc;
};

struct Plan {
  PlanOptions options;
  softdc::sim::Options network;
  endpoint::Options endpoint;
  Workload workload;
  std::vector<std::pair<uint32_t, uint32_t>> pairs;  // the first connects to the second
  // Likewise, where one host has DC and the other RC: the connection is refused.
  std::vector<std::pair<uint32_t, uint32_t>> unlike;
  std::vector<bool> rc;       // by host: its peers have RC queue pairs
  std::vector<bool> asks_rc;  // by host: its program asks for RC, whatever the device has
  int64_t poll_delay_ns = 0;  // at most, from a completion until the program looks
  int64_t nap_ns = 0;         // without anything to do, before it sleeps
  std::vector<Fault> faults;  // by at_message
  uint64_t stop_after = 0;    // messages; less than those of the options in a plan that was shrunk
};

Plan MakePlan(const PlanOptions& options);
// The plan's line, and one for each fault.
std::string ToString(const Plan& plan);

}  // namespace sluice::simulation

#endif  // SLUICE_TESTS_SIMULATION_PLAN_H_
