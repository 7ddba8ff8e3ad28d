// SPDX-License-Identifier: Apache-2.0
//
// RunPlan: whole processes with call engines, on simulated hosts; and what the oracle says.
//
// Oracle
//   no crash        the sanitizers' and the assertions'
//   ends            each call ends once, by its deadline, with its own bytes or with an error that the plan explains
//   runs            no handler runs twice for a call, unless its method is idempotent
//   streams         each message once, in order, all of them if the stream ends with OK
//   interceptors    each call that was let in leaves once, with a caller that is still there
//   contract        what endpoints tell their users (tests/hostile/victim.h)
//   rest            when all is over nothing is left: no call, task, peer, queue pair number, address handle, lent memory;
//                   a client that comes then has all its credits
// The same plan is the same run.
#ifndef SLUICE_TESTS_NODES_RUN_H_
#define SLUICE_TESTS_NODES_RUN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/nodes/plan.h"

namespace sluice::nodes {

struct Result {
  std::vector<std::string> violations;
  uint64_t calls = 0;  // that ended
  uint64_t ok = 0;
  uint64_t runs = 0;  // of handlers
  uint64_t happened = 0;
  int64_t virtual_ns = 0;
  uint64_t digest = 0;  // of the network's events

  bool succeeded() const { return violations.empty(); }
};

Result RunPlan(const Plan& plan);
std::string ToString(const Plan& plan, const Result& result);

}  // namespace sluice::nodes

#endif  // SLUICE_TESTS_NODES_RUN_H_
