// SPDX-License-Identifier: Apache-2.0
//
// A receiver is killed: what its senders see.
#include "gtest/gtest.h"
#include "tests/transport/softdc/dc_child.h"
#include "tests/transport/softdc/dc_node.h"

namespace sluice::softdc {
namespace receiver_death_test {

TEST(ProcessDeath, KilledReceiverGivesRetryErrorsAndOthersAreReached) {
  Child child(&Receiver), other(&Receiver);
  const DcAddress dead = child.Get<DcAddress>(), alive = other.Get<DcAddress>();
  DcNode a;
  ASSERT_EQ(a.Send(dead, "x", 1, 1), 0);
  ASSERT_EQ(a.PollSend().status, IBV_WC_SUCCESS);
  child.Kill();
  // A send may still find the dead one's queue; once its death is known, there is no response.
  ibv_wc wc{};
  for (uint64_t i = 0; i < 1'000'000 && wc.status == IBV_WC_SUCCESS; ++i) {
    ASSERT_EQ(a.Send(dead, "x", 2, 1), 0);
    wc = a.PollSend();
  }
  EXPECT_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
  ASSERT_EQ(a.Send(alive, "x", 3, 2), 0);
  EXPECT_EQ(a.PollSend().status, IBV_WC_SUCCESS);
}

}  // namespace receiver_death_test
}  // namespace sluice::softdc
