// SPDX-License-Identifier: Apache-2.0
//
// Witness: stands between the programs of a run and their devices. It judges what they ask of their send queues, where no
// message would ever show that it was wrong, and tells completions a second time when the plan says so.
//
// One at a time in a thread; processes open their devices through Verbs() while it lives.
#ifndef SLUICE_TESTS_SIMULATION_WITNESS_H_
#define SLUICE_TESTS_SIMULATION_WITNESS_H_

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "tests/simulation/ledger.h"
#include "transport/softdc/sim/simulation.h"
#include "transport/verbs/verbs_api.h"

namespace sluice::simulation {

class Witness {
 public:
  // Both outlive it. Errors that are older than `memory_ns` excuse nothing.
  Witness(softdc::sim::Simulation& simulation, Ledger& ledger, int64_t memory_ns);
  ~Witness();
  Witness(const Witness&) = delete;
  Witness& operator=(const Witness&) = delete;

  // The simulation's, watched.
  static const verbs::VerbsApi& Verbs();

  // Queues that are made from now on are trial objects, which may be asked for anything; or are not.
  void SetTrial(bool trial) { trial_ = trial; }
  // A process starts on `node`: what the one before was told does not count. A queue of the new one may have the address of an old one.
  void Begin(uint32_t node);
  // The process on `node` hears that many completions again which it has heard before. False: it has
  // heard none.
  bool RepeatCompletions(uint32_t node, uint32_t count);
  // How many completions the process on `node`, the last that was made there, has heard again.
  uint64_t repeated(uint32_t node) const {
    return of_node_[node] == nullptr ? 0 : completion_queues_.at(of_node_[node]).repeated;
  }

 private:
  struct SendQueue {
    uint32_t node = 0;
    uint32_t budget = 1;  // errored streams that stop it
    const ibv_cq* completions = nullptr;
  };
  struct Error {
    int64_t when_ns;
    uint32_t qp_number;
  };
  // Of send queues.
  struct CompletionQueue {
    uint32_t node = 0;
    uint32_t due = 0;  // to be told again
    uint64_t repeated = 0;
    uint64_t told = 0;
    std::vector<ibv_wc> last;  // told before; a ring
    std::deque<Error> errors;  // requests that failed by themselves, lately
  };

  static ibv_qp* CreateQp(ibv_context* context, ibv_qp_init_attr_ex* attr,
                          mlx5dv_qp_init_attr* dv_attr);
  static ibv_qp* CreateRc(ibv_pd* pd, ibv_qp_init_attr* attr);
  static int DestroyQp(ibv_qp* qp);
  static int DestroyCq(ibv_cq* cq);
  static int ModifyQp(ibv_qp* qp, ibv_qp_attr* attr, int mask);
  static int ResetStream(ibv_qp* qp, uint16_t stream);
  static int PollCq(ibv_cq* cq, int most, ibv_wc* wc);

  uint32_t NodeOf(const ibv_device* device) const;
  // Watches this queue; the node that it is on.
  uint32_t Listen(ibv_context* context, const ibv_cq* completions);
  void OnTold(CompletionQueue& queue, const ibv_wc* wc, int count);
  int Repeat(CompletionQueue& queue, int most, ibv_wc* wc);
  void OnStop(ibv_qp* qp);

  static thread_local Witness* of_thread;

  softdc::sim::Simulation& simulation_;
  Ledger& ledger_;
  const int64_t memory_ns_;
  bool trial_ = false;
  std::unordered_map<const ibv_qp*, SendQueue> send_queues_;
  std::unordered_map<const ibv_cq*, CompletionQueue> completion_queues_;
  std::vector<const ibv_cq*> of_node_;  // the last that was made there
};

}  // namespace sluice::simulation

#endif  // SLUICE_TESTS_SIMULATION_WITNESS_H_
