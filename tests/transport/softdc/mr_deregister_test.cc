// SPDX-License-Identifier: Apache-2.0
//
// Deregistered memory is not written to any more: not by requests that name its key, not by
// receives that were posted with it, not by copies that were under way.
#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "gtest/gtest.h"
#include "tests/transport/softdc/dc_node.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace mr_deregister_test {

constexpr size_t kAt = DcNode::kSendAreaOffset;
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

TEST(Deregister, ReceivePostedWithItsKeyFailsAtBothEnds) {
  DcNode a, b({.receives = 0});
  ibv_mr* mr = RegMr(b.pd, b.slab + kAt, 64, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(mr, nullptr);
  ibv_sge sge{.addr = reinterpret_cast<uint64_t>(mr->addr), .length = 64, .lkey = mr->lkey};
  ibv_recv_wr wr{.wr_id = 5, .next = nullptr, .sg_list = &sge, .num_sge = 1}, *bad = nullptr;
  ASSERT_EQ(ibv_post_srq_recv(b.srq, &wr, &bad), 0);
  ASSERT_EQ(DeregMr(mr), 0);
  ASSERT_EQ(a.Send(b.Address(), "too late", 1, 1), 0);
  EXPECT_EQ(a.PollSend().status, IBV_WC_REM_OP_ERR);
  const ibv_wc wc = b.PollReceive();
  EXPECT_EQ(wc.wr_id, 5u);
  EXPECT_EQ(wc.status, IBV_WC_LOC_PROT_ERR);
  EXPECT_NE(std::memcmp(b.slab + kAt, "too late", 8), 0);
}

TEST(Deregister, ReregistrationGivesNewKeysAndRights) {
  DcNode a, b;
  ibv_mr* mr = RegMr(b.pd, b.slab + kAt, 64, kAccess);
  ASSERT_NE(mr, nullptr);
  const uint32_t old_key = mr->rkey;
  ASSERT_EQ(ReregMr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, b.slab + kAt + 64, 128, 0), 0);
  EXPECT_EQ(mr->length, 128u);
  ASSERT_EQ(a.Write(b.Address(), kAt, "old", 1, /*stream=*/1, old_key), 0);
  EXPECT_EQ(a.PollSend().status, IBV_WC_REM_ACCESS_ERR);
  ASSERT_EQ(a.Write(b.Address(), kAt + 64, "new", 2, /*stream=*/2, mr->rkey), 0);
  EXPECT_EQ(a.PollSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(b.slab + kAt + 64, "new", 3), 0);
  ASSERT_EQ(ReregMr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_LOCAL_WRITE),
            0);
  ASSERT_EQ(a.Write(b.Address(), kAt + 64, "no", 3, /*stream=*/3, mr->rkey), 0);
  EXPECT_EQ(a.PollSend().status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(DeregMr(mr), 0);
}

// As on mlx5: what was exchanged with peers and posted in WQEs goes on working.
TEST(Deregister, ReregistrationOfRightsOrDomainKeepsTheKeys) {
  DcNode a({.log_errored_streams = 4}), b;
  ibv_mr* mr = RegMr(b.pd, b.slab + kAt, 64, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(mr, nullptr);
  const uint32_t lkey = mr->lkey, rkey = mr->rkey;
  const auto write = [&](uint16_t stream) {
    EXPECT_EQ(a.Write(b.Address(), kAt, "rights", stream, stream, rkey), 0);
    return a.PollSend().status;
  };
  EXPECT_EQ(write(1), IBV_WC_REM_ACCESS_ERR);
  ASSERT_EQ(ReregMr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE),
            0);
  EXPECT_EQ(write(2), IBV_WC_SUCCESS);
  ibv_pd* other = AllocPd(b.context);
  ASSERT_EQ(ReregMr(mr, IBV_REREG_MR_CHANGE_PD, other, nullptr, 0, 0), 0);
  EXPECT_EQ(mr->pd, other);
  EXPECT_EQ(DeallocPd(other), EBUSY);
  EXPECT_EQ(write(3), IBV_WC_REM_ACCESS_ERR);
  ASSERT_EQ(ReregMr(mr, IBV_REREG_MR_CHANGE_PD, b.pd, nullptr, 0, 0), 0);
  EXPECT_EQ(DeallocPd(other), 0);
  EXPECT_EQ(write(4), IBV_WC_SUCCESS);
  EXPECT_EQ(mr->lkey, lkey);
  EXPECT_EQ(mr->rkey, rkey);
  // Atomics take a new key.
  ASSERT_EQ(ReregMr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                    kAccess | IBV_ACCESS_REMOTE_ATOMIC),
            0);
  EXPECT_NE(mr->rkey, rkey);
  EXPECT_EQ(DeregMr(mr), 0);
}

TEST(Deregister, ReregistrationThatIsRefusedChangesNothing) {
  DcNode a({.log_errored_streams = 4}), b;
  ibv_mr* mr = RegMr(b.pd, b.slab + kAt, 64, kAccess);
  ASSERT_NE(mr, nullptr);
  errno = 0;
  EXPECT_EQ(ReregMr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_REMOTE_WRITE),
            IBV_REREG_MR_ERR_CMD);
  EXPECT_EQ(errno, EINVAL);
  ASSERT_EQ(a.Write(b.Address(), kAt, "as before", 1, 1, mr->rkey), 0);
  EXPECT_EQ(a.PollSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(DeregMr(mr), 0);
}

// One thread writes into a region again and again, the other takes the region away: from the return
// of ibv_dereg_mr on its bytes stay as they are.
TEST(Deregister, NothingLandsAfterItHasReturned) {
  constexpr size_t kBytes = 128 << 10;
  constexpr int kRounds = 50;
  DcNode a({.log_errored_streams = 4}), b;
  std::byte* const target = b.slab + kAt;
  for (int round = 0; round < kRounds; ++round) {
    ibv_mr* mr = RegMr(b.pd, target, kBytes, kAccess);
    ASSERT_NE(mr, nullptr);
    DcAddress to = b.Address();
    to.rkey = mr->rkey;
    std::atomic<bool> writing{false};
    std::thread writer([&] {
      for (ibv_wc wc{}; wc.status == IBV_WC_SUCCESS;) {
        std::memset(a.slab + kAt, round + 1, kBytes);
        a.dci_ex->wr_id = 1;
        a.dci_ex->wr_flags = IBV_SEND_SIGNALED;
        ibv_wr_start(a.dci_ex);
        ibv_wr_rdma_write(a.dci_ex, to.rkey, reinterpret_cast<uint64_t>(target));
        ibv_wr_set_sge(a.dci_ex, a.mr->lkey, reinterpret_cast<uint64_t>(a.slab + kAt), kBytes);
        mlx5dv_wr_set_dc_addr_stream(a.dci_dv, a.ah, to.dctn, to.dc_key,
                                     static_cast<uint16_t>(round));
        ASSERT_EQ(ibv_wr_complete(a.dci_ex), 0);
        wc = a.PollSend();
        writing.store(true);
      }
    });
    while (!writing.load()) {
    }
    ASSERT_EQ(DeregMr(mr), 0);
    std::memset(target, 0, kBytes);
    writer.join();
    size_t landed = 0;
    for (size_t i = 0; i < kBytes; ++i) landed += target[i] != std::byte{0};
    ASSERT_EQ(landed, 0u) << "round " << round;
    a.Recover();
  }
}

}  // namespace mr_deregister_test
}  // namespace sluice::softdc
