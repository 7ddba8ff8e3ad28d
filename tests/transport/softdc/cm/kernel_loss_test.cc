// SPDX-License-Identifier: Apache-2.0
//
// Answers that never come, and messages that are lost, as a real kernel treats them (docs/facts.md,
// 117 to 121).
#include "tests/transport/softdc/cm/two_ends.h"

namespace sluice::softdc::cm {
namespace kernel_loss_test {

using Where = TwoEnds::Where;

struct KernelLoss : ::testing::Test {
  TwoEnds ends;
};

TEST_F(KernelLoss, Fact117ApplicationsThatNeverAnswerAreWaitedFor) {
  ends.Listen();
  rdma_cm_id* id = ends.Resolved();
  ASSERT_EQ(ends.Connect(id, 5), 0);
  ends.Run(kLongNs);
  EXPECT_EQ(ends.Story(), "S CONNECT_REQUEST");
  ASSERT_EQ(ends.Accept(ends.Last('S', RDMA_CM_EVENT_CONNECT_REQUEST), 6), 0);
  ends.Run(kLongNs);
  EXPECT_EQ(ends.Story(), "S CONNECT_REQUEST, C CONNECT_RESPONSE");
  ASSERT_EQ(establish(id), 0);
  ends.Run(kSecond);
  EXPECT_EQ(ends.Story(), "S CONNECT_REQUEST, C CONNECT_RESPONSE, S ESTABLISHED");
}

TEST_F(KernelLoss, Fact117ClientThatWentAwayShowsOnlyInTheAccept) {
  ends.Listen();
  rdma_cm_id* id = ends.Resolved();
  ASSERT_EQ(ends.Connect(id, 5), 0);
  ends.Run(kSecond);
  rdma_cm_id* request = ends.Last('S', RDMA_CM_EVENT_CONNECT_REQUEST);
  ends.Destroy(id);
  ends.Run(kLongNs);
  EXPECT_EQ(ends.Story(), "S CONNECT_REQUEST");
  EXPECT_EQ(ends.Accept(request, 6), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(KernelLoss, Fact118NotifyStandsForTheLastMessage) {
  ends.Listen();
  rdma_cm_id* id = ends.Resolved();
  ASSERT_EQ(ends.Connect(id, 5), 0);
  ends.Run(kSecond);
  rdma_cm_id* request = ends.Last('S', RDMA_CM_EVENT_CONNECT_REQUEST);
  ASSERT_EQ(ends.Accept(request, 6), 0);
  ends.Run(kSecond);
  EXPECT_EQ(notify(request, IBV_EVENT_COMM_EST), 0);
  ends.Run(kSecond);
  EXPECT_EQ(ends.Count('S', RDMA_CM_EVENT_ESTABLISHED), 1);
  EXPECT_EQ(establish(id), 0);
  ends.Run(kSecond);
  EXPECT_EQ(ends.Count('S', RDMA_CM_EVENT_ESTABLISHED), 1);
}

TEST_F(KernelLoss, Fact119BacklogCountsWhatNobodyHasRead) {
  // Requests are read as they come only with `on`; here all of them wait in the channel.
  TwoEnds reader;
  reader.Listen(/*backlog=*/0);
  for (uint32_t i = 0; i < 20; ++i) ASSERT_EQ(reader.Connect(reader.Resolved(), 100 + i), 0);
  reader.Run(kSecond);
  EXPECT_EQ(reader.Count('S', RDMA_CM_EVENT_CONNECT_REQUEST), 20);  // a default applies
}

TEST_F(KernelLoss, Fact120LostMessagesComeWithTheRepetitions) {
  ends.Listen();
  ends.AnswerAll(/*distance=*/1000);
  constexpr int kCount = 20;
  std::vector<rdma_cm_id*> ids;
  for (int i = 0; i < kCount; ++i) ids.push_back(ends.Resolved());
  ends.network.Lose(/*percent=*/20, /*seed=*/4);
  for (int i = 0; i < kCount; ++i) {
    ASSERT_EQ(ends.Connect(ids[static_cast<size_t>(i)], 100 + static_cast<uint32_t>(i)), 0);
  }
  ends.Run(kSecond);
  const int at_once = ends.Count('S', RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_GT(at_once, 0);
  EXPECT_LT(at_once, kCount);
  ends.Run(10 * kSecond);
  EXPECT_GT(ends.Count('S', RDMA_CM_EVENT_ESTABLISHED), at_once);
  ends.Run(400 * kSecond);
  EXPECT_EQ(ends.Count('S', RDMA_CM_EVENT_ESTABLISHED), kCount);
  EXPECT_EQ(ends.Count('S', RDMA_CM_EVENT_CONNECT_REQUEST), kCount);  // each only once
  EXPECT_EQ(ends.Count('C', RDMA_CM_EVENT_CONNECT_RESPONSE), kCount);
  // And apart again.
  ends.told.clear();
  for (rdma_cm_id* id : ids) ASSERT_EQ(disconnect(id), 0);
  ends.on = [](const Heard& event) {
    if (event.side == 'S') disconnect(event.seen.id);
  };
  ends.Run(400 * kSecond);
  EXPECT_EQ(ends.Count('S', RDMA_CM_EVENT_DISCONNECTED), kCount);
  EXPECT_EQ(ends.Count('C', RDMA_CM_EVENT_DISCONNECTED), kCount);
  EXPECT_EQ(ends.Count('C', RDMA_CM_EVENT_TIMEWAIT_EXIT), kCount);
}

TEST_F(KernelLoss, Fact120EverythingLostIsUnreachable) {
  ends.Listen();
  rdma_cm_id* id = ends.Resolved();
  ends.network.Lose(/*percent=*/100, /*seed=*/1);
  ASSERT_EQ(ends.Connect(id, 5), 0);
  ends.Run(kAllRetriesNs - kMillisecond);
  EXPECT_EQ(ends.Story(), "");
  ends.Run(kSecond);
  EXPECT_EQ(ends.Story(), "C UNREACHABLE -110");
}

TEST_F(KernelLoss, Fact121ThousandPairsOfNumbersAtOnce) {
  ends.Listen();
  ends.AnswerAll(/*distance=*/100'000);
  constexpr int kCount = 1000;
  std::vector<rdma_cm_id*> ids;
  for (int i = 0; i < kCount; ++i) ids.push_back(ends.Resolved());
  for (int i = 0; i < kCount; ++i) {
    ASSERT_EQ(ends.Connect(ids[static_cast<size_t>(i)], 100 + static_cast<uint32_t>(i)), 0);
  }
  ends.Run(kSecond);
  EXPECT_EQ(ends.Count('S', RDMA_CM_EVENT_CONNECT_REQUEST), kCount);
  EXPECT_EQ(ends.Count('C', RDMA_CM_EVENT_CONNECT_RESPONSE), kCount);
  EXPECT_EQ(ends.Count('S', RDMA_CM_EVENT_ESTABLISHED), kCount);
}

TEST(KernelDials, RepetitionAndLifetimeFollowThem) {
  TwoEnds ends(Where::kTwoDevices, {.retry_ns = kSecond, .max_attempts = 3, .packet_lifetime = 18});
  ends.Listen();
  const Connection made = ends.Establish(5, 6);
  ibv_qp_attr attr{};
  int mask = 0;
  attr.qp_state = IBV_QPS_RTS;
  ASSERT_EQ(init_qp_attr(made.client, &attr, &mask), 0);
  EXPECT_EQ(attr.timeout, AckTimeout(kCaAckDelay, 18));
  ASSERT_EQ(disconnect(made.client), 0);
  ends.Run(3 * kSecond - kMillisecond);
  EXPECT_EQ(ends.Count('C', RDMA_CM_EVENT_DISCONNECTED), 0);
  ends.Run(10 * kMillisecond);
  EXPECT_EQ(ends.Count('C', RDMA_CM_EVENT_DISCONNECTED), 1);
}

}  // namespace kernel_loss_test
}  // namespace sluice::softdc::cm
