// SPDX-License-Identifier: Apache-2.0
//
// Queue pair numbers, ECE, address handles and what a queue pair promises about order.
#include <set>
#include <vector>

#include "tests/transport/softdc/conformance/conformance_test.h"

// Later than the headers that Debian has (fact 25).
#ifndef IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS
#define IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS (1u << 0)
#endif

namespace sluice::conformance {
namespace {

MLX5_SUITE(Numbers);
MLX5_SUITE(Ece);
CONFORMANCE_SUITE(AddressHandle);
CONFORMANCE_SUITE(InOrderQuery);

TEST_P(Numbers, OneSpaceOf24BitsForAllKinds) {
  PROVES(4);
  Node a(bed()), b(bed());  // two openings of one device
  std::set<uint32_t> seen{a.dci->qp_num, a.dct->qp_num, b.dci->qp_num, b.dct->qp_num};
  EXPECT_EQ(seen.size(), 4u);
  for (int i = 0; i < 600; ++i) {
    uint32_t number = 0;
    ASSERT_EQ(api().dv_reserved_qpn_alloc((i % 2 == 0 ? a : b).context, &number), 0);
    EXPECT_LT(number, 1u << 24);
    EXPECT_TRUE(seen.insert(number).second) << number;
  }
}

TEST_P(Numbers, ReservedOnesGoForwardAndAreNotReused) {
  PROVES(4, 60);
  Node node(bed());
  uint32_t last = 0;
  ASSERT_EQ(api().dv_reserved_qpn_alloc(node.context, &last), 0);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(api().dv_reserved_qpn_dealloc(node.context, last), 0);
    uint32_t next = 0;
    ASSERT_EQ(api().dv_reserved_qpn_alloc(node.context, &next), 0);
    EXPECT_NE(next, last);
    last = next;
  }
}

TEST_P(Numbers, FreeingOneThatIsNotReservedIsRefused) {
  PROVES(60);
  Node node(bed()), other(bed());  // two openings of one device
  uint32_t number = 0;
  ASSERT_EQ(api().dv_reserved_qpn_alloc(node.context, &number), 0);
  EXPECT_EQ(api().dv_reserved_qpn_dealloc(other.context, number), EINVAL);
  EXPECT_EQ(api().dv_reserved_qpn_dealloc(node.context, number + 1), EINVAL);
  EXPECT_EQ(api().dv_reserved_qpn_dealloc(node.context, node.dci->qp_num), EINVAL);
  EXPECT_EQ(api().dv_reserved_qpn_dealloc(node.context, number), 0);
  EXPECT_EQ(api().dv_reserved_qpn_dealloc(node.context, number), EINVAL);
}

TEST_P(Ece, RefusesWhatIsNotTheVendors) {
  PROVES(76);
  Node node(bed());
  for (ibv_qp* qp : {node.dci, node.dct}) {
    ibv_ece ece{.vendor_id = 0, .options = 1, .comp_mask = 0};
    EXPECT_EQ(api().set_ece(qp, &ece), EOPNOTSUPP);
    ece.vendor_id = 0x1234;
    EXPECT_EQ(api().set_ece(qp, &ece), EINVAL);
    ece = {.vendor_id = 0x15b3, .options = 1, .comp_mask = 1};
    EXPECT_EQ(api().set_ece(qp, &ece), EINVAL);
  }
}

TEST_P(Ece, OptionsOfADciRideOnTheNextModify) {
  PROVES(77);
  Node node(bed());
  ibv_ece offer{};
  ASSERT_EQ(api().query_ece(node.dci, &offer), 0);
  EXPECT_EQ(offer.vendor_id, 0x15b3u);
  if (offer.options == 0) GTEST_SKIP() << "the device offers no options";
  ibv_ece ece{.vendor_id = 0x15b3, .options = 0xffffffff, .comp_mask = 0};
  ASSERT_EQ(api().set_ece(node.dci, &ece), 0);
  ibv_ece seen{};
  ASSERT_EQ(api().query_ece(node.dci, &seen), 0);
  EXPECT_EQ(seen.options, 0u);
  ASSERT_EQ(node.Modify(node.dci, IBV_QPS_RTS, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER), 0);
  ASSERT_EQ(api().query_ece(node.dci, &seen), 0);
  EXPECT_EQ(seen.options, offer.options);  // what it does not know is cut off
}

TEST_P(Ece, OptionsOfADctAreThereWhenItIsReady) {
  PROVES(77);
  Node node(bed());
  ibv_ece offer{};
  ASSERT_EQ(api().query_ece(node.dci, &offer), 0);
  if (offer.options == 0) GTEST_SKIP() << "the device offers no options";
  Node::Creation creation = node.DctCreation();
  ibv_qp* dct = node.Create(creation);
  ASSERT_NE(dct, nullptr);
  ibv_ece ece{.vendor_id = 0x15b3, .options = offer.options, .comp_mask = 0};
  ibv_ece seen{};
  ASSERT_EQ(api().set_ece(dct, &ece), 0);
  ASSERT_EQ(node.Modify(dct, IBV_QPS_INIT, kDctInit), 0);
  ASSERT_EQ(api().query_ece(dct, &seen), 0);
  EXPECT_EQ(seen.vendor_id, 0x15b3u);
  EXPECT_EQ(seen.options, 0u);
  ASSERT_EQ(node.Modify(dct, IBV_QPS_RTR, kDctRtr), 0);
  ASSERT_EQ(api().query_ece(dct, &seen), 0);
  EXPECT_EQ(seen.options, offer.options);
  EXPECT_EQ(api().destroy_qp(dct), 0);
}

TEST_P(AddressHandle, RoceNeedsAGlobalAddressAndAPort) {
  PROVES(48);
  Node node(bed());
  ibv_port_attr port{};
  ASSERT_EQ(api().query_port(node.context, 1, &port), 0);
  if (port.link_layer != IBV_LINK_LAYER_ETHERNET) GTEST_SKIP() << "not RoCE";
  ibv_ah_attr attr = node.Path();
  attr.is_global = 0;
  errno = 0;
  EXPECT_EQ(api().create_ah(node.pd, &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  for (const uint8_t bad_port : {0, 2, 255}) {
    attr = node.Path();
    attr.port_num = bad_port;
    EXPECT_EQ(api().create_ah(node.pd, &attr), nullptr) << int{bad_port};
  }
}

TEST_P(AddressHandle, MappingToAQueuePairIsAHintThatIsGivenOnce) {
  PROVES(79);
  Node node(bed());
  ibv_ah_attr attr = node.Path();
  ibv_ah* ah = api().create_ah(node.pd, &attr);
  ASSERT_NE(ah, nullptr);
  const int first = api().dv_map_ah_to_qp(ah, node.dci->qp_num);
  if (first == EOPNOTSUPP) {
    EXPECT_EQ(api().destroy_ah(ah), 0);
    GTEST_SKIP() << "the device has no such mapping";
  }
  EXPECT_EQ(first, 0);
  EXPECT_EQ(api().dv_map_ah_to_qp(ah, node.dct->qp_num), 0);
  EXPECT_EQ(api().destroy_ah(ah), 0);
}

TEST_P(AddressHandle, MappingOutlivesTheQueuePair) {
  PROVES(79);
  Node node(bed()), target(bed(), OnHost(1));
  const Address to = target.address();
  Node::Creation creation = node.DciCreation();
  ibv_qp* qp = node.Create(creation);
  ASSERT_NE(qp, nullptr);
  const int mapped = api().dv_map_ah_to_qp(node.AhTo(to), qp->qp_num);
  if (mapped == EOPNOTSUPP) GTEST_SKIP() << "the device has no such mapping";
  EXPECT_EQ(api().destroy_qp(qp), 0);
  ASSERT_EQ(node.Post(to, {.text = "with a mapped handle"}), 0);
  EXPECT_EQ(node.AwaitSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(target.TextOf(target.AwaitReceive()), "with a mapped handle");
}

TEST_P(InOrderQuery, AsksTheQueuePairIntoWhichDataLands) {
  PROVES(25);
  Node node(bed());
  const int dct = api().query_qp_data_in_order(node.dct, IBV_WR_RDMA_WRITE, 0);
  const int dci = api().query_qp_data_in_order(node.dci, IBV_WR_RDMA_READ, 0);
  EXPECT_TRUE(dct == 0 || dct == 1);
  EXPECT_TRUE(dci == 0 || dci == 1);
#if defined(__x86_64__)
  if (bed().IsSoftware()) {
    EXPECT_EQ(dct, 1);
    EXPECT_EQ(dci, 1);
  }
#endif
  // A queue pair that is not up promises nothing.
  Node::Creation creation = node.DctCreation();
  ibv_qp* down = node.Create(creation);
  ASSERT_NE(down, nullptr);
  EXPECT_EQ(api().query_qp_data_in_order(down, IBV_WR_RDMA_WRITE, 0), 0);
  EXPECT_EQ(api().destroy_qp(down), 0);
  ASSERT_EQ(node.Modify(node.dci, IBV_QPS_RESET, IBV_QP_STATE), 0);
  EXPECT_EQ(api().query_qp_data_in_order(node.dci, IBV_WR_RDMA_READ, 0), 0);
}

TEST_P(InOrderQuery, FlagForCapabilitiesAndUnknownOnes) {
  PROVES(25);
  Node node(bed());
  EXPECT_EQ(api().query_qp_data_in_order(node.dct, IBV_WR_RDMA_WRITE, 1u << 10), 0);
  if (!bed().IsSoftware()) GTEST_SKIP() << "an older libibverbs knows no flag";
  const int plain = api().query_qp_data_in_order(node.dct, IBV_WR_RDMA_WRITE, 0);
  const int caps = api().query_qp_data_in_order(node.dct, IBV_WR_RDMA_WRITE,
                                                IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS);
  // The whole message in order means each of its blocks in order, too.
  EXPECT_EQ(caps, plain == 1 ? 3 : 0);
}

}  // namespace
}  // namespace sluice::conformance
