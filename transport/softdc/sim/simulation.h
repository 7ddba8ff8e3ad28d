// SPDX-License-Identifier: Apache-2.0
//
// Simulation: many hosts with one softdc device each, in one process, on a virtual clock with a seed. The device model is that of softdc0;
// only the fabric differs (docs/decisions/0005).
//
//   auto simulation = Simulation::Create({.seed = 7, .nodes = 3}).value();
//   { Simulation::As as(*simulation, 1);                 // this thread is node 1 now
//     context = Simulation::Verbs().open_device(simulation->Device(1)); ... }
//   simulation->RunUntil([&] { return ibv_poll_cq(cq, 1, &wc) == 1; }, limit_ns);
//
// Time moves only inside Step() and functions that call it, so a program must not wait in any other way: get_cq_event, get_async_event and
// get_cm_event return EAGAIN when there is no event. Do not step between wr_start and wr_complete. The same options and the same calls in
// the same order give the same run: log().digest(), byte for byte.
//
// Ownership     The creator. Device objects may outlive the simulation (they are dead then); RDMA_CM ids and
//               channels may not.
// Threads       One thread uses the simulation and all objects opened on it.
// Limits        Each open context, completion channel and event channel holds a file descriptor.
#ifndef SLUICE_TRANSPORT_SOFTDC_SIM_SIMULATION_H_
#define SLUICE_TRANSPORT_SOFTDC_SIM_SIMULATION_H_

#include <infiniband/verbs.h>
#include <netinet/in.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "transport/softdc/sim/activity.h"
#include "transport/softdc/sim/counters.h"
#include "transport/softdc/sim/event_log.h"
#include "transport/softdc/sim/options.h"
#include "transport/verbs/verbs_api.h"

namespace sluice::softdc::cm {
class Engine;
}

namespace sluice::softdc::sim {

class CmNetwork;
class CmProcess;
class SimFabric;

class Simulation {
 public:
  // Creates a simulation. Returns INVALID_ARGUMENT with the name of the invalid option.
  static absl::StatusOr<std::unique_ptr<Simulation>> Create(const Options& options);
  ~Simulation();
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  // Returns the table of functions for all simulations. get_device_list and the rdma_* calls that name no
  // device act for the node that As has selected for the calling thread.
  static const verbs::VerbsApi& Verbs();

  // Makes the calling thread act for a node until the end of the scope. Can be nested.
  class As {
   public:
    As(Simulation& simulation, uint32_t node);
    ~As();
    As(const As&) = delete;
    As& operator=(const As&) = delete;

   private:
    Simulation* const before_;
    const uint32_t node_before_;
  };

  // For Verbs(): returns the RDMA_CM engine of the present process of the node.
  cm::Engine& CmEngine(uint32_t node);

  uint32_t nodes() const;
  ibv_device* Device(uint32_t node);
  // Returns whether device lists contain the device.
  bool IsPlugged(uint32_t node) const;
  // Return the initial GID 0 and IPv4 address (network byte order) of the node.
  static ibv_gid Gid(uint32_t node);
  static in_addr Address(uint32_t node);

  // --- Time ---
  int64_t NowNs() const;
  // Runs the next event. Returns false if no event is pending.
  bool Step();
  // Runs all events that are due within `ns`. The clock is at the end of that time afterwards.
  void RunFor(int64_t ns);
  // Runs events until `done` returns true. `done` is called before the first event and after each event.
  // Returns false if no event is pending, or the next event is later than `limit_ns` of virtual time.
  bool RunUntil(const std::function<bool()>& done, int64_t limit_ns);
  // Runs `task` after `delay_ns`, as a separate step. Returns the id of the timer, which is never 0.
  uint64_t After(int64_t delay_ns, std::function<void()> task);
  bool Cancel(uint64_t timer);

  // Sets the observer. Null: none.
  void SetObserver(Observer* observer);

  // --- Faults in addition to the fault plan ---
  void Kill(uint32_t node);
  void Revive(uint32_t node);
  void Pause(uint32_t node);
  void Resume(uint32_t node);
  void CutLink(uint32_t a, uint32_t b);
  void HealLink(uint32_t a, uint32_t b);
  void PortDown(uint32_t node);
  void PortUp(uint32_t node);
  void DeviceFatal(uint32_t node);
  void Unplug(uint32_t node);
  void Plug(uint32_t node);
  void ChangeAddress(uint32_t node);
  void Do(Happening what, uint32_t node, uint32_t peer = 0);
  // Changes an entry of the GID table and raises IBV_EVENT_GID_CHANGE. Existing address handles keep their
  // path.
  void SetGid(uint32_t node, uint32_t index, const ibv_gid& gid);
  // Makes the queue stay in RTS and do nothing until it is reset.
  void MakeDciDeadInRts(const ibv_qp* qp);
  // Does the same for a DCI or RC queue pair of the node that is in RTS. `which` is its index, the oldest
  // first. Returns false if the node has fewer.
  bool MakeDciDeadInRts(uint32_t node, uint32_t which);
  // Adds a rule, as in FaultPlan::requests. Aborts the process if the rule is invalid.
  void FailNext(const RequestRule& rule);
  // Returns whether a rule that names both nodes is not used up, or its failure has not been reported yet.
  bool HasRule(uint32_t node, uint32_t peer) const;
  MessageFaults& message_faults();
  CmFaults& cm_faults();

  const EventLog& log() const;
  const Counters& counters() const;
  uint64_t events() const;  // number of events that the clock has run

 private:
  explicit Simulation(const Options& options);
  void EndLife(uint32_t node);
  void KillDevice(uint32_t node);

  std::shared_ptr<SimFabric> fabric_;
  std::unique_ptr<CmNetwork> cm_network_;
  std::vector<std::unique_ptr<CmProcess>> cm_;          // by node; null until used
  std::vector<std::unique_ptr<CmProcess>> cm_of_dead_;  // their ids may still be in use
};

}  // namespace sluice::softdc::sim

#endif  // SLUICE_TRANSPORT_SOFTDC_SIM_SIMULATION_H_
