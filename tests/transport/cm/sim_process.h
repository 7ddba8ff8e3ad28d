// SPDX-License-Identifier: Apache-2.0
//
// SimProcess: one process on a simulated host: the connection manager as the product has it, with
// its pool, timers and commands, and congestion profiles and address handles as an endpoint uses
// them. All in virtual time.
#ifndef SLUICE_TESTS_TRANSPORT_CM_SIM_PROCESS_H_
#define SLUICE_TESTS_TRANSPORT_CM_SIM_PROCESS_H_

#include <memory>
#include <optional>
#include <string>

#include "tests/transport/cm/sim_commands.h"
#include "transport/base/random.h"
#include "transport/base/timer_wheel.h"
#include "transport/cm/connection_manager.h"
#include "transport/path/address_handles.h"
#include "transport/path/congestion_profiles.h"
#include "transport/softdc/sim/simulation.h"

namespace sluice::cm {

class SimProcess {
 public:
  // All outlive it. `ece`: the device takes part in the exchange. What else it lacks shows when it
  // is asked for.
  SimProcess(softdc::sim::Simulation& simulation, uint32_t node, const verbs::VerbsApi& api,
             bool ece, Options options, uint64_t seed, User& user);
  // As after a kill, if the node was killed; else all ids go at once.
  ~SimProcess();
  SimProcess(const SimProcess&) = delete;
  SimProcess& operator=(const SimProcess&) = delete;

  // What a poller's pass does. Wakes itself when a timer is due.
  int Poll();

  ConnectionManager& manager() { return *manager_; }
  SimCommands& commands() { return commands_; }
  QpnPool& numbers() { return *numbers_; }
  path::AddressHandles& handles() { return *handles_; }
  path::CongestionProfiles& profiles() { return *profiles_; }
  uint32_t node() const { return node_; }
  static std::string Address(uint32_t node);

 private:
  void Wake();

  softdc::sim::Simulation& simulation_;
  const uint32_t node_;
  SimClock clock_;
  base::SeededRandom random_;
  base::TimerWheel timers_;
  SimCommands commands_;
  verbs::Context context_;
  verbs::Pd pd_;
  verbs::Cq cq_;
  verbs::Qp first_dci_;
  std::optional<QpnPool> numbers_;
  std::optional<path::CongestionProfiles> profiles_;
  std::optional<path::AddressHandles> handles_;
  std::unique_ptr<ConnectionManager> manager_;
  int64_t wake_ns_ = INT64_MAX;
};

}  // namespace sluice::cm

#endif  // SLUICE_TESTS_TRANSPORT_CM_SIM_PROCESS_H_
