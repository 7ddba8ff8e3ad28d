// SPDX-License-Identifier: Apache-2.0
//
// Creation and queries of softdc beyond the conformance suite: defaults, creation flags, identity.
#include <infiniband/mlx5dv.h>

#include <cerrno>

#include "gtest/gtest.h"
#include "tests/transport/softdc/dc_node.h"
#include "transport/softdc/device.h"
#include "transport/softdc/device_attributes.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace verbs_qp_test {

TEST(DvQueryDevice, AnswersOnlyWhatWasAsked) {
  DcNode node;
  mlx5dv_context attr{};
  ASSERT_EQ(QueryDv(node.context, &attr), 0);
  EXPECT_EQ(attr.comp_mask, 0u);
  EXPECT_EQ(attr.dci_streams_caps.max_log_num_concurent, 0);
  attr.comp_mask = MLX5DV_CONTEXT_MASK_DCI_STREAMS | MLX5DV_CONTEXT_MASK_HCA_CORE_CLOCK;
  ASSERT_EQ(QueryDv(node.context, &attr), 0);
  EXPECT_EQ(attr.comp_mask, static_cast<uint64_t>(MLX5DV_CONTEXT_MASK_DCI_STREAMS));
  EXPECT_EQ(attr.dci_streams_caps.max_log_num_concurent, 6);
  EXPECT_EQ(attr.dci_streams_caps.max_log_num_errored, 4);
}

TEST(ReservedQpn, GoesForwardThoughEachIsFreedAtOnce) {
  DcNode a;
  uint32_t last = 0;
  for (int i = 0; i < 1000; ++i) {
    uint32_t number = 0;
    ASSERT_EQ(DvReservedQpnAlloc(a.context, &number), 0);
    EXPECT_GT(number, last);
    last = number;
    ASSERT_EQ(DvReservedQpnDealloc(a.context, number), 0);
  }
}

TEST(CreateQpEx, BlockOfItsOwnMulticastIsTakenOtherCreateFlagsAreNot) {
  DcNode node;
  ibv_qp_init_attr_ex attr{};
  attr.qp_type = IBV_QPT_UD;
  attr.send_cq = node.send_cq;
  attr.recv_cq = node.receive_cq;
  attr.pd = node.pd;
  attr.cap = {.max_send_wr = 4,
              .max_recv_wr = 4,
              .max_send_sge = 1,
              .max_recv_sge = 1,
              .max_inline_data = 0};
  attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
  attr.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
  ibv_qp* qp = CreateQpEx(node.context, &attr);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(DestroyQp(qp), 0);
  attr.create_flags = IBV_QP_CREATE_SCATTER_FCS;
  errno = 0;
  EXPECT_EQ(CreateQpEx(node.context, &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

// ibv_close_device() succeeds while objects of the context exist, and does not change them (man ibv_close_device).
TEST(CloseDevice, SucceedsWhileObjectsAreLeft) {
  DcNode node;
  EXPECT_EQ(CloseDevice(node.context), 0);
}

TEST(Device, IdentityIsOneForTheUserAndLooksLikeAnAdapter) {
  int count = 0;
  ibv_device** list = GetDeviceList(&count);
  ASSERT_EQ(count, 1);
  EXPECT_STREQ(GetDeviceName(list[0]), "softdc0");
  EXPECT_EQ(list[1], nullptr);
  EXPECT_TRUE(DvIsSupported(list[0]));
  EXPECT_EQ(GetDeviceGuid(list[0]), NodeGuid());
  FreeDeviceList(list);
  DcNode node;
  ibv_port_attr port{};
  EXPECT_EQ(QueryPort(node.context, 1, &port), 0);
  EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
  EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
  EXPECT_EQ(QueryPort(node.context, 2, &port), EINVAL);
}

}  // namespace verbs_qp_test
}  // namespace sluice::softdc
