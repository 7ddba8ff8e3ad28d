// SPDX-License-Identifier: Apache-2.0
//
// A device without ECE, AH mapping, payload in order and signatures: what each call says then. Facts 76,
// 78, 79, 136, 142.
#include <gtest/gtest.h>

#include <cerrno>

#include "tests/transport/softdc/dc_node.h"
#include "transport/softdc/device_attributes.h"
#include "transport/softdc/verbs_mkey.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace {

TEST(FeaturesOff, EceIsNotSupportedAndNothingIsOffered) {
  DcNode node;
  for (ibv_qp* qp : {node.dci, node.dct}) {
    ibv_ece ece{.vendor_id = 0x1234, .options = 1, .comp_mask = 0};
    EXPECT_EQ(SetEce(qp, &ece), EINVAL) << "the provider looks first";
    ece.vendor_id = 0x15b3;
    EXPECT_EQ(SetEce(qp, &ece), EOPNOTSUPP);
    EXPECT_EQ(QueryEce(qp, &ece), 0);
    EXPECT_EQ(ece.vendor_id, 0x15b3u);
    EXPECT_EQ(ece.options, 0u);
  }
}

TEST(FeaturesOff, AddressHandleIsNotMapped) {
  DcNode node;
  EXPECT_EQ(DvMapAhToQp(node.ah, node.dci->qp_num), EOPNOTSUPP);
}

TEST(FeaturesOff, NothingIsPromisedAboutOrder) {
  DcNode node;
  for (const uint32_t flags : {0u, 1u, 2u, 3u, 4u}) {
    EXPECT_EQ(QueryQpDataInOrder(node.dct, IBV_WR_RDMA_WRITE, flags), 0);
    EXPECT_EQ(QueryQpDataInOrder(node.dci, IBV_WR_RDMA_READ, flags), 0);
  }
}

TEST(FeaturesOff, KeysHaveLayoutsButNoSignatures) {
  DcNode node;
  mlx5dv_context attr{};
  attr.comp_mask = MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD;
  ASSERT_EQ(QueryDv(node.context, &attr), 0);
  EXPECT_EQ(attr.sig_caps.block_prot, 0u);
  mlx5dv_mkey_init_attr init{.pd = node.pd,
                             .create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT |
                                             MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE,
                             .max_entries = 4};
  errno = 0;
  EXPECT_EQ(DvCreateMkey(&init), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  init.create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT;
  mlx5dv_mkey* key = DvCreateMkey(&init);
  ASSERT_NE(key, nullptr);
  EXPECT_EQ(DvDestroyMkey(key), 0);
}

TEST(FeaturesOff, QueueWithSignaturePipeliningIsNotSupported) {
  DcNode node;
  ibv_qp_init_attr_ex init{};
  init.send_cq = init.recv_cq = node.send_cq;
  init.cap = {.max_send_wr = 4,
              .max_recv_wr = 4,
              .max_send_sge = 1,
              .max_recv_sge = 1,
              .max_inline_data = 0};
  init.qp_type = IBV_QPT_RC;
  init.comp_mask = IBV_QP_INIT_ATTR_PD;
  init.pd = node.pd;
  mlx5dv_qp_init_attr dv{};
  dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
  dv.create_flags = MLX5DV_QP_CREATE_SIG_PIPELINING;
  errno = 0;
  EXPECT_EQ(DvCreateQp(node.context, &init, &dv), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

}  // namespace
}  // namespace sluice::softdc
