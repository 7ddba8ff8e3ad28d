// SPDX-License-Identifier: Apache-2.0
//
// SimNode: a small DC program on a simulated host: a DCI, a DCT, their SRQ and CQs and one registered
// slab, made with the plainest calls through Simulation's table. A call that fails ends the process
// with its name: no test continues without it.
#ifndef SLUICE_TESTS_TRANSPORT_SOFTDC_SIM_SIM_NODE_H_
#define SLUICE_TESTS_TRANSPORT_SOFTDC_SIM_SIM_NODE_H_

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "transport/softdc/sim/simulation.h"

namespace sluice::softdc::sim {

struct SimNodeOptions {
  uint32_t receives = 64;        // posted at the start
  uint32_t receive_bytes = 256;  // each
  uint32_t send_wr = 64;
  int cqe = 256;
  bool streams = true;
  uint8_t log_streams = 3;
  uint8_t log_errored_streams = 2;
  uint8_t timeout = 8;  // 1 ms
  uint8_t retry_count = 2;
  uint8_t rnr_retry = 7;
  uint8_t min_rnr_timer = 1;  // 10 us
  uint8_t reads = 1;          // under way at a time
  size_t slab_bytes = 1 << 18;
  bool signalled = true;
};

inline constexpr uint64_t kDcKey = 0x5eed;
inline constexpr int64_t kTimeoutNs = 4096ll << 8;  // SimNodeOptions::timeout
inline constexpr size_t kArea = 128 << 10;          // of a slab, above the receives

class SimNode {
 public:
  SimNode(Simulation& simulation, uint32_t node, const SimNodeOptions& options = {});
  ~SimNode();
  SimNode(const SimNode&) = delete;
  SimNode& operator=(const SimNode&) = delete;

  uint32_t index() const { return node_; }
  void PostReceives(uint32_t count);

  // Post one WR each; what ibv_wr_complete says.
  int Send(const SimNode& to, const std::string& text, uint64_t wr_id, uint16_t stream = 0);
  int SendBytes(const SimNode& to, size_t from_offset, uint32_t length_bytes, uint64_t wr_id,
                uint16_t stream = 0);
  int Write(const SimNode& to, size_t to_offset, size_t from_offset, uint32_t length_bytes,
            uint64_t wr_id, uint16_t stream = 0, uint32_t rkey = 0);
  int Read(const SimNode& from, size_t from_offset, size_t to_offset, uint32_t length_bytes,
           uint64_t wr_id, uint16_t stream = 0);
  int FetchAdd(const SimNode& to, size_t offset, size_t result_offset, uint64_t add,
               uint64_t wr_id);

  // Runs the simulation until there is a completion; a status of -1 when none comes within
  // `limit_ns`.
  ibv_wc Await(ibv_cq* cq, int64_t limit_ns = 60'000'000'000);
  ibv_wc AwaitSend(int64_t limit_ns = 60'000'000'000) { return Await(send_cq, limit_ns); }
  ibv_wc AwaitReceive(int64_t limit_ns = 60'000'000'000) { return Await(receive_cq, limit_ns); }
  std::string Text(const ibv_wc& wc) const;  // what was received
  ibv_qp_state State();
  void ToReadyToSend();  // from RESET
  void Recover();        // RESET, INIT, RTR, RTS
  ibv_ah* HandleFor(uint32_t node);

  Simulation& simulation;
  const verbs::VerbsApi& api = Simulation::Verbs();
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* send_cq = nullptr;
  ibv_cq* receive_cq = nullptr;
  ibv_srq* srq = nullptr;
  ibv_qp* dci = nullptr;
  ibv_qp_ex* dci_ex = nullptr;
  mlx5dv_qp_ex* dci_dv = nullptr;
  ibv_qp* dct = nullptr;
  ibv_mr* mr = nullptr;
  std::vector<std::byte> slab;

 private:
  void CreateDct();
  void CreateDci();
  void Start(uint64_t wr_id);
  int Finish(const SimNode& to, uint16_t stream);

  const uint32_t node_;
  const SimNodeOptions options_;
  uint64_t next_receive_ = 0;
  std::map<uint32_t, ibv_ah*> handles_;
};

}  // namespace sluice::softdc::sim

#endif  // SLUICE_TESTS_TRANSPORT_SOFTDC_SIM_SIM_NODE_H_
