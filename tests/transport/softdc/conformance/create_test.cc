// SPDX-License-Identifier: Apache-2.0
//
// Creating DCIs and DCTs: what is refused, with which errno, and what comes back.
#include <functional>

#include "tests/transport/softdc/conformance/conformance_test.h"

namespace sluice::conformance {
namespace {

MLX5_SUITE(Create);

using Spoil = std::function<void(Node::Creation&)>;

// errno of a creation that was spoilt; 0 when it went well, what was made is destroyed.
int ErrorOf(Node& node, Node::Creation creation, const Spoil& spoil) {
  spoil(creation);
  ibv_qp* qp = node.Create(creation);
  if (qp == nullptr) return errno;
  EXPECT_EQ(node.api.destroy_qp(qp), 0);
  return 0;
}
int DciError(Node& node, const Spoil& spoil) { return ErrorOf(node, node.DciCreation(), spoil); }
int DctError(Node& node, const Spoil& spoil) { return ErrorOf(node, node.DctCreation(), spoil); }

TEST_P(Create, DriverTypeWithDcMaskMakesBothKinds) {
  PROVES(1);
  Node node(bed());
  EXPECT_EQ(DciError(node, [](auto&) {}), 0);
  EXPECT_EQ(DctError(node, [](auto&) {}), 0);
  for (auto error : {&DciError, &DctError}) {
    EXPECT_EQ(error(node, [](auto& c) { c.attr.comp_mask &= ~IBV_QP_INIT_ATTR_PD; }), EINVAL);
    EXPECT_EQ(error(node, [](auto& c) { c.attr.pd = nullptr; }), EINVAL);
    EXPECT_EQ(error(node, [](auto& c) { c.dv.comp_mask = 0; }), EINVAL);
    EXPECT_EQ(error(node, [](auto& c) { c.attr.qp_type = IBV_QPT_RC; }), EINVAL);
    EXPECT_EQ(error(node, [](auto& c) { c.attr.qp_type = IBV_QPT_UD; }), EINVAL);
    EXPECT_EQ(error(node, [](auto& c) { c.dv.dc_init_attr.dc_type = mlx5dv_dc_type(0); }), EINVAL);
    EXPECT_EQ(error(node, [](auto& c) { c.dv.dc_init_attr.dc_type = mlx5dv_dc_type(99); }), EINVAL);
  }
}

TEST_P(Create, UnknownBitsOfTheMlx5PartAreRefused) {
  PROVES(26);
  Node node(bed());
  for (auto error : {&DciError, &DctError}) {
    for (int bit = 5; bit < 64; ++bit) {
      EXPECT_EQ(error(node, [bit](auto& c) { c.dv.comp_mask |= uint64_t{1} << bit; }), EINVAL)
          << bit;
    }
    EXPECT_EQ(error(node,
                    [](auto& c) {
                      c.dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
                      c.dv.create_flags = 1u << 30;
                    }),
              EINVAL);
    EXPECT_EQ(error(node,
                    [](auto& c) {
                      c.dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
                      c.dv.create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE |
                                          MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE;
                    }),
              EINVAL);
  }
}

TEST_P(Create, ScatterToCqeFlagsAloneAreTaken) {
  PROVES(26, 34);
  Node node(bed());
  const auto with = [](uint32_t flags) {
    return [flags](Node::Creation& c) {
      c.dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
      c.dv.create_flags = flags;
    };
  };
  EXPECT_EQ(DciError(node, with(MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE)), 0);
  EXPECT_EQ(DciError(node, with(MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE)), 0);
  EXPECT_EQ(DctError(node, with(MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE)), 0);
  // The requester's flavour means nothing on a DCT.
  EXPECT_EQ(DctError(node, with(MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE)), EINVAL);
}

TEST_P(Create, NullMlx5PartIsRefusedWithErrno) {
  PROVES(27);
  Node node(bed());
  if (!bed().IsSoftware()) GTEST_SKIP() << "rdma-core leaves errno alone here";
  Node::Creation creation = node.DciCreation();
  errno = 0;
  EXPECT_EQ(api().dv_create_qp(node.context, &creation.attr, nullptr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(DciError(node, [](auto& c) { c.attr.comp_mask |= 1u << 20; }), EINVAL);
}

TEST_P(Create, DciHasNoReceiveQueue) {
  PROVES(28);
  Node node(bed());
  EXPECT_EQ(DciError(node, [](auto& c) { c.attr.cap.max_recv_wr = 1; }), EINVAL);
  EXPECT_EQ(DciError(node, [](auto& c) { c.attr.cap.max_recv_sge = 1; }), EINVAL);
  EXPECT_EQ(DciError(node, [&](auto& c) { c.attr.srq = node.srq; }), 0);
}

TEST_P(Create, SendOperationsOfADci) {
  PROVES(29);
  Node node(bed());
  const auto with = [](uint64_t ops) {
    return [ops](Node::Creation& c) { c.attr.send_ops_flags = ops; };
  };
  for (const uint64_t op :
       {IBV_QP_EX_WITH_SEND, IBV_QP_EX_WITH_SEND_WITH_IMM, IBV_QP_EX_WITH_RDMA_WRITE,
        IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, IBV_QP_EX_WITH_RDMA_READ, IBV_QP_EX_WITH_SEND_WITH_INV,
        IBV_QP_EX_WITH_LOCAL_INV, IBV_QP_EX_WITH_BIND_MW}) {
    EXPECT_EQ(DciError(node, with(op)), 0) << op;
  }
  for (const uint64_t op : {uint64_t{IBV_QP_EX_WITH_TSO}, uint64_t{1} << 40}) {
    EXPECT_EQ(DciError(node, with(IBV_QP_EX_WITH_SEND | op)), EOPNOTSUPP) << op;
  }
  ibv_device_attr device{};
  ASSERT_EQ(api().query_device(node.context, &device), 0);
  const int atomics = device.atomic_cap == IBV_ATOMIC_NONE ? EOPNOTSUPP : 0;
  EXPECT_EQ(DciError(node, with(IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP)), atomics);
  EXPECT_EQ(DciError(node, with(IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)), atomics);
}

TEST_P(Create, BuildersAreThereWhateverSubsetWasAskedFor) {
  PROVES(29);
  Node node(bed());
  Node::Creation creation = node.DciCreation();
  creation.attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
  ibv_qp* qp = node.Create(creation);
  ASSERT_NE(qp, nullptr);
  ibv_qp_ex* ex = api().qp_to_qp_ex(qp);
  ASSERT_NE(ex, nullptr);
  EXPECT_NE(ex->wr_rdma_write, nullptr);
  EXPECT_NE(ex->wr_rdma_read, nullptr);
  EXPECT_NE(ex->wr_send_imm, nullptr);
  EXPECT_EQ(api().destroy_qp(qp), 0);
}

TEST_P(Create, WithoutSendOperationsThereIsNoExtendedQueuePair) {
  PROVES(29);
  Node node(bed());
  Node::Creation creation = node.DciCreation();
  creation.attr.comp_mask = IBV_QP_INIT_ATTR_PD;
  ibv_qp* qp = node.Create(creation);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(api().qp_to_qp_ex(qp), nullptr);
  EXPECT_EQ(api().destroy_qp(qp), 0);
}

TEST_P(Create, MkeyConfigurationIsNotForADci) {
  PROVES(30);
  Node node(bed());
  const auto with = [](uint64_t ops) {
    return [ops](Node::Creation& c) {
      c.dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
      c.dv.send_ops_flags = ops;
    };
  };
  EXPECT_EQ(DciError(node, with(MLX5DV_QP_EX_WITH_MKEY_CONFIGURE)), EOPNOTSUPP);
  EXPECT_EQ(DciError(node, with(MLX5DV_QP_EX_WITH_MR_LIST)), EOPNOTSUPP);
  EXPECT_EQ(DciError(node, with(MLX5DV_QP_EX_WITH_MR_INTERLEAVED)), EOPNOTSUPP);
}

TEST_P(Create, SizesAreWrittenBackAndTooBigOnesRefused) {
  PROVES(31);
  Node node(bed());
  Node::Creation creation = node.DciCreation();
  creation.attr.cap.max_send_wr = 5;
  creation.attr.cap.max_inline_data = 33;
  ibv_qp* qp = node.Create(creation);
  ASSERT_NE(qp, nullptr);
  EXPECT_GE(creation.attr.cap.max_send_wr, 5u);
  EXPECT_GE(creation.attr.cap.max_inline_data, 33u);
  EXPECT_EQ(creation.attr.cap.max_recv_wr, 0u);
  EXPECT_EQ(api().destroy_qp(qp), 0);

  EXPECT_EQ(DciError(node, [](auto& c) { c.attr.cap.max_send_wr = 1u << 24; }), EINVAL);
  EXPECT_EQ(DciError(node, [](auto& c) { c.attr.cap.max_send_sge = 1000; }), EINVAL);
  EXPECT_EQ(DciError(node, [](auto& c) { c.attr.cap.max_inline_data = 1u << 20; }), EINVAL);
}

TEST_P(Create, DciHasItsNumberAtOnceADctHasNot) {
  PROVES(2, 32);
  Node node(bed());
  Node::Creation dci = node.DciCreation();
  ibv_qp* qp = node.Create(dci);
  ASSERT_NE(qp, nullptr);
  EXPECT_NE(qp->qp_num, 0u);
  EXPECT_NE(qp->qp_num, node.dci->qp_num);
  EXPECT_EQ(qp->state, IBV_QPS_RESET);
  EXPECT_EQ(api().destroy_qp(qp), 0);

  Node::Creation dct = node.DctCreation();
  qp = node.Create(dct);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(qp->qp_num, 0u);
  ASSERT_EQ(node.Modify(qp, IBV_QPS_INIT, kDctInit), 0);
  EXPECT_EQ(qp->qp_num, 0u);
  ASSERT_EQ(node.Modify(qp, IBV_QPS_RTR, kDctRtr), 0);
  EXPECT_NE(qp->qp_num, 0u);
  EXPECT_NE(qp->qp_num, node.dct->qp_num);
  EXPECT_EQ(api().destroy_qp(qp), 0);
}

TEST_P(Create, StreamsUpToTheCapabilityOnly) {
  PROVES(33);
  Node node(bed());
  mlx5dv_context caps{};
  ASSERT_EQ(api().dv_query_device(node.context, &caps), 0);
  EXPECT_EQ(caps.comp_mask & MLX5DV_CONTEXT_MASK_DCI_STREAMS, 0u);  // not asked for
  caps = {};
  caps.comp_mask = MLX5DV_CONTEXT_MASK_DCI_STREAMS;
  ASSERT_EQ(api().dv_query_device(node.context, &caps), 0);
  if ((caps.comp_mask & MLX5DV_CONTEXT_MASK_DCI_STREAMS) == 0) GTEST_SKIP() << "no streams";
  const uint8_t concurrent = caps.dci_streams_caps.max_log_num_concurent;
  const uint8_t errored = caps.dci_streams_caps.max_log_num_errored;
  const auto with = [](int log_concurrent, int log_errored) {
    return [=](Node::Creation& c) {
      c.dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
      c.dv.dc_init_attr.dci_streams = {.log_num_concurent = static_cast<uint8_t>(log_concurrent),
                                       .log_num_errored = static_cast<uint8_t>(log_errored)};
    };
  };
  EXPECT_EQ(DciError(node, with(concurrent, errored)), 0);
  EXPECT_EQ(DciError(node, with(concurrent + 1, errored)), EINVAL);
  EXPECT_EQ(DciError(node, with(concurrent, errored + 1)), EINVAL);
  EXPECT_EQ(DctError(node, with(0, 0)), EINVAL);
}

TEST_P(Create, DctTakesNothingOfASender) {
  PROVES(34);
  Node node(bed());
  EXPECT_EQ(DctError(node, [](auto& c) { c.attr.srq = nullptr; }), EINVAL);
  EXPECT_EQ(DctError(node,
                     [](auto& c) {
                       c.attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
                       c.attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
                     }),
            EINVAL);
  EXPECT_EQ(DctError(node, [](auto& c) { c.attr.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS; }),
            EINVAL);
  EXPECT_EQ(DctError(node,
                     [](auto& c) {
                       c.dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
                       c.dv.send_ops_flags = 0;
                     }),
            EINVAL);
}

TEST_P(Create, BothNeedBothCompletionQueues) {
  PROVES(1);
  Node node(bed());
  if (!bed().IsSoftware()) GTEST_SKIP() << "libibverbs follows the null pointer";
  for (auto error : {&DciError, &DctError}) {
    EXPECT_EQ(error(node, [](auto& c) { c.attr.send_cq = nullptr; }), EINVAL);
    EXPECT_EQ(error(node, [](auto& c) { c.attr.recv_cq = nullptr; }), EINVAL);
  }
}

TEST_P(Create, WhatIsInUseIsBusy) {
  PROVES(64);
  Node node(bed(), {.channel = true});
  EXPECT_EQ(api().destroy_comp_channel(node.channel), EBUSY);
  EXPECT_EQ(api().destroy_cq(node.send_cq), EBUSY);
  EXPECT_EQ(api().destroy_cq(node.receive_cq), EBUSY);
  EXPECT_EQ(api().destroy_srq(node.srq), EBUSY);
  EXPECT_EQ(api().dealloc_pd(node.pd), EBUSY);
}

}  // namespace
}  // namespace sluice::conformance
