// SPDX-License-Identifier: Apache-2.0
//
// Node: one host of a run: its process, whole (device, endpoint, sessions, program), and when that process looks at what
// has come. No process polls without need: the simulation reports the hosts that have something to look at.
//
//   awake: a completion -> a look, poll_delay later   nothing for nap_ns -> asleep, as PrepareToSleep() says it
//   asleep: a completion, an event, a timer -> awake; bytes that are written into memory are not seen
#ifndef SLUICE_TESTS_SIMULATION_NODE_H_
#define SLUICE_TESTS_SIMULATION_NODE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "middleware/session/sessions.h"
#include "tests/simulation/app.h"
#include "tests/simulation/scene.h"
#include "tests/transport/cm/sim_commands.h"
#include "transport/base/random.h"
#include "transport/device/device.h"
#include "transport/endpoint/create.h"
#include "transport/softdc/sim/activity.h"

namespace sluice::simulation {

// Of all processes of a run.
struct Totals {
  uint64_t duplicates = 0;
  uint64_t sent_again = 0;
  uint64_t stream_resets = 0;
  uint64_t recoveries = 0;
  uint64_t failures = 0;
  uint64_t probes = 0;
};

class Node {
 public:
  Node(Scene& scene, uint32_t index) : scene_(scene), index_(index) {}
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // A new process, which listens; its device is there.
  void Start();
  // The process is dead; its remains are freed when nothing of them waits any more.
  void Bury();
  // Likewise, and a fault that ends later does not start another one.
  void End();
  // The process that was buried had not been killed: its listener must be gone first.
  void StartAgain();
  void Stall(int64_t until_ns);
  void OnActivity(softdc::sim::Activity what);

  bool running() const { return process_ != nullptr; }
  // Of the process that runs.
  void Act(const std::function<void(App&)>& act);
  session::Sessions& sessions() { return process_->sessions; }
  endpoint::Endpoint& endpoint() { return *process_->endpoint; }
  // All processes are gone, and their memory.
  bool empty() const { return process_ == nullptr && remains_.empty(); }
  const Totals& totals() const { return totals_; }
  uint64_t looks() const { return looks_; }
  uint32_t life() const { return life_; }

 private:
  struct Process {
    Process(Scene& scene, Node& node, uint32_t life);

    cm::SimClock clock;
    base::SeededRandom random;
    cm::SimCommands commands;
    App app;
    session::Sessions sessions;
    std::unique_ptr<device::Device> device;
    std::unique_ptr<endpoint::Endpoint> endpoint;
  };

  void Schedule(int64_t when_ns);
  void Look();
  void LookDeeper();
  void CheckAttribution();
  void ScheduleNap(int64_t delay_ns);
  void Nap();
  void RunAs(uint32_t life, int64_t delay_ns, std::function<void()> task);
  void Count(Process& process);

  Scene& scene_;
  const uint32_t index_;
  uint32_t life_ = 0;
  std::unique_ptr<Process> process_;
  std::vector<std::unique_ptr<Process>> remains_;
  int64_t stalled_until_ns_ = 0;
  bool asleep_ = false;
  bool look_due_ = false;
  bool looking_ = false;
  bool ended_ = false;
  bool deeper_ = false;  // descriptors and errors too
  bool nap_due_ = false;
  int64_t nap_at_ns_ = 0;
  uint64_t naps_ = 0;  // scheduled so far; only the last one counts
  uint64_t looks_ = 0;
  uint64_t judged_ = 0;  // completions that were told again, of which it is known what became
  uint64_t looks_at_nap_ = 0;
  Totals totals_;
};

}  // namespace sluice::simulation

#endif  // SLUICE_TESTS_SIMULATION_NODE_H_
