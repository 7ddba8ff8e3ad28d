// SPDX-License-Identifier: Apache-2.0
//
// Disturber: makes the faults of tests/simulation/fault.h happen to processes with engines, and ends them.
#ifndef SLUICE_TESTS_NODES_DISTURBER_H_
#define SLUICE_TESTS_NODES_DISTURBER_H_

#include <cstdint>
#include <set>

#include "tests/simulation/fault.h"
#include "tests/simulation/fault_rates.h"
#include "transport/softdc/sim/simulation.h"

namespace sluice::nodes {

// Where faults happen.
class Stage {
 public:
  virtual ~Stage() = default;
  virtual softdc::sim::Simulation& simulation() = 0;
  // The processes of the host are dead; and others take their places.
  virtual void Kill(uint32_t node) = 0;
  virtual void Restart(uint32_t node) = 0;
};

class Disturber {
 public:
  explicit Disturber(Stage* stage) : stage_(stage) {}

  void Begin(const simulation::Fault& fault);
  // Nothing is going on.
  bool idle() const { return under_way_ == 0; }
  void Stop() { stopped_ = true; }
  // Something is wrong with the host as a whole.
  bool IsDown(uint32_t node) const { return down_.contains(node); }

 private:
  // False: it can't be now.
  bool Do(const simulation::Fault& fault);
  void Undo(const simulation::Fault& fault);
  void FailRequests(const simulation::Fault& fault);

  Stage* const stage_;
  bool stopped_ = false;
  uint32_t under_way_ = 0;
  std::set<uint32_t> down_;
  simulation::FaultRates rates_;
};

}  // namespace sluice::nodes

#endif  // SLUICE_TESTS_NODES_DISTURBER_H_
