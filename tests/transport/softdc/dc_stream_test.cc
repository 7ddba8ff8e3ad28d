// SPDX-License-Identifier: Apache-2.0
//
// DCI streams: isolation of an errored stream, the budget, reset, and recovery of the whole DCI.
#include <cstring>

#include "gtest/gtest.h"
#include "tests/transport/softdc/dc_node.h"
#include "transport/softdc/model/qp_transitions.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace dc_stream_test {

constexpr uint32_t kBadKey = 0xffffff01;

ibv_qp_state StateOf(DcNode& node) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  EXPECT_EQ(QueryQp(node.dci, &attr, IBV_QP_STATE, &init), 0);
  return attr.qp_state;
}

// An error that the far end reports at once: a write with a key that names nothing.
void BreakStream(DcNode& a, const DcAddress& to, uint16_t stream) {
  ASSERT_EQ(a.Write(to, 0, "x", 1000 + stream, stream, kBadKey), 0);
  ASSERT_EQ(a.PollSend().status, IBV_WC_REM_ACCESS_ERR);
}

TEST(DcStream, ErroredStreamFlushesAndOthersGoOn) {
  DcNode a, b;
  const DcAddress to = b.Address();
  BreakStream(a, to, 1);
  ASSERT_EQ(a.Send(to, "same stream", 2, 1), 0);
  const ibv_wc flushed = a.PollSend();
  EXPECT_EQ(flushed.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(flushed.wr_id, 2u);
  ASSERT_EQ(a.Send(to, "other stream", 3, 2), 0);
  EXPECT_EQ(a.PollSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(b.ReceivedText(b.PollReceive()), "other stream");
  EXPECT_EQ(StateOf(a), IBV_QPS_RTS);
}

TEST(DcStream, ResetMakesTheStreamUsableAgain) {
  DcNode a, b;
  const DcAddress to = b.Address();
  BreakStream(a, to, 1);
  ASSERT_EQ(DvDciStreamIdReset(a.dci, 1), 0);
  ASSERT_EQ(a.Send(to, "again", 2, 1), 0);
  EXPECT_EQ(a.PollSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(b.ReceivedText(b.PollReceive()), "again");
}

TEST(DcStream, ResetOfAHealthyStreamIsRefused) {
  DcNode a, b;
  EXPECT_EQ(DvDciStreamIdReset(a.dci, 1), EINVAL);
  BreakStream(a, b.Address(), 1);
  EXPECT_EQ(DvDciStreamIdReset(a.dci, 2), EINVAL);
}

TEST(DcStream, ResetOfADctIsRefused) {
  DcNode a;
  EXPECT_EQ(DvDciStreamIdReset(a.dct, 1), EINVAL);
}

TEST(DcStream, BudgetOfErroredStreamsSpentStopsTheQueue) {
  DcNode a({.log_errored_streams = 2}), b;
  const DcAddress to = b.Address();
  for (uint16_t stream = 1; stream <= 3; ++stream) BreakStream(a, to, stream);
  EXPECT_EQ(StateOf(a), IBV_QPS_RTS);
  // The WR that crosses the threshold reports its own status; the next of any stream is flushed.
  BreakStream(a, to, 4);
  EXPECT_EQ(a.dci->state, IBV_QPS_RTS);  // nobody asked yet
  EXPECT_EQ(StateOf(a), IBV_QPS_ERR);
  EXPECT_EQ(a.dci->state, IBV_QPS_ERR);
  ASSERT_EQ(a.Send(to, "x", 9, 7), 0);
  EXPECT_EQ(a.PollSend().status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(DvDciStreamIdReset(a.dci, 1), EOPNOTSUPP);
}

TEST(DcStream, ResetGivesBudgetBack) {
  DcNode a({.log_errored_streams = 1}), b;
  const DcAddress to = b.Address();
  for (int i = 0; i < 10; ++i) {
    BreakStream(a, to, 1);
    ASSERT_EQ(DvDciStreamIdReset(a.dci, 1), 0);
  }
  EXPECT_EQ(StateOf(a), IBV_QPS_RTS);
}

TEST(DcStream, SameStreamTwiceCountsOnce) {
  DcNode a({.log_errored_streams = 1}), b;
  BreakStream(a, b.Address(), 1);
  ASSERT_EQ(a.Write(b.Address(), 0, "x", 1, 1, kBadKey), 0);
  EXPECT_EQ(a.PollSend().status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(StateOf(a), IBV_QPS_RTS);
}

TEST(DcStream, WithoutStreamsTheFirstErrorStopsTheQueue) {
  DcNode a({.streams = false}), b;
  ASSERT_EQ(a.Write(b.Address(), 0, "x", 1, 0, kBadKey), 0);
  EXPECT_EQ(a.PollSend().status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(StateOf(a), IBV_QPS_ERR);
  EXPECT_EQ(DvDciStreamIdReset(a.dci, 0), EOPNOTSUPP);
}

TEST(DcStream, ErrorFlushesWhatWaitsInOtherStreamsOnceTheBudgetIsSpent) {
  DcNode a({.log_errored_streams = 0}), b, empty({.receives = 0});
  ASSERT_EQ(a.Send(empty.Address(), "waits", 1, 5), 0);
  ASSERT_EQ(a.Write(b.Address(), 0, "x", 2, 6, kBadKey), 0);
  const ibv_wc first = a.PollSend();
  EXPECT_EQ(first.wr_id, 1u);
  EXPECT_EQ(first.status, IBV_WC_WR_FLUSH_ERR);
  const ibv_wc second = a.PollSend();
  EXPECT_EQ(second.wr_id, 2u);
  EXPECT_EQ(second.status, IBV_WC_REM_ACCESS_ERR);
}

TEST(DcStream, RecoveryByResetKeepsTheNumberAndForgetsCompletions) {
  DcNode a({.streams = false}), b;
  const DcAddress to = b.Address();
  const uint32_t number = a.dci->qp_num;
  ASSERT_EQ(a.Write(to, 0, "x", 1, 0, kBadKey), 0);
  a.Recover();
  ibv_wc none;
  EXPECT_EQ(ibv_poll_cq(a.send_cq, 1, &none), 0);
  EXPECT_EQ(a.dci->qp_num, number);
  ASSERT_EQ(a.Send(to, "back", 2), 0);
  EXPECT_EQ(a.PollSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(b.ReceivedText(b.PollReceive()), "back");
}

TEST(DcStream, PostingBeforeReadyToSendIsRefused) {
  DcNode a, b;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RESET;
  ASSERT_EQ(ModifyQp(a.dci, &attr, IBV_QP_STATE), 0);
  EXPECT_EQ(a.Send(b.Address(), "x", 1), EINVAL);
}

TEST(QpTransitions, PrintedTables) {
  EXPECT_EQ(PrintTransitions(DciTransitions()),
            "RESET -> INIT  required PKEY_INDEX|PORT  optional -\n"
            "INIT -> INIT  required -  optional PKEY_INDEX|PORT\n"
            "INIT -> RTR  required PATH_MTU  optional PKEY_INDEX|AV\n"
            "RTR -> RTS  required TIMEOUT|RETRY_CNT|RNR_RETRY|MAX_QP_RD_ATOMIC|SQ_PSN  optional "
            "MIN_RNR_TIMER\n"
            "RTS -> RTS  required -  optional MIN_RNR_TIMER\n"
            "any -> RESET  required -  optional -\n"
            "INIT -> ERR  required -  optional -\n"
            "RTR -> ERR  required -  optional -\n"
            "RTS -> ERR  required -  optional -\n"
            "ERR -> ERR  required -  optional -\n");
  EXPECT_EQ(PrintTransitions(DctTransitions()),
            "RESET -> INIT  required ACCESS_FLAGS|PKEY_INDEX|PORT  optional -\n"
            "INIT -> RTR  required AV|PATH_MTU|MIN_RNR_TIMER  optional -\n");
}

TEST(QpTransitions, MaskWithOneBitMoreOrLessIsRefused) {
  const int all[] = {
      IBV_QP_ACCESS_FLAGS,     IBV_QP_PKEY_INDEX,    IBV_QP_PORT,      IBV_QP_AV,
      IBV_QP_PATH_MTU,         IBV_QP_TIMEOUT,       IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY,
      IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER, IBV_QP_SQ_PSN,    IBV_QP_CUR_STATE};
  for (const auto& table : {DciTransitions(), DctTransitions()}) {
    for (const QpTransition& row : table) {
      const auto from = static_cast<ibv_qp_state>(row.from == kAnyState ? IBV_QPS_RTS : row.from);
      const auto to = static_cast<ibv_qp_state>(row.to);
      ASSERT_NE(FindTransition(table, from, to, row.required | IBV_QP_STATE), nullptr);
      for (const int bit : all) {
        const int mask = row.required ^ bit;
        const bool allowed = (row.required & bit) == 0 && (row.optional & bit) != 0;
        EXPECT_EQ(FindTransition(table, from, to, mask | IBV_QP_STATE) != nullptr, allowed);
      }
    }
  }
}

TEST(Dct, HasNoNumberBeforeReadyToReceiveAndIsNeverRecycled) {
  DcNode a;
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  for (const ibv_qp_state state : {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTS, IBV_QPS_ERR}) {
    attr.qp_state = state;
    EXPECT_EQ(ModifyQp(a.dct, &attr, IBV_QP_STATE), EINVAL);
  }
  EXPECT_EQ(QueryQp(a.dct, &attr, IBV_QP_STATE | IBV_QP_PATH_MTU, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_RTR);
  EXPECT_EQ(attr.path_mtu, IBV_MTU_4096);
  EXPECT_EQ(QueryQp(a.dct, &attr, IBV_QP_TIMEOUT, &init), EINVAL);
}

}  // namespace dc_stream_test
}  // namespace sluice::softdc
