// SPDX-License-Identifier: Apache-2.0
//
// A block of numbers that one context gave back and another has taken, seen by a sender that is still
// connected to the first.
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/softdc/dc_node.h"
#include "transport/softdc/model/context.h"
#include "transport/softdc/shm/number_space.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace returned_block_test {

TEST(ReturnedBlock, IsFoundAtItsNewOwnerBySendersStillConnectedToTheOld) {
  constexpr uint64_t kKey = 77;
  DcNode sender, first;
  FabricPort& numbers = Context::From(first.context)->port();
  // The first number of a new block goes to a DCT, all others of it are used up.
  while (numbers.AllocateNumber() % kNumbersPerBlock != kNumbersPerBlock - 1) {
  }
  ibv_qp* dct = first.MakeDct(first.receive_cq, first.srq, kKey);
  ASSERT_NE(dct, nullptr);
  const uint32_t number = dct->qp_num;
  ASSERT_EQ(number % kNumbersPerBlock, 0u);
  std::vector<uint32_t> others;
  do {
    others.push_back(numbers.AllocateNumber());
  } while (others.back() % kNumbersPerBlock != kNumbersPerBlock - 1);
  DcAddress old_target = first.Address();
  old_target.dctn = number;
  old_target.dc_key = kKey;
  ASSERT_EQ(sender.Send(old_target, "to the first", 1), 0);
  ASSERT_EQ(sender.PollSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(first.ReceivedText(first.PollReceive()), "to the first");
  // The block comes back whole.
  EXPECT_EQ(DestroyQp(dct), 0);
  for (const uint32_t other : others) EXPECT_TRUE(numbers.FreeNumber(other));

  DcNode second;
  ASSERT_EQ(second.dct->qp_num, number) << "the lowest free block is taken first";
  ASSERT_EQ(sender.Send(second.Address(), "to the second", 2), 0);
  ASSERT_EQ(sender.PollSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(second.ReceivedText(second.PollReceive()), "to the second");
  // The first is still reached by what it has left.
  ASSERT_EQ(sender.Send(first.Address(), "still there", 3), 0);
  ASSERT_EQ(sender.PollSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(first.ReceivedText(first.PollReceive()), "still there");
}

}  // namespace returned_block_test
}  // namespace sluice::softdc
