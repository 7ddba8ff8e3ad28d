// SPDX-License-Identifier: Apache-2.0
//
// Bad use: null and foreign objects, indices and sizes out of range, and what is still in use. Each is
// refused with the errno that a driver gives, and changes nothing.
#include <cstring>
#include <functional>
#include <string>

#include "tests/transport/softdc/conformance/conformance_test.h"
#include "tests/transport/softdc/conformance/plain_node.h"

namespace sluice::conformance {
namespace {

// What a call that returns a pointer leaves in errno; 0: it made something.
int ErrnoOf(const std::function<const void*()>& call) {
  errno = 0;
  return call() == nullptr ? errno : 0;
}
// The same of a call that returns -1.
int ErrnoOfCall(const std::function<int()>& call) {
  errno = 0;
  return call() == -1 ? errno : 0;
}

class Misuse : public ConformanceTest {
 protected:
  static ibv_qp_init_attr PlainQp(const PlainNode& node, ibv_qp_type type = IBV_QPT_RC) {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = node.send_cq;
    init.qp_type = type;
    init.cap = {.max_send_wr = 4,
                .max_recv_wr = 4,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = 0};
    return init;
  }
  static ibv_qp_init_attr_ex ExtendedQp(const PlainNode& node, ibv_qp_type type = IBV_QPT_RC) {
    ibv_qp_init_attr_ex init{};
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.pd = node.pd;
    init.send_cq = init.recv_cq = node.send_cq;
    init.qp_type = type;
    init.cap = PlainQp(node).cap;
    init.send_ops_flags = IBV_QP_EX_WITH_SEND;
    return init;
  }
};
ON_EVERY_DEVICE(Misuse);

// A driver would read through the null pointer; softdc says EINVAL.
TEST_P(Misuse, NullIsInvalid) {
  PROVES(170);
  if (!bed().IsSoftware()) GTEST_SKIP() << "a driver may crash";
  PlainNode node(bed());
  ibv_qp_init_attr init = PlainQp(node);
  ibv_qp_attr attr{};
  ibv_gid gid{};
  ibv_ece ece{};
  uint32_t number = 0;
  EXPECT_EQ(ErrnoOf([&] { return api().create_qp(nullptr, &init); }), EINVAL);
  EXPECT_EQ(ErrnoOf([&] { return api().create_qp(node.pd, nullptr); }), EINVAL);
  EXPECT_EQ(ErrnoOf([&] { return api().dv_create_qp(node.context, nullptr, nullptr); }), EINVAL);
  init.send_cq = nullptr;
  EXPECT_EQ(ErrnoOf([&] { return api().create_qp(node.pd, &init); }), EINVAL);
  EXPECT_EQ(api().modify_qp(nullptr, &attr, IBV_QP_STATE), EINVAL);
  EXPECT_EQ(api().modify_qp(node.qp, nullptr, IBV_QP_STATE), EINVAL);
  EXPECT_EQ(api().query_qp(nullptr, &attr, IBV_QP_STATE, &init), EINVAL);
  EXPECT_EQ(api().query_qp(node.qp, nullptr, IBV_QP_STATE, &init), EINVAL);
  EXPECT_EQ(api().destroy_qp(nullptr), EINVAL);
  EXPECT_EQ(api().qp_to_qp_ex(nullptr), nullptr);
  EXPECT_EQ(api().set_ece(nullptr, &ece), EINVAL);
  EXPECT_EQ(api().set_ece(node.qp, nullptr), EINVAL);
  EXPECT_EQ(api().query_ece(nullptr, &ece), EINVAL);
  EXPECT_EQ(api().query_ece(node.qp, nullptr), EINVAL);
  EXPECT_EQ(ErrnoOf([&] { return api().create_ah(nullptr, &attr.ah_attr); }), EINVAL);
  EXPECT_EQ(ErrnoOf([&] { return api().create_ah(node.pd, nullptr); }), EINVAL);
  EXPECT_EQ(api().destroy_ah(nullptr), EINVAL);
  EXPECT_EQ(ErrnoOfCall([&] { return api().query_gid(nullptr, 1, 0, &gid); }), EINVAL);
  EXPECT_EQ(ErrnoOfCall([&] { return api().query_gid(node.context, 1, 0, nullptr); }), EINVAL);
  EXPECT_EQ(ErrnoOfCall([&] { return api().query_pkey(node.context, 1, 0, nullptr); }), EINVAL);
  EXPECT_EQ(api().dv_dci_stream_id_reset(nullptr, 0), EINVAL);
  EXPECT_EQ(api().dv_map_ah_to_qp(nullptr, 1), EINVAL);
  EXPECT_EQ(api().dv_reserved_qpn_alloc(nullptr, &number), EINVAL);
  EXPECT_EQ(api().dv_reserved_qpn_alloc(node.context, nullptr), EINVAL);
  EXPECT_EQ(api().dv_reserved_qpn_dealloc(nullptr, 1), EINVAL);
  EXPECT_EQ(api().dv_query_device(nullptr, nullptr), EINVAL);
  EXPECT_EQ(ErrnoOf([&] { return api().dv_create_mkey(nullptr); }), EINVAL);
  EXPECT_EQ(api().dv_destroy_mkey(nullptr), EINVAL);
  EXPECT_EQ(api().dv_mkey_check(nullptr, nullptr), EINVAL);
  EXPECT_EQ(api().dv_qp_cancel_posted_send_wrs(nullptr, 0), -EINVAL);
}

// The kernel knows objects by numbers of each opening of the device.
TEST_P(Misuse, ObjectsOfAnotherOpeningAreUnknown) {
  PROVES(169);
  if (!bed().IsSoftware()) GTEST_SKIP() << "a number may by chance be that of another object";
  PlainNode a(bed()), b(bed());
  ibv_qp_init_attr init = PlainQp(a);
  init.send_cq = b.send_cq;
  EXPECT_EQ(ErrnoOf([&] { return api().create_qp(a.pd, &init); }), EINVAL);
  init = PlainQp(a);
  init.recv_cq = b.send_cq;
  EXPECT_EQ(ErrnoOf([&] { return api().create_qp(a.pd, &init); }), EINVAL);
  PlainNode shared(bed(), {.srq = true});
  init = PlainQp(a);
  init.srq = shared.srq;
  EXPECT_EQ(ErrnoOf([&] { return api().create_qp(a.pd, &init); }), EINVAL);
  ibv_qp_init_attr_ex extended = ExtendedQp(a);
  extended.pd = b.pd;
  EXPECT_EQ(ErrnoOf([&] { return CreateQpEx(a.context, &extended); }), EINVAL);
  Node node(bed()), other(bed());
  for (const bool is_dct : {false, true}) {
    Node::Creation creation = is_dct ? node.DctCreation() : node.DciCreation();
    creation.attr.pd = other.pd;
    EXPECT_EQ(node.Create(creation), nullptr);
    EXPECT_EQ(errno, EINVAL);
    creation = is_dct ? node.DctCreation() : node.DciCreation();
    creation.attr.recv_cq = other.receive_cq;
    EXPECT_EQ(node.Create(creation), nullptr);
    EXPECT_EQ(errno, EINVAL);
  }
  Node::Creation creation = node.DctCreation();
  creation.attr.srq = other.srq;
  EXPECT_EQ(node.Create(creation), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_P(Misuse, QueuePairsOfKindsAndSizesThatThereAreNot) {
  PROVES(171);
  PlainNode node(bed());
  const auto refusal = [&](const auto& spoil) {
    ibv_qp_init_attr init = PlainQp(node);
    spoil(init);
    return ErrnoOf([&] { return api().create_qp(node.pd, &init); });
  };
  EXPECT_EQ(refusal([](auto& init) { init.cap.max_send_wr = 1u << 30; }), EINVAL);
  EXPECT_EQ(refusal([](auto& init) { init.cap.max_recv_wr = 1u << 30; }), EINVAL);
  EXPECT_EQ(refusal([](auto& init) { init.cap.max_send_sge = 1000; }), EINVAL);
  EXPECT_EQ(refusal([](auto& init) { init.cap.max_recv_sge = 1000; }), EINVAL);
  EXPECT_EQ(refusal([](auto& init) { init.cap.max_inline_data = 1u << 20; }), EINVAL);
  EXPECT_NE(refusal([](auto& init) { init.qp_type = static_cast<ibv_qp_type>(77); }), 0);
  EXPECT_NE(refusal([](auto& init) { init.qp_type = IBV_QPT_DRIVER; }), 0);
}

TEST_P(Misuse, ExtendedCreationKnowsItsBits) {
  PROVES(171);
  PlainNode node(bed());
  const auto refusal = [&](const auto& spoil, ibv_qp_type type = IBV_QPT_RC) {
    ibv_qp_init_attr_ex init = ExtendedQp(node, type);
    spoil(init);
    return ErrnoOf([&] { return CreateQpEx(node.context, &init); });
  };
  EXPECT_EQ(refusal([](auto& init) { init.send_ops_flags |= uint64_t{1} << 40; }), EOPNOTSUPP);
  EXPECT_EQ(
      refusal([](auto& init) { init.send_ops_flags |= IBV_QP_EX_WITH_RDMA_WRITE; }, IBV_QPT_UD),
      EOPNOTSUPP);
  EXPECT_EQ(
      refusal([](auto& init) { init.send_ops_flags |= IBV_QP_EX_WITH_RDMA_READ; }, IBV_QPT_UC),
      EOPNOTSUPP);
  if (bed().IsSoftware()) {  // a driver leaves errno alone
    EXPECT_EQ(refusal([](auto& init) { init.comp_mask |= 1u << 20; }), EINVAL);
    EXPECT_EQ(refusal([](auto& init) { init.comp_mask = IBV_QP_INIT_ATTR_SEND_OPS_FLAGS; }),
              EINVAL);
  }
  ibv_qp_init_attr_ex init = ExtendedQp(node);
  init.cap.max_send_wr = 5;
  ibv_qp* qp = CreateQpEx(node.context, &init);
  ASSERT_NE(qp, nullptr);
  EXPECT_GE(init.cap.max_send_wr, 5u);
  ibv_qp_ex* ex = api().qp_to_qp_ex(qp);
  ASSERT_NE(ex, nullptr);
  if (bed().IsMlx5()) {
    EXPECT_NE(ex->wr_rdma_write, nullptr);  // whatever was asked for
  }
  EXPECT_EQ(api().destroy_qp(qp), 0);
}

TEST_P(Misuse, PlainCreationHasNoBuildersButWritesSizesBack) {
  PROVES(31, 171);
  PlainNode node(bed());
  ibv_qp_init_attr init = PlainQp(node);
  init.cap.max_send_wr = 5;
  init.cap.max_recv_wr = 6;
  ibv_qp* qp = api().create_qp(node.pd, &init);
  ASSERT_NE(qp, nullptr);
  EXPECT_GE(init.cap.max_send_wr, 5u);
  EXPECT_GE(init.cap.max_recv_wr, 6u);
  EXPECT_EQ(api().qp_to_qp_ex(qp), nullptr);
  EXPECT_EQ(qp->state, IBV_QPS_RESET);
  EXPECT_NE(qp->qp_num, 0u);
  EXPECT_EQ(api().destroy_qp(qp), 0);
}

TEST_P(Misuse, IndicesOutsideTheirTables) {
  PROVES(48, 172);
  PlainNode node(bed());
  ibv_port_attr port{};
  ASSERT_EQ(api().query_port(node.context, 1, &port), 0);
  ibv_gid gid{};
  __be16 pkey = 0;
  EXPECT_NE(api().query_port(node.context, 2, &port), 0);
  EXPECT_EQ(api().query_gid(node.context, 2, 0, &gid), -1);
  EXPECT_EQ(api().query_gid(node.context, 1, port.gid_tbl_len, &gid), -1);
  EXPECT_EQ(api().query_gid(node.context, 1, -1, &gid), -1);
  EXPECT_EQ(api().query_pkey(node.context, 1, 0, &pkey), 0);
  EXPECT_EQ(api().query_pkey(node.context, 1, port.pkey_tbl_len, &pkey), -1);
  EXPECT_EQ(api().query_pkey(node.context, 2, 0, &pkey), -1);
  ibv_ah_attr path = node.Path();
  path.grh.sgid_index = static_cast<uint8_t>(port.gid_tbl_len - 1);  // there, but empty
  if (bed().IsSoftware()) {
    EXPECT_EQ(ErrnoOf([&] { return api().create_ah(node.pd, &path); }), EINVAL);
  }
  ibv_qp_attr attr = node.AttributesTo(node);
  attr.ah_attr.port_num = 2;
  EXPECT_EQ(api().modify_qp(node.qp, &attr, kRcRtr), EINVAL);
  attr = node.AttributesTo(node);
  attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(port.gid_tbl_len - 1);
  EXPECT_EQ(api().modify_qp(node.qp, &attr, kRcRtr), EINVAL);
  attr = node.AttributesTo(node);
  EXPECT_EQ(api().modify_qp(node.qp, &attr, kRcRtr), 0);
}

TEST_P(Misuse, ValuesOutsideTheirFieldsAreRefusedForRcToo) {
  PROVES(65);
  PlainNode node(bed());
  const auto refuses = [&](int mask, const auto& spoil) {
    ibv_qp_attr attr = node.AttributesTo(node);
    attr.qp_state = mask == kRcRtr ? IBV_QPS_RTR : IBV_QPS_RTS;
    spoil(attr);
    return api().modify_qp(node.qp, &attr, mask) == EINVAL;
  };
  EXPECT_TRUE(refuses(kRcRtr, [](auto& attr) { attr.path_mtu = static_cast<ibv_mtu>(9); }));
  EXPECT_TRUE(refuses(kRcRtr, [](auto& attr) { attr.min_rnr_timer = 32; }));
  EXPECT_TRUE(refuses(kRcRtr, [](auto& attr) { attr.max_dest_rd_atomic = 255; }));
  EXPECT_FALSE(refuses(kRcRtr, [](auto&) {}));
  EXPECT_TRUE(refuses(kRcRts, [](auto& attr) { attr.timeout = 32; }));
  EXPECT_TRUE(refuses(kRcRts, [](auto& attr) { attr.retry_cnt = 8; }));
  EXPECT_TRUE(refuses(kRcRts, [](auto& attr) { attr.rnr_retry = 8; }));
  EXPECT_TRUE(refuses(kRcRts, [](auto& attr) { attr.max_rd_atomic = 255; }));
  EXPECT_FALSE(refuses(kRcRts, [](auto&) {}));
}

TEST_P(Misuse, WhatOthersUseIsBusy) {
  PROVES(64);
  PlainNode node(bed(), {.srq = true});
  EXPECT_EQ(api().dealloc_pd(node.pd), EBUSY);
  EXPECT_EQ(api().destroy_cq(node.send_cq), EBUSY);
  EXPECT_EQ(api().destroy_cq(node.receive_cq), EBUSY);
  EXPECT_EQ(api().destroy_srq(node.srq), EBUSY);
  // And works on.
  node.ConnectTo(node);
  ASSERT_EQ(node.Send("still here", 1), 0);
  EXPECT_EQ(node.Received(node.AwaitReceive()), "still here");
}

TEST_P(Misuse, CallsForADciOnOtherKinds) {
  PROVES(19, 47, 173);
  if (!bed().IsMlx5()) GTEST_SKIP() << "the device has no DC";
  PlainNode node(bed());
  Node dc(bed());
  EXPECT_EQ(api().dv_dci_stream_id_reset(node.qp, 1), EINVAL);
  ibv_send_wr send{};
  ibv_send_wr* bad_send = nullptr;
  ibv_recv_wr receive{};
  ibv_recv_wr* bad_receive = nullptr;
  if (!bed().IsSoftware()) GTEST_SKIP() << "what a driver does with it is not written down";
  EXPECT_EQ(ibv_post_send(dc.dct, &send, &bad_send), EINVAL);
  EXPECT_EQ(bad_send, &send);
  EXPECT_EQ(ibv_post_recv(dc.dct, &receive, &bad_receive), EINVAL);
  EXPECT_EQ(bad_receive, &receive);
  EXPECT_EQ(ibv_post_recv(dc.dci, &receive, &bad_receive), EINVAL);
  EXPECT_EQ(api().qp_to_qp_ex(dc.dct), nullptr);
}

TEST_P(Misuse, BatchesThatAreNotFinished) {
  PROVES(40);
  PlainPair pair(bed());
  if (!bed().IsSoftware()) GTEST_SKIP() << "a driver posts what there is";
  ibv_qp_ex* ex = pair.a.ex;
  ibv_wr_start(ex);  // no data setter
  ibv_wr_send(ex);
  EXPECT_EQ(ibv_wr_complete(ex), EINVAL);
  ibv_wr_start(ex);  // setter without a builder
  ibv_wr_set_sge(ex, pair.a.mr->lkey, pair.a.Address(0), 8);
  EXPECT_EQ(ibv_wr_complete(ex), 0);
  EXPECT_TRUE(pair.a.NoCompletion(pair.a.send_cq));
  ibv_wr_start(ex);
  EXPECT_EQ(ibv_wr_complete(ex), 0);
  ASSERT_EQ(pair.a.Send("fine", 1), 0);
  EXPECT_EQ(pair.b.Received(pair.b.AwaitReceive()), "fine");
}

TEST_P(Misuse, MissingListOfDevices) {
  PROVES(170);
  if (!bed().IsSoftware()) GTEST_SKIP() << "a driver may crash";
  EXPECT_EQ(ErrnoOf([&] { return api().open_device(nullptr); }), EINVAL);
  ibv_device unknown{};
  EXPECT_EQ(ErrnoOf([&] { return api().open_device(&unknown); }), EINVAL);
  EXPECT_FALSE(api().dv_is_supported(&unknown));
}

}  // namespace
}  // namespace sluice::conformance
