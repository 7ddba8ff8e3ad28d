// SPDX-License-Identifier: Apache-2.0
//
// RawPeer: a DCI that does what it likes with the DCT of a mover whose number and key it knows.
#ifndef SLUICE_TESTS_TRANSPORT_ONESIDED_RAW_PEER_H_
#define SLUICE_TESTS_TRANSPORT_ONESIDED_RAW_PEER_H_

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "tests/transport/onesided/movers.h"
#include "transport/onesided/address.h"
#include "transport/onesided/word.h"
#include "transport/verbs/handles.h"

namespace sluice::onesided {

class RawPeer {
 public:
  static constexpr uint32_t kDepth = 256;

  RawPeer(Movers& movers, uint32_t node, const Address& to)
      : movers_(movers), node_(node), to_(to) {
    const auto as = As();
    device::Device& device = *movers[node].device;
    const verbs::VerbsApi& api = device.api();
    cq_ = verbs::CreateCq(api, device.context(), kDepth, nullptr).value();
    dci_ = verbs::CreateDci(api, device.context(), device.pd(), cq_.get(), {.send_depth = kDepth})
               .value();
    EXPECT_TRUE(verbs::ActivateDci(api, dci_.get(), device.path()).ok());
    ibv_ah_attr attr = {};
    attr.is_global = 1;
    attr.port_num = device.path().port;
    attr.grh.sgid_index = device.path().sgid_index;
    std::memcpy(attr.grh.dgid.raw, to.gid.data(), to.gid.size());
    handle_ = {&api, api.create_ah(device.pd(), &attr)};
  }
  ~RawPeer() {
    const auto as = As();
    dci_.qp.reset();
    handle_.reset();
    cq_.reset();
  }

  // A word; its bytes are whatever is in the memory of the node.
  void Say(const Head& head) {
    std::byte* const bytes = movers_[node_].memory.data() + (posted_ % kDepth) * kHeadBytes;
    Store(head, bytes);
    Post(kHeadBytes, bytes, [](ibv_qp_ex* qp) { ibv_wr_send(qp); });
  }
  // Into the memory of that node.
  void Write(uint32_t node, uint32_t bytes) {
    const memory::Slab& there = movers_[node].memory;
    Post(bytes, movers_[node_].memory.data(), [&](ibv_qp_ex* qp) {
      ibv_wr_rdma_write(qp, there.rkey(), reinterpret_cast<uint64_t>(there.data()));
    });
  }
  void WriteWithImmediate(uint32_t node, uint32_t bytes) {
    const memory::Slab& there = movers_[node].memory;
    Post(bytes, movers_[node_].memory.data(), [&](ibv_qp_ex* qp) {
      ibv_wr_rdma_write_imm(qp, there.rkey(), reinterpret_cast<uint64_t>(there.data()), 7);
    });
  }
  // True, for conditions.
  bool Poll() {
    const auto as = As();
    ibv_wc completion;
    while (ibv_poll_cq(cq_.get(), 1, &completion) == 1) statuses_.push_back(completion.status);
    return true;
  }
  // How what was posted has ended, in order.
  const std::vector<ibv_wc_status>& statuses() const { return statuses_; }
  bool done() { return Poll() && statuses_.size() == posted_; }

 private:
  Movers::Simulation::As As() const { return {*movers_.simulation, node_}; }
  void Post(uint32_t bytes, const std::byte* from,
            const std::function<void(ibv_qp_ex*)>& operation) {
    const auto as = As();
    ibv_wr_start(dci_.ex);
    dci_.ex->wr_flags = IBV_SEND_SIGNALED;
    operation(dci_.ex);
    ibv_wr_set_sge(dci_.ex, movers_[node_].memory.lkey(), reinterpret_cast<uint64_t>(from), bytes);
    mlx5dv_wr_set_dc_addr(dci_.dv, handle_.get(), to_.dctn, to_.access_key);
    EXPECT_EQ(ibv_wr_complete(dci_.ex), 0);
    ++posted_;
  }

  Movers& movers_;
  const uint32_t node_;
  const Address to_;
  verbs::Cq cq_;
  verbs::Qp dci_;
  verbs::Ah handle_;
  size_t posted_ = 0;
  std::vector<ibv_wc_status> statuses_;
};

}  // namespace sluice::onesided

#endif  // SLUICE_TESTS_TRANSPORT_ONESIDED_RAW_PEER_H_
