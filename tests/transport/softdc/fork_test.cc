// SPDX-License-Identifier: Apache-2.0
//
// A program that forks while it has the device open.
#include "gtest/gtest.h"
#include "tests/transport/softdc/dc_child.h"
#include "tests/transport/softdc/dc_node.h"

namespace sluice::softdc {
namespace fork_test {

TEST(Fork, ParentGoesOnAndTheChildOpensADeviceOfItsOwn) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a process with threads must not fork there";
#endif
  DcNode a, b;
  ASSERT_EQ(a.Send(b.Address(), "before", 1, 1), 0);
  ASSERT_EQ(a.PollSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(b.ReceivedText(b.PollReceive()), "before");
  Child child(&Receiver);
  const DcAddress in_child = child.Get<DcAddress>();
  EXPECT_NE(in_child.dctn, b.Address().dctn);
  ASSERT_EQ(a.Send(in_child, "to the child", 2, 2), 0);
  EXPECT_EQ(a.PollSend().status, IBV_WC_SUCCESS);
  ASSERT_EQ(a.Send(b.Address(), "beside it", 3, 1), 0);
  EXPECT_EQ(a.PollSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(b.ReceivedText(b.PollReceive()), "beside it");
  // What the child inherited dies with it without anybody noticing.
  child.Kill();
  ASSERT_EQ(b.Send(a.Address(), "after", 4, 1), 0);
  EXPECT_EQ(b.PollSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(a.ReceivedText(a.PollReceive()), "after");
}

}  // namespace fork_test
}  // namespace sluice::softdc
