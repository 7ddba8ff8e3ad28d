// SPDX-License-Identifier: Apache-2.0
//
// A target that is destroyed, with its queues and its memory, after a request was found good and before
// the copy: to the sender that is silence, as from a NIC, and no fault of the receive WQE or the key.
#include <gtest/gtest.h>

#include "tests/transport/softdc/dc_node.h"
#include "transport/softdc/shm/kill_point.h"

namespace sluice::softdc {
namespace {

DcNode* target = nullptr;

void DestroyTarget(shm::KillPoint point) {
  if (point == shm::KillPoint::kTargetJudged) target->DestroyTarget();
}

class TargetGoneTest : public ::testing::Test {
 protected:
  void SetUp() override {
    target = &receiver_;
    // So that the link exists, and the target is known.
    ASSERT_EQ(sender_.Send(to_, "first", 1), 0);
    ASSERT_EQ(sender_.PollSend().status, IBV_WC_SUCCESS);
    shm::kill_point_hook = &DestroyTarget;
  }
  void TearDown() override { shm::kill_point_hook = nullptr; }

  DcNode sender_, receiver_;
  const DcAddress to_ = receiver_.Address();
};

TEST_F(TargetGoneTest, SendIsNotAnswered) {
  ASSERT_EQ(sender_.Send(to_, "second", 2), 0);
  EXPECT_EQ(sender_.PollSend().status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(receiver_.dct, nullptr);
}

TEST_F(TargetGoneTest, WriteIsNotAnswered) {
  ASSERT_EQ(sender_.Write(to_, DcNode::kSendAreaOffset, "second", 2), 0);
  EXPECT_EQ(sender_.PollSend().status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(receiver_.dct, nullptr);
}

TEST_F(TargetGoneTest, WriteImmIsNotAnswered) {
  ASSERT_EQ(sender_.WriteImm(to_, DcNode::kSendAreaOffset, "second", 5, 2), 0);
  EXPECT_EQ(sender_.PollSend().status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(receiver_.dct, nullptr);
}

}  // namespace
}  // namespace sluice::softdc
