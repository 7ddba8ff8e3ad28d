// SPDX-License-Identifier: Apache-2.0
//
// Plan: all that a run depends on, drawn from its seed: hosts, processes, options, what programs do, and what goes wrong.
#ifndef SLUICE_TESTS_NODES_PLAN_H_
#define SLUICE_TESTS_NODES_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/hostile/host.h"
#include "tests/simulation/fault.h"
#include "transport/endpoint/create.h"
#include "transport/softdc/sim/options.h"

namespace sluice::nodes {

// What programs do on purpose.
struct Habits {
  int64_t period_ns = 0;         // between two calls of a client
  uint32_t attachments_ppm = 0;  // of unary calls
  uint32_t large_bytes = 0;      // 0: no message is larger than a slot
  uint32_t short_deadline_ppm = 0;
  uint32_t cancel_ppm = 0;        // of calls, some time after they begin
  uint32_t cancel_first_ppm = 0;  // of calls, before they are started
  uint32_t stream_ppm = 0;
  uint32_t refuse_ppm = 0;  // by the interceptor
  uint32_t fail_ppm = 0;    // by their handlers
  uint32_t nested_ppm = 0;  // of ends of calls: something is done inside the callback
  uint32_t leave_ppm = 0;   // of upcalls: the peer is disconnected inside
};

struct Happening {
  enum class What : uint8_t {
    kFault,
    kCloseClient,  // its engine is destroyed between two passes, and a new one made
    kCloseServer,
    kDrain,    // and then closed
    kServers,  // a client is told of other servers
  };
  What what = What::kFault;
  int64_t at_ns = 0;
  uint32_t which = 0;  // process
  simulation::Fault fault;
};

struct Plan {
  uint64_t seed = 0;
  uint32_t servers = 1;  // hosts
  uint32_t pollers = 1;  // endpoints of each server
  uint32_t clients = 1;
  softdc::sim::Options network;
  endpoint::Options endpoint;
  uint32_t client_credits = 0;
  uint32_t max_waiting_replies = 0;
  uint32_t attempts = 1;
  std::vector<hostile::Loop> loops;  // of each process: servers first
  Habits habits;
  int64_t work_ns = 0;
  std::vector<Happening> happenings;  // by at_ns

  bool tenants() const { return !endpoint.tenants.empty(); }
  bool has_faults = false;
  // Somebody may lose a connection, or find none.
  bool disruptive = false;
};

struct PlanOptions {
  uint64_t seed = 1;
  bool rc = false;  // devices have no DC
  // Not 0: this share of the messages and of their acknowledgements is lost, and nothing else is in the way of a call: each succeeds.
  uint32_t loss_ppm = 0;
  bool unary = false;  // unary calls of small messages only, which take the least time
  int64_t work_ns = 10 * hostile::kMs;  // time in which clients start calls
};

Plan MakePlan(const PlanOptions& options);
inline Plan MakePlan(uint64_t seed) { return MakePlan(PlanOptions{.seed = seed}); }
std::string ToString(const Plan& plan);

inline constexpr char kSecret[] = "a secret that both sides share";
inline constexpr char kOtherSecret[] = "a secret of the other tenant's";

}  // namespace sluice::nodes

#endif  // SLUICE_TESTS_NODES_PLAN_H_
