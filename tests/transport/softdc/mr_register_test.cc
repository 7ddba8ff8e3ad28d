// SPDX-License-Identifier: Apache-2.0
#include <infiniband/verbs.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "gtest/gtest.h"
#include "tests/transport/softdc/dc_node.h"
#include "transport/softdc/loop/loop.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace mr_register_test {

// The queue is the poster's from wr_start on; the firmware thread, which moves the memory, must not
// wait for it.
TEST(MrRegister, BetweenWrStartAndWrCompleteOfAQueueThatTheFirmwareWants) {
  constexpr size_t kBytes = 1 << 16;
  constexpr int kTurns = 1000;  // some of them come after the retry timer
  DcNode a, b({.receives = 0});
  ASSERT_EQ(a.Send(b.Address(), "waits for a receive", 1), 0);
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  ibv_wr_start(a.dci_ex);
  for (int i = 0; i < kTurns; ++i) Loop::Get().RunAndWait([] {});
  ibv_mr* mr = RegMr(a.pd, memory, kBytes, IBV_ACCESS_LOCAL_WRITE);
  EXPECT_NE(mr, nullptr);
  EXPECT_EQ(DeregMr(mr), 0);
  ibv_wr_abort(a.dci_ex);
  b.PostReceives(1);
  EXPECT_EQ(a.PollSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(b.ReceivedText(b.PollReceive()), "waits for a receive");
  munmap(memory, kBytes);
}

// Paged on demand: what is mapped when a peer comes counts, not what was when it was registered.
TEST(MrRegister, OnDemandFollowsTheMapping) {
  constexpr size_t kBytes = 4096;
  DcNode a({.log_errored_streams = 4}), b;
  const auto map = [](void* at, int flags) {
    return mmap(at, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  };
  void* memory = map(nullptr, 0);
  ASSERT_NE(memory, MAP_FAILED);
  ibv_mr* mr = RegMr(b.pd, memory, kBytes,
                     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ON_DEMAND);
  ASSERT_NE(mr, nullptr);
  ASSERT_EQ(map(memory, MAP_FIXED), memory);  // other pages
  DcAddress to = b.Address();
  const auto write = [&](uint16_t stream) {
    a.dci_ex->wr_id = stream;
    a.dci_ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_start(a.dci_ex);
    ibv_wr_rdma_write(a.dci_ex, mr->rkey, reinterpret_cast<uint64_t>(memory));
    ibv_wr_set_inline_data(a.dci_ex, const_cast<char*>("on demand"), 9);
    mlx5dv_wr_set_dc_addr_stream(a.dci_dv, a.ah, to.dctn, to.dc_key, stream);
    EXPECT_EQ(ibv_wr_complete(a.dci_ex), 0);
    return a.PollSend().status;
  };
  EXPECT_EQ(write(1), IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(memory, "on demand", 9), 0);
  ibv_sge sge{.addr = reinterpret_cast<uint64_t>(memory), .length = kBytes, .lkey = mr->lkey};
  EXPECT_EQ(ibv_advise_mr(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0, &sge, 1), 0);
  sge.lkey = b.mr->lkey;
  sge.addr = reinterpret_cast<uint64_t>(b.slab);
  EXPECT_EQ(ibv_advise_mr(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1), EINVAL);
  sge.lkey = 0;
  EXPECT_EQ(ibv_advise_mr(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1), ENOENT);
  munmap(memory, kBytes);
  EXPECT_NE(write(2), IBV_WC_SUCCESS);
  EXPECT_EQ(DeregMr(mr), 0);
}

TEST(MrRegister, AccessAndWindowTypesThatVerbsDoNotHaveAreRefused) {
  DcNode node;
  errno = 0;
  EXPECT_EQ(RegMr(node.pd, node.slab, 64, IBV_ACCESS_REMOTE_WRITE), nullptr);
  EXPECT_EQ(errno, EINVAL) << "remote rights to write need the local one";
  errno = 0;
  EXPECT_EQ(AllocMw(node.pd, static_cast<ibv_mw_type>(3)), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

}  // namespace mr_register_test
}  // namespace sluice::softdc
