// SPDX-License-Identifier: Apache-2.0
//
// Creating, refusing and asking objects, as the driver does it.
#include <infiniband/mlx5dv.h>

#include <cerrno>
#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/softdc/dc_node.h"
#include "transport/softdc/device.h"
#include "transport/softdc/device_attributes.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace verbs_qp_test {

// A valid request for a DCI or a DCT, for tests to spoil.
struct Request {
  explicit Request(DcNode& node, mlx5dv_dc_type type) : context(node.context) {
    attr.qp_type = IBV_QPT_DRIVER;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD;
    attr.pd = node.pd;
    attr.send_cq = node.send_cq;
    attr.recv_cq = node.receive_cq;
    dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
    dv.dc_init_attr.dc_type = type;
    if (type == MLX5DV_DCTYPE_DCT) {
      attr.srq = node.srq;
    } else {
      attr.cap.max_send_wr = 5;
      attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
      attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
    }
  }
  ibv_qp* Create() {
    errno = 0;
    return DvCreateQp(context, &attr, &dv);
  }
  // errno of a refused request; destroys what was not refused.
  int Error() {
    ibv_qp* qp = Create();
    if (qp == nullptr) return errno;
    DestroyQp(qp);
    return 0;
  }
  ibv_context* context;
  ibv_qp_init_attr_ex attr{};
  mlx5dv_qp_init_attr dv{};
};

TEST(DvCreateQp, ValidRequestsSucceedAndSizesAreWrittenBack) {
  DcNode node;
  Request dci(node, MLX5DV_DCTYPE_DCI);
  ibv_qp* qp = dci.Create();
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(dci.attr.cap.max_send_wr, 8u);
  EXPECT_NE(qp->qp_num, 0u);
  EXPECT_NE(QpToQpEx(qp), nullptr);
  EXPECT_EQ(DestroyQp(qp), 0);
  Request dct(node, MLX5DV_DCTYPE_DCT);
  qp = dct.Create();
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(qp->qp_num, 0u);
  EXPECT_EQ(DestroyQp(qp), 0);
}

TEST(DvCreateQp, WithoutSendOpsThereIsNoExtendedQueuePair) {
  DcNode node;
  Request dci(node, MLX5DV_DCTYPE_DCI);
  dci.attr.comp_mask = IBV_QP_INIT_ATTR_PD;
  ibv_qp* qp = dci.Create();
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(QpToQpEx(qp), nullptr);
  EXPECT_EQ(DestroyQp(qp), 0);
}

TEST(DvCreateQp, RefusesWhatTheDriverRefuses) {
  DcNode node;
  const auto spoilt = [&](mlx5dv_dc_type type, auto spoil) {
    Request request(node, type);
    spoil(request);
    return request.Error();
  };
  const auto dci = MLX5DV_DCTYPE_DCI, dct = MLX5DV_DCTYPE_DCT;
  EXPECT_EQ(spoilt(dci, [](Request&) {}), 0);
  EXPECT_EQ(spoilt(dci, [](Request& r) { r.dv.comp_mask = 0; }), EINVAL);
  EXPECT_EQ(spoilt(dci, [](Request& r) { r.dv.comp_mask |= 1u << 20; }), EINVAL);
  EXPECT_EQ(spoilt(dci, [](Request& r) { r.attr.pd = nullptr; }), EINVAL);
  EXPECT_EQ(spoilt(dci, [](Request& r) { r.attr.send_cq = nullptr; }), EINVAL);
  EXPECT_EQ(spoilt(dci, [](Request& r) { r.attr.cap.max_recv_wr = 1; }), EINVAL);
  EXPECT_EQ(spoilt(dci, [](Request& r) { r.attr.cap.max_send_wr = 1u << 20; }), EINVAL);
  EXPECT_EQ(spoilt(dci, [](Request& r) { r.attr.cap.max_send_sge = 99; }), EINVAL);
  EXPECT_EQ(spoilt(dci, [](Request& r) { r.attr.send_ops_flags = IBV_QP_EX_WITH_TSO; }),
            EOPNOTSUPP);
  EXPECT_EQ(spoilt(dci,
                   [](Request& r) {
                     r.dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
                     r.dv.send_ops_flags = MLX5DV_QP_EX_WITH_MKEY_CONFIGURE;
                   }),
            EOPNOTSUPP);
  const auto streams = [](uint8_t concurrent, uint8_t errored) {
    return [=](Request& r) {
      r.dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
      r.dv.dc_init_attr.dci_streams = {.log_num_concurent = concurrent, .log_num_errored = errored};
    };
  };
  EXPECT_EQ(spoilt(dci, streams(6, 4)), 0);
  EXPECT_EQ(spoilt(dci, streams(7, 4)), EINVAL);
  EXPECT_EQ(spoilt(dci, streams(6, 5)), EINVAL);
  EXPECT_EQ(spoilt(dct, [](Request&) {}), 0);
  EXPECT_EQ(spoilt(dct, streams(1, 1)), EINVAL);
  EXPECT_EQ(spoilt(dct, [](Request& r) { r.attr.srq = nullptr; }), EINVAL);
  EXPECT_EQ(spoilt(dct, [](Request& r) { r.attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS; }),
            EINVAL);
  const auto create_flags = [](uint32_t flags) {
    return [=](Request& r) {
      r.dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
      r.dv.create_flags = flags;
    };
  };
  EXPECT_EQ(spoilt(dci, create_flags(MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE)), 0);
  EXPECT_EQ(spoilt(dci, create_flags(MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE |
                                     MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE)),
            EINVAL);
  EXPECT_EQ(spoilt(dct, create_flags(MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE)), EINVAL);
  EXPECT_EQ(spoilt(dci, create_flags(MLX5DV_QP_CREATE_SIG_PIPELINING)), EINVAL);
}

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

