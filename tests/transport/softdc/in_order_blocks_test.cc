// SPDX-License-Identifier: Apache-2.0
//
// A device that promises order within aligned blocks of 128 bytes only: who asks for capabilities is told
// so, who asks about whole messages is told no. Fact 79.
#include <gtest/gtest.h>

#include "tests/transport/softdc/dc_node.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace {

constexpr uint32_t kReturnCaps = 1, kDeviceOnly = 2;
constexpr int kAligned128 = 2;

TEST(InOrderBlocks, ArePromisedToWhoAsksForCapabilities) {
  DcNode node;
  for (ibv_qp* qp : {node.dct, node.dci}) {
    EXPECT_EQ(QueryQpDataInOrder(qp, IBV_WR_RDMA_WRITE, 0), 0);
    EXPECT_EQ(QueryQpDataInOrder(qp, IBV_WR_RDMA_WRITE, kDeviceOnly), 0);
    EXPECT_EQ(QueryQpDataInOrder(qp, IBV_WR_RDMA_WRITE, kReturnCaps), kAligned128);
    EXPECT_EQ(QueryQpDataInOrder(qp, IBV_WR_RDMA_WRITE, kReturnCaps | kDeviceOnly), kAligned128);
    EXPECT_EQ(QueryQpDataInOrder(qp, IBV_WR_RDMA_WRITE, kReturnCaps | 4), 0);
  }
}

}  // namespace
}  // namespace sluice::softdc
