// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/cm/qp_attributes.h"

#include <gtest/gtest.h>

namespace sluice::softdc::cm {
namespace qp_attributes_test {

constexpr uint8_t kRxeDelay = 15;

// Seen on a kernel with soft RoCE, whose device delay is 15: option value, server's timeout, length
// of timewait.
TEST(AckTimeoutTest, AgreesWithWhatAKernelDoes) {
  EXPECT_EQ(AckTimeout(kRxeDelay, 18), 19);  // default of 6.1
  EXPECT_EQ(AckTimeout(kRxeDelay, 16), 17);  // default of 6.12, and the option 17
  EXPECT_EQ(AckTimeout(kRxeDelay, 13), 16);  // the option 14
  EXPECT_EQ(AckTimeout(kRxeDelay, 7), 15);   // the option 8
  EXPECT_EQ(AckTimeout(kCaAckDelay, kRocePacketLifetime), 18);
  EXPECT_EQ(AckTimeout(31, 31), 31);
}

TEST(TimewaitNsTest, HalvesWithEachStepAndHasAFloor) {
  EXPECT_EQ(TimewaitNs(19), 2'048'000'000);
  EXPECT_EQ(TimewaitNs(18), 1'024'000'000);
  EXPECT_EQ(TimewaitNs(17), 512'000'000);
  EXPECT_EQ(TimewaitNs(15), 128'000'000);
  EXPECT_EQ(TimewaitNs(8), 1'000'000);
  EXPECT_EQ(TimewaitNs(0), 1'000'000);
}

TEST(FillQpAttrTest, AccessFollowsResponderResources) {
  QpFacts facts{};
  ibv_qp_attr attr{};
  int mask = 0;
  ASSERT_TRUE(FillQpAttr(IBV_QPS_INIT, &facts, &attr, &mask));
  EXPECT_EQ(attr.qp_access_flags, static_cast<unsigned>(IBV_ACCESS_REMOTE_WRITE));
  facts.responder_resources = 1;
  ASSERT_TRUE(FillQpAttr(IBV_QPS_INIT, &facts, &attr, &mask));
  EXPECT_EQ(attr.qp_access_flags,
            static_cast<unsigned>(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                  IBV_ACCESS_REMOTE_ATOMIC));
  ASSERT_TRUE(FillQpAttr(IBV_QPS_INIT, nullptr, &attr, &mask));
  EXPECT_EQ(attr.qp_access_flags, 0u);
}

TEST(FillQpAttrTest, TheAddressVectorHasRateAndLabelOfTheConnection) {
  QpFacts facts{};
  ibv_qp_attr attr{};
  int mask = 0;
  ASSERT_TRUE(FillQpAttr(IBV_QPS_RTR, &facts, &attr, &mask));
  EXPECT_EQ(attr.ah_attr.static_rate, IBV_RATE_MAX);
  EXPECT_EQ(attr.ah_attr.grh.flow_label, 0u);
  facts.static_rate = IBV_RATE_40_GBPS;
  facts.flow_label = FlowLabel(40000, 7471);
  ASSERT_TRUE(FillQpAttr(IBV_QPS_RTR, &facts, &attr, &mask));
  EXPECT_EQ(attr.ah_attr.static_rate, IBV_RATE_40_GBPS);
  EXPECT_EQ(attr.ah_attr.grh.flow_label, facts.flow_label);
}

TEST(FlowLabelTest, HasTwentyBitsAndIsNeverZeroAndDependsOnBothPorts) {
  for (uint32_t port = 0; port <= 0xffff; port += 97) {
    const uint32_t label = FlowLabel(static_cast<uint16_t>(port), 7471);
    EXPECT_NE(label, 0u) << port;
    EXPECT_EQ(label & ~0xfffffu, 0u) << port;
  }
  EXPECT_NE(FlowLabel(40000, 7471), FlowLabel(40001, 7471));
  EXPECT_NE(FlowLabel(40000, 7471), FlowLabel(40000, 7472));
}

TEST(FillQpAttrTest, OtherStatesAndMissingPeersAreRefused) {
  QpFacts facts{};
  ibv_qp_attr attr{};
  int mask = 0;
  EXPECT_FALSE(FillQpAttr(IBV_QPS_SQD, &facts, &attr, &mask));
  EXPECT_FALSE(FillQpAttr(IBV_QPS_RTR, nullptr, &attr, &mask));
  EXPECT_FALSE(FillQpAttr(IBV_QPS_RTS, nullptr, &attr, &mask));
}

}  // namespace qp_attributes_test
}  // namespace sluice::softdc::cm