TEST(ReservedQpn, IsUniqueAmongAllNumbersOfTheHost) {
  DcNode a, b;
  std::set<uint32_t> seen = {a.dci->qp_num, a.dct->qp_num, b.dci->qp_num, b.dct->qp_num};
  EXPECT_EQ(seen.size(), 4u);
  for (int i = 0; i < 1000; ++i) {
    uint32_t number = 0;
    ASSERT_EQ(DvReservedQpnAlloc(i % 2 == 0 ? a.context : b.context, &number), 0);
    EXPECT_TRUE(seen.insert(number).second) << number;
  }
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

TEST(ReservedQpn, FreeingTwiceOrAForeignNumberIsRefused) {
  DcNode a, b;
  uint32_t number = 0;
  ASSERT_EQ(DvReservedQpnAlloc(a.context, &number), 0);
  EXPECT_EQ(DvReservedQpnDealloc(b.context, number), EINVAL);
  EXPECT_EQ(DvReservedQpnDealloc(a.context, number), 0);
  EXPECT_EQ(DvReservedQpnDealloc(a.context, number), EINVAL);
}

TEST(CreateAh, NeedsAGlobalAddressAndAValidPort) {
  DcNode node;
  ibv_ah_attr attr{};
  attr.port_num = 1;
  EXPECT_EQ(CreateAh(node.pd, &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  attr.is_global = 1;
  attr.port_num = 2;
  EXPECT_EQ(CreateAh(node.pd, &attr), nullptr);
  attr.port_num = 1;
  ibv_ah* ah = CreateAh(node.pd, &attr);
  ASSERT_NE(ah, nullptr);
  EXPECT_EQ(DvMapAhToQp(ah, node.dci->qp_num), 0);
  EXPECT_EQ(DvMapAhToQp(ah, node.dct->qp_num), 0);  // no effect, no error
  EXPECT_EQ(DestroyAh(ah), 0);
}

TEST(QueryQpDataInOrder, PromisesWhereDataLandsOnly) {
  DcNode node;
#if defined(__x86_64__)
  EXPECT_EQ(QueryQpDataInOrder(node.dct, IBV_WR_RDMA_WRITE, 0), 1);
  EXPECT_EQ(QueryQpDataInOrder(node.dci, IBV_WR_RDMA_READ, 0), 1);
  EXPECT_EQ(QueryQpDataInOrder(node.dct, IBV_WR_RDMA_WRITE, 1), 3);
#endif
  EXPECT_EQ(QueryQpDataInOrder(node.dct, IBV_WR_RDMA_WRITE, 1u << 10), 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RESET;
  ASSERT_EQ(ModifyQp(node.dci, &attr, IBV_QP_STATE), 0);
  EXPECT_EQ(QueryQpDataInOrder(node.dci, IBV_WR_RDMA_READ, 0), 0);
}

TEST(Ece, OptionsRideOnTheNextModifyAndUnknownOnesAreCut) {
  DcNode node;
  ibv_ece offer{};
  ASSERT_EQ(QueryEce(node.dci, &offer), 0);
  EXPECT_NE(offer.options, 0u);
  ibv_ece ece{.vendor_id = 0, .options = 1, .comp_mask = 0};
  EXPECT_EQ(SetEce(node.dci, &ece), EOPNOTSUPP);
  ece.vendor_id = 0x1234;
  EXPECT_EQ(SetEce(node.dci, &ece), EINVAL);
  ece = {.vendor_id = 0x15b3, .options = 0xffffffff, .comp_mask = 0};
  ASSERT_EQ(SetEce(node.dci, &ece), 0);
  ibv_ece seen{};
  ASSERT_EQ(QueryEce(node.dci, &seen), 0);
  EXPECT_EQ(seen.options, 0u);
  node.Recover();
  ASSERT_EQ(QueryEce(node.dci, &seen), 0);
  EXPECT_EQ(seen.vendor_id, 0x15b3u);
  EXPECT_EQ(seen.options, offer.options);
}

TEST(RegMr, RefusesBadRangesAndRights) {
  DcNode node;
  char byte = 0;
  EXPECT_EQ(RegMr(node.pd, &byte, 0, IBV_ACCESS_LOCAL_WRITE), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(RegMr(node.pd, &byte, 1, IBV_ACCESS_REMOTE_WRITE), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(RegMr(node.pd, reinterpret_cast<void*>(4096), 4096, IBV_ACCESS_LOCAL_WRITE), nullptr);
  EXPECT_EQ(errno, EFAULT);
  EXPECT_EQ(RegMr(node.pd, &byte, 1, IBV_ACCESS_HUGETLB), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST(PostSrqRecv, FullQueueNamesTheFirstThatDidNotFit) {
  DcNode node({.receives = 255});
  ibv_sge sge{.addr = reinterpret_cast<uint64_t>(node.slab), .length = 8, .lkey = node.mr->lkey};
  ibv_recv_wr second{.wr_id = 2, .next = nullptr, .sg_list = &sge, .num_sge = 1};
  ibv_recv_wr first{.wr_id = 1, .next = &second, .sg_list = &sge, .num_sge = 1};
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_srq_recv(node.srq, &first, &bad), ENOMEM);
  EXPECT_EQ(bad, &second);
}

TEST(PostSrqRecv, TooManySgesAreRefused) {
  DcNode node;
  ibv_sge sges[3] = {};
  ibv_recv_wr wr{.wr_id = 1, .next = nullptr, .sg_list = sges, .num_sge = 3};
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_srq_recv(node.srq, &wr, &bad), EINVAL);
  EXPECT_EQ(bad, &wr);
}

TEST(ModifySrq, RefusesResizeAndALimitTooHigh) {
  DcNode node;
  ibv_srq_attr attr{.max_wr = 512, .max_sge = 1, .srq_limit = 0};
  EXPECT_EQ(ModifySrq(node.srq, &attr, IBV_SRQ_MAX_WR), EINVAL);
  attr.srq_limit = 256;
  EXPECT_EQ(ModifySrq(node.srq, &attr, IBV_SRQ_LIMIT), EINVAL);
  attr.srq_limit = 255;
  EXPECT_EQ(ModifySrq(node.srq, &attr, IBV_SRQ_LIMIT), 0);
}

TEST(Destroy, WhatIsInUseIsBusy) {
  DcNode node({.channel = true});
  EXPECT_EQ(DestroyCq(node.send_cq), EBUSY);
  EXPECT_EQ(DestroySrq(node.srq), EBUSY);
  EXPECT_EQ(DeallocPd(node.pd), EBUSY);
  EXPECT_EQ(DestroyCompChannel(node.channel), EBUSY);
  // Closing never waits for what is left, and takes nothing away from it (man ibv_close_device).
  EXPECT_EQ(CloseDevice(node.context), 0);
}

TEST(PostSend, OldInterfaceIsRefusedOnADci) {
  DcNode node;
  ibv_send_wr wr{};
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(node.dci, &wr, &bad), EINVAL);
  EXPECT_EQ(bad, &wr);
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
