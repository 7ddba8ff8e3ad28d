// SPDX-License-Identifier: Apache-2.0
//
// FaultDriver: makes the faults of a plan happen, ends them, and tells the ledger whom they may cost what.
#ifndef SLUICE_TESTS_SIMULATION_FAULT_DRIVER_H_
#define SLUICE_TESTS_SIMULATION_FAULT_DRIVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tests/simulation/fault_rates.h"
#include "tests/simulation/node.h"
#include "tests/simulation/scene.h"

namespace sluice::simulation {

class FaultDriver {
 public:
  // Both outlive it.
  FaultDriver(Scene& scene, std::vector<std::unique_ptr<Node>>& nodes);

  // Begins those whose time has come.
  void Advance() {
    if (!failing_.empty()) Settle();
    while (next_ < scene_.plan.faults.size() &&
           scene_.plan.faults[next_].at_message <= scene_.ledger.sent()) {
      Begin(scene_.plan.faults[next_++]);
    }
  }
  void Stop() { next_ = scene_.plan.faults.size(); }
  // Nothing is going on.
  bool idle() const { return under_way_ == 0; }
  uint64_t happened() const { return happened_; }

 private:
  void Begin(const Fault& fault);
  bool BeginRequestError(const Fault& fault);
  bool BeginDeadDci(const Fault& fault);
  void Settle();
  // False: it can't be now.
  bool Do(const Fault& fault);
  void Undo(const Fault& fault);
  void Trouble(const Fault& fault, bool begins);

  Scene& scene_;
  std::vector<std::unique_ptr<Node>>& nodes_;
  size_t next_ = 0;
  uint32_t under_way_ = 0;
  uint64_t happened_ = 0;
  FaultRates rates_;
  std::vector<bool> busy_;  // by host: something is wrong with it as a whole
  // Pairs some of whose requests are to fail, or have failed and their host has not been told.
  std::vector<std::pair<uint32_t, uint32_t>> failing_;
  std::vector<uint32_t> settled_;  // by pair: messages acknowledged when the last failure was told
  // When a host was last put to it.
  struct Trials {
    int64_t dead_dci_ns = INT64_MIN / 2;
    int64_t failing_ns = INT64_MIN / 2;
    int64_t stalled_until_ns = INT64_MIN / 2;
  };
  std::vector<Trials> trials_;  // by host
};

}  // namespace sluice::simulation

#endif  // SLUICE_TESTS_SIMULATION_FAULT_DRIVER_H_
