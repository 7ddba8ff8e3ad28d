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

// One more DCT on what the node has.
ibv_qp* MakeDct(DcNode& node, uint64_t dc_key) {
  ibv_qp_init_attr_ex attr{};
  attr.qp_type = IBV_QPT_DRIVER;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD;
  attr.pd = node.pd;
  attr.send_cq = attr.recv_cq = node.receive_cq;
  attr.srq = node.srq;
  mlx5dv_qp_init_attr dv{};
  dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
  dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT;
  dv.dc_init_attr.dct_access_key = dc_key;
  ibv_qp* dct = DvCreateQp(node.context, &attr, &dv);
  if (dct == nullptr) return nullptr;
  ibv_qp_attr modify{};
  modify.qp_state = IBV_QPS_INIT;
  modify.port_num = 1;
  EXPECT_EQ(
      ModifyQp(dct, &modify, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS),
      0);
  modify.qp_state = IBV_QPS_RTR;
  modify.path_mtu = IBV_MTU_4096;
  modify.min_rnr_timer = 1;
  modify.ah_attr.is_global = 1;
  modify.ah_attr.port_num = 1;
  modify.ah_attr.grh.hop_limit = 64;
  EXPECT_EQ(QueryGid(node.context, 1, 0, &modify.ah_attr.grh.dgid), 0);
  EXPECT_EQ(
      ModifyQp(dct, &modify, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU), 0);
  return dct;
}

TEST(ReturnedBlock, IsFoundAtItsNewOwnerBySendersStillConnectedToTheOld) {
  constexpr uint64_t kKey = 77;
  DcNode sender, first;
  FabricPort& numbers = Context::From(first.context)->port();
  // The first number of a new block goes to a DCT, all others of it are used up.
  while (numbers.AllocateNumber() % kNumbersPerBlock != kNumbersPerBlock - 1) {
  }
  ibv_qp* dct = MakeDct(first, kKey);
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
