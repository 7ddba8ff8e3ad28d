// SPDX-License-Identifier: Apache-2.0
//
// Programs that sleep on one channel for both CQs count on the event of their own completion before
// that of the reply: on a NIC the acknowledgement comes first.
#include <gtest/gtest.h>

#include "tests/transport/softdc/dc_node.h"
#include "transport/softdc/shm/kill_point.h"

namespace sluice::softdc {
namespace {

DcNode* sender = nullptr;
int completions_at_the_bell = -1;

void LookAtTheBell(shm::KillPoint point) {
  if (point != shm::KillPoint::kBellRung) return;
  ibv_wc wc;
  completions_at_the_bell = ibv_poll_cq(sender->send_cq, 1, &wc);
}

class BellOrderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    sender = &a_;
    completions_at_the_bell = -1;
    // So that links exist, and the hook sees one bell only.
    ASSERT_EQ(a_.Send(b_.Address(), "first", 1), 0);
    a_.PollSend();
    b_.PollReceive();
    ASSERT_EQ(ibv_req_notify_cq(b_.receive_cq, 0), 0);
    shm::kill_point_hook = &LookAtTheBell;
  }
  void TearDown() override { shm::kill_point_hook = nullptr; }

  DcNode a_;
  DcNode b_{{.channel = true}};
};

TEST_F(BellOrderTest, SendCompletesBeforeTheReceiverIsWoken) {
  ASSERT_EQ(a_.Send(b_.Address(), "second", 2), 0);
  EXPECT_EQ(completions_at_the_bell, 1);
}

TEST_F(BellOrderTest, WriteImmCompletesBeforeTheReceiverIsWoken) {
  ASSERT_EQ(a_.WriteImm(b_.Address(), DcNode::kSendAreaOffset, "second", 5, 2), 0);
  EXPECT_EQ(completions_at_the_bell, 1);
}

}  // namespace
}  // namespace sluice::softdc
