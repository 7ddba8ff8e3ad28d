// SPDX-License-Identifier: Apache-2.0
#include <infiniband/verbs.h>
#include <sys/mman.h>

#include "gtest/gtest.h"
#include "tests/transport/softdc/dc_node.h"
#include "transport/softdc/loop/loop.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace {

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

}  // namespace
}  // namespace sluice::softdc
