// SPDX-License-Identifier: Apache-2.0
//
// Transitions of DCIs and DCTs. The tables stand here a second time, on purpose: they are the
// contract that the device's own are held against.
#include <vector>

#include "tests/transport/softdc/conformance/conformance_test.h"

namespace sluice::conformance {
namespace {

MLX5_SUITE(States);

struct Row {
  ibv_qp_state from;
  ibv_qp_state to;
  int required;  // without IBV_QP_STATE
  int optional;
};

constexpr int kRtsBits = kDciRts & ~IBV_QP_STATE;

const std::vector<Row> kDciRows = {
    {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT},
    {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX | IBV_QP_AV},
    {IBV_QPS_RTR, IBV_QPS_RTS, kRtsBits, IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_RESET, IBV_QPS_RESET, 0, 0},
    {IBV_QPS_INIT, IBV_QPS_RESET, 0, 0},
    {IBV_QPS_RTR, IBV_QPS_RESET, 0, 0},
    {IBV_QPS_RTS, IBV_QPS_RESET, 0, 0},
    {IBV_QPS_ERR, IBV_QPS_RESET, 0, 0},
    {IBV_QPS_INIT, IBV_QPS_ERR, 0, 0},
    {IBV_QPS_RTR, IBV_QPS_ERR, 0, 0},
    {IBV_QPS_RTS, IBV_QPS_ERR, 0, 0},
    {IBV_QPS_ERR, IBV_QPS_ERR, 0, 0},
};

const std::vector<Row> kDctRows = {
    {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT, 0},
    {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU, 0},
};

constexpr ibv_qp_state kStates[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
                                    IBV_QPS_SQD,   IBV_QPS_SQE,  IBV_QPS_ERR};

// Every attribute that a mask can name in Debian's headers, the state aside.
std::vector<int> AllBits() {
  std::vector<int> bits;
  for (int bit = 1; bit <= IBV_QP_RATE_LIMIT; bit <<= 1) {
    if (bit != IBV_QP_STATE) bits.push_back(bit);
  }
  return bits;
}

// A fresh queue pair that was brought to `state`; null when there is no way.
ibv_qp* BringTo(Node& node, bool dci, ibv_qp_state state) {
  Node::Creation creation = dci ? node.DciCreation() : node.DctCreation();
  ibv_qp* qp = node.Create(creation);
  if (qp == nullptr) throw std::runtime_error("cannot create");
  const auto step = [&](ibv_qp_state to, int mask) {
    if (node.Modify(qp, to, mask) != 0) throw std::runtime_error("a valid transition fails");
  };
  if (state == IBV_QPS_RESET) return qp;
  step(IBV_QPS_INIT, dci ? kDciInit : kDctInit);
  if (state == IBV_QPS_INIT) return qp;
  if (state == IBV_QPS_ERR) {
    step(IBV_QPS_ERR, IBV_QP_STATE);
    return qp;
  }
  step(IBV_QPS_RTR, dci ? kDciRtr : kDctRtr);
  if (state == IBV_QPS_RTR) return qp;
  step(IBV_QPS_RTS, kDciRts);
  return qp;
}

const Row* Find(const std::vector<Row>& rows, ibv_qp_state from, ibv_qp_state to) {
  for (const Row& row : rows) {
    if (row.from == from && row.to == to) return &row;
  }
  return nullptr;
}

bool Allowed(const Row& row, int mask) {
  return (mask & row.required) == row.required && (mask & ~(row.required | row.optional)) == 0;
}

// From every state to every state, with the required mask, with each one bit missing and with each
// one bit more.
void TryAllMasks(Node& node, bool dci, const std::vector<Row>& rows) {
  int tried = 0;
  for (const ibv_qp_state from : kStates) {
    if (from == IBV_QPS_SQD || from == IBV_QPS_SQE) continue;
    if (!dci && (from == IBV_QPS_RTS || from == IBV_QPS_ERR)) continue;
    ibv_qp* qp = BringTo(node, dci, from);
    for (const ibv_qp_state to : kStates) {
      const Row* row = Find(rows, from, to);
      const int base = row == nullptr ? 0 : row->required;
      std::vector<int> masks{base};
      for (const int bit : AllBits()) masks.push_back(base ^ bit);
      if (row != nullptr) masks.push_back(row->required | row->optional);
      for (const int mask : masks) {
        const int want = row != nullptr && Allowed(*row, mask) ? 0 : EINVAL;
        const int got = node.Modify(qp, to, mask | IBV_QP_STATE);
        EXPECT_EQ(got, want) << (dci ? "DCI " : "DCT ") << from << " to " << to << " with mask 0x"
                             << std::hex << mask;
        ++tried;
        if (got == 0) {
          EXPECT_EQ(node.api.destroy_qp(qp), 0);
          qp = BringTo(node, dci, from);
        } else {
          EXPECT_EQ(qp->state, from);
        }
      }
    }
    EXPECT_EQ(node.api.destroy_qp(qp), 0);
  }
  EXPECT_GT(tried, dci ? 700 : 400);
}

TEST_P(States, MasksOfADciAreExact) {
  PROVES(3, 35);
  Node node(bed());
  TryAllMasks(node, /*dci=*/true, kDciRows);
}

TEST_P(States, MasksOfADctAreExactAndItIsNeverRecycled) {
  PROVES(2, 3);
  Node node(bed());
  TryAllMasks(node, /*dci=*/false, kDctRows);
}

TEST_P(States, DctNeedsTheStateBitADciKeepsItsState) {
  PROVES(3);
  Node node(bed());
  ibv_qp* dct = BringTo(node, /*dci=*/false, IBV_QPS_RESET);
  EXPECT_EQ(node.Modify(dct, IBV_QPS_INIT, kDctInit & ~IBV_QP_STATE), EINVAL);
  EXPECT_EQ(api().destroy_qp(dct), 0);
  EXPECT_EQ(node.Modify(node.dci, IBV_QPS_RTS, IBV_QP_MIN_RNR_TIMER), 0);
  EXPECT_EQ(node.QueryState(node.dci), IBV_QPS_RTS);
}

TEST_P(States, CurrentStateIsNeverNamedForADci) {
  PROVES(35);
  Node node(bed());
  ibv_qp* qp = BringTo(node, /*dci=*/true, IBV_QPS_RTS);
  EXPECT_EQ(node.Modify(qp, IBV_QPS_RTS, IBV_QP_STATE | IBV_QP_CUR_STATE), EINVAL);
  EXPECT_EQ(node.Modify(qp, IBV_QPS_SQD, IBV_QP_STATE), EINVAL);
  EXPECT_EQ(node.Modify(qp, IBV_QPS_SQD, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), EINVAL);
  EXPECT_EQ(api().destroy_qp(qp), 0);
}

TEST_P(States, ReadsInFlightAreLimited) {
  PROVES(36);
  Node node(bed());
  ibv_qp* qp = BringTo(node, /*dci=*/true, IBV_QPS_RTR);
  ibv_qp_attr attr = node.AttributesFor(IBV_QPS_RTS);
  attr.max_rd_atomic = 255;
  EXPECT_EQ(api().modify_qp(qp, &attr, kDciRts), EINVAL);
  EXPECT_EQ(qp->state, IBV_QPS_RTR);
  attr.max_rd_atomic = 1;
  EXPECT_EQ(api().modify_qp(qp, &attr, kDciRts), 0);
  EXPECT_EQ(api().destroy_qp(qp), 0);
}

TEST_P(States, AddressNeedsThePortOfInit) {
  PROVES(37);
  Node node(bed());
  for (const bool dci : {true, false}) {
    ibv_qp* qp = BringTo(node, dci, IBV_QPS_RESET);
    ibv_qp_attr attr = node.AttributesFor(IBV_QPS_INIT);
    for (const uint8_t port : {0, 2, 200}) {
      attr.port_num = port;
      EXPECT_EQ(api().modify_qp(qp, &attr, dci ? kDciInit : kDctInit), EINVAL);
    }
    ASSERT_EQ(node.Modify(qp, IBV_QPS_INIT, dci ? kDciInit : kDctInit), 0);
    attr = node.AttributesFor(IBV_QPS_RTR);
    for (const uint8_t port : {0, 2}) {
      attr.ah_attr.port_num = port;
      EXPECT_EQ(api().modify_qp(qp, &attr, (dci ? kDciRtr : kDctRtr) | IBV_QP_AV), EINVAL);
    }
    EXPECT_EQ(qp->state, IBV_QPS_INIT);
    EXPECT_EQ(node.Modify(qp, IBV_QPS_RTR, (dci ? kDciRtr : kDctRtr) | IBV_QP_AV), 0);
    EXPECT_EQ(api().destroy_qp(qp), 0);
  }
}

TEST_P(States, ValuesOutsideTheirFieldsAreRefused) {
  PROVES(65);
  Node node(bed());
  const auto refused = [&](ibv_qp_state from, ibv_qp_state to, int mask, auto spoil) {
    ibv_qp* qp = BringTo(node, /*dci=*/true, from);
    ibv_qp_attr attr = node.AttributesFor(to);
    spoil(attr);
    EXPECT_EQ(api().modify_qp(qp, &attr, mask), EINVAL);
    EXPECT_EQ(qp->state, from);
    EXPECT_EQ(api().destroy_qp(qp), 0);
  };
  refused(IBV_QPS_RESET, IBV_QPS_INIT, kDciInit, [](auto& a) { a.pkey_index = 9999; });
  refused(IBV_QPS_INIT, IBV_QPS_RTR, kDciRtr, [](auto& a) { a.path_mtu = ibv_mtu(0); });
  refused(IBV_QPS_INIT, IBV_QPS_RTR, kDciRtr, [](auto& a) { a.path_mtu = ibv_mtu(6); });
  refused(IBV_QPS_RTR, IBV_QPS_RTS, kDciRts, [](auto& a) { a.timeout = 32; });
  refused(IBV_QPS_RTR, IBV_QPS_RTS, kDciRts, [](auto& a) { a.retry_cnt = 8; });
  refused(IBV_QPS_RTR, IBV_QPS_RTS, kDciRts, [](auto& a) { a.rnr_retry = 8; });
}

TEST_P(States, HopLimitOfADctIsNeverBelowTwo) {
  PROVES(38);
  Node node(bed());
  for (const auto& [asked, want] : {std::pair{0, 64}, {1, 64}, {2, 2}, {77, 77}}) {
    ibv_qp* qp = BringTo(node, /*dci=*/false, IBV_QPS_INIT);
    ibv_qp_attr attr = node.AttributesFor(IBV_QPS_RTR);
    attr.ah_attr.grh.hop_limit = static_cast<uint8_t>(asked);
    ASSERT_EQ(api().modify_qp(qp, &attr, kDctRtr), 0);
    ibv_qp_init_attr init{};
    ASSERT_EQ(api().query_qp(qp, &attr, IBV_QP_AV, &init), 0);
    EXPECT_EQ(attr.ah_attr.grh.hop_limit, want);
    EXPECT_EQ(api().destroy_qp(qp), 0);
  }
}

TEST_P(States, QueryOfADctWorksWhenItIsReadyForSevenAttributes) {
  PROVES(5);
  Node node(bed());
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  constexpr int kQueryable = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PORT |
                             IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_PKEY_INDEX;
  for (const ibv_qp_state state : {IBV_QPS_RESET, IBV_QPS_INIT}) {
    ibv_qp* qp = BringTo(node, /*dci=*/false, state);
    EXPECT_EQ(api().query_qp(qp, &attr, IBV_QP_STATE, &init), EINVAL);
    EXPECT_EQ(api().destroy_qp(qp), 0);
  }
  for (const int bit : AllBits()) {
    const int want = (bit & kQueryable) != 0 ? 0 : EINVAL;
    EXPECT_EQ(api().query_qp(node.dct, &attr, bit, &init), want) << bit;
  }
  ASSERT_EQ(api().query_qp(node.dct, &attr, kQueryable, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_RTR);
  EXPECT_EQ(attr.path_mtu, IBV_MTU_1024);
  EXPECT_EQ(attr.min_rnr_timer, node.options.min_rnr_timer);
  EXPECT_EQ(attr.port_num, 1);
  EXPECT_EQ(attr.qp_access_flags, node.options.dct_access);
}

TEST_P(States, CachedStateOfADciChangesByModifyAndQueryOnly) {
  PROVES(5);
  Node sender(bed(), {.streams = false});
  Node target(bed(), OnHost(1));
  ASSERT_EQ(sender.dci->state, IBV_QPS_RTS);
  ASSERT_EQ(
      sender.Post(target.address(), {.opcode = IBV_WR_RDMA_WRITE, .text = "x", .rkey = 0xffffff01}),
      0);
  EXPECT_NE(sender.AwaitSend().status, IBV_WC_SUCCESS);
  // The device has stopped the queue; nobody has asked.
  EXPECT_EQ(sender.dci->state, IBV_QPS_RTS);
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(api().query_qp(sender.dci, &attr, IBV_QP_PORT, &init), 0);
  EXPECT_EQ(sender.dci->state, IBV_QPS_RTS);  // the state was not asked for
  bed().Await("the error state", [&] { return sender.QueryState(sender.dci) == IBV_QPS_ERR; });
  EXPECT_EQ(sender.dci->state, IBV_QPS_ERR);
  ASSERT_EQ(api().query_qp(sender.dci, &attr, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(attr.cur_qp_state, IBV_QPS_ERR);
}

TEST_P(States, QueryOfADciSaysWhatWasSet) {
  PROVES(66);
  Node node(bed());
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(
      api().query_qp(node.dci, &attr, kDciRts | IBV_QP_PORT | IBV_QP_PATH_MTU | IBV_QP_CAP, &init),
      0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_RTS);
  EXPECT_EQ(attr.timeout, node.options.timeout);
  EXPECT_EQ(attr.retry_cnt, node.options.retry_count);
  EXPECT_EQ(attr.rnr_retry, node.options.rnr_retry);
  EXPECT_EQ(attr.path_mtu, IBV_MTU_1024);
  EXPECT_EQ(init.send_cq, node.send_cq);
  EXPECT_EQ(init.qp_type, IBV_QPT_DRIVER);
  EXPECT_GE(init.cap.max_send_wr, node.options.send_wr);
}

}  // namespace
}  // namespace sluice::conformance
