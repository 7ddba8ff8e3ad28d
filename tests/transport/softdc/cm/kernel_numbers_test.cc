// SPDX-License-Identifier: Apache-2.0
//
// Numbers that are used again, as a real kernel treats them (docs/facts.md, 111 to 116).
#include "tests/transport/softdc/cm/two_ends.h"

namespace sluice::softdc::cm {
namespace kernel_numbers_test {

using Where = TwoEnds::Where;

struct KernelNumbers : ::testing::Test {
  TwoEnds ends;
};

TEST_F(KernelNumbers, Fact111ClientsNumberAgainIsStaleAndEndsTheOlderConnection) {
  ends.Listen();
  const Connection first = ends.Establish(5, 6);
  rdma_cm_id* second = ends.Resolved();
  ASSERT_EQ(ends.Connect(second, 5), 0);
  // The server's application hears nothing, the first connection is torn down, nothing is repeated.
  ends.Run(50 * kSecond);
  ASSERT_EQ(ends.told.size(), 2u) << ends.Story();
  for (const Heard& event : ends.told) {
    EXPECT_EQ(event.side, 'C');
    if (event.seen.id == second) {
      EXPECT_EQ(event.seen.type, RDMA_CM_EVENT_REJECTED);
      EXPECT_EQ(event.seen.status, 10);
    } else {
      EXPECT_EQ(event.seen.id, first.client);
      EXPECT_EQ(event.seen.type, RDMA_CM_EVENT_DISCONNECTED);
    }
  }
  ends.told.clear();
  ASSERT_EQ(disconnect(first.client), 0);  // now the server's side hears of it
  ends.Run(100 * kMillisecond);
  EXPECT_EQ(ends.Story(), "S DISCONNECTED");
}

TEST_F(KernelNumbers, Fact112ServersNumberAgainIsRepeatedUntilUnreachable) {
  ends.Listen();
  const Connection first = ends.Establish(5, 6);
  rdma_cm_id* second = ends.Resolved();
  ends.on = [this](const Heard& event) {
    if (event.seen.type != RDMA_CM_EVENT_CONNECT_REQUEST) return;
    EXPECT_EQ(ends.Accept(event.seen.id, 6), 0);
  };
  const int64_t start_ns = ends.network.now_ns();
  ASSERT_EQ(ends.Connect(second, 7), 0);
  ends.Run(kSecond);
  EXPECT_EQ(ends.Count('S', RDMA_CM_EVENT_CONNECT_REQUEST), 1);
  EXPECT_EQ(ends.Count('S', RDMA_CM_EVENT_REJECTED), 1);
  EXPECT_EQ(ends.Last('S', RDMA_CM_EVENT_DISCONNECTED), first.server);
  EXPECT_EQ(ends.Count('C', RDMA_CM_EVENT_REJECTED), 0);
  ends.Run(200 * kSecond);
  EXPECT_EQ(ends.Count('S', RDMA_CM_EVENT_CONNECT_REQUEST), 16);  // a new id each time
  EXPECT_EQ(ends.Count('S', RDMA_CM_EVENT_REJECTED), 16);
  const Heard* unreachable = nullptr;
  const Heard* disconnected = nullptr;
  for (const Heard& event : ends.told) {
    if (event.side != 'C') continue;
    if (event.seen.type == RDMA_CM_EVENT_UNREACHABLE) unreachable = &event;
    if (event.seen.type == RDMA_CM_EVENT_DISCONNECTED) disconnected = &event;
  }
  ASSERT_NE(unreachable, nullptr) << ends.Story();
  EXPECT_EQ(unreachable->seen.id, second);
  EXPECT_EQ(unreachable->seen.status, -ETIMEDOUT);
  EXPECT_NEAR(static_cast<double>(unreachable->at_ns - start_ns), 102.4e9, 0.5e9);
  // The first connection's end, which the server's application never answered.
  ASSERT_NE(disconnected, nullptr) << ends.Story();
  EXPECT_EQ(disconnected->seen.id, first.client);
  EXPECT_EQ(disconnected->seen.status, -ETIMEDOUT);
}

TEST_F(KernelNumbers, Fact113NumbersAreFreeOnceBothHaveDisconnected) {
  ends.Listen();
  const Connection first = ends.Establish(5, 6);
  ASSERT_EQ(disconnect(first.client), 0);
  ends.Run(kSecond);
  rdma_cm_id* early = ends.Resolved();
  ASSERT_EQ(ends.Connect(early, 5), 0);  // the peer has not answered: as in use
  ends.Run(kSecond);
  EXPECT_EQ(ends.told.back().seen.status, 10);
  ASSERT_EQ(disconnect(first.server), 0);
  ends.Run(10 * kMillisecond);
  const Connection second = ends.Establish(5, 6);  // long before TIMEWAIT_EXIT
  ASSERT_NE(second.server, nullptr);
  ends.Destroy(second.client);  // both gone while connected
  ends.Destroy(second.server);
  ends.Run(10 * kMillisecond);
  const Connection third = ends.Establish(5, 6);
  ASSERT_NE(third.server, nullptr);
  ASSERT_EQ(disconnect(third.client), 0);
  ends.Run(10 * kMillisecond);
  ASSERT_EQ(disconnect(third.server), 0);
  ends.Run(10 * kSecond);  // past TIMEWAIT_EXIT
  EXPECT_NE(ends.Establish(5, 6).server, nullptr);
}

TEST_F(KernelNumbers, Fact114ThousandOnOneClientNumber) {
  ends.Listen();
  constexpr int kCount = 1000;
  std::vector<rdma_cm_id*> ids;
  for (int i = 0; i < kCount; ++i) ids.push_back(ends.Resolved());
  uint32_t number = 10'000;
  ends.on = [&](const Heard& event) {
    if (event.seen.type == RDMA_CM_EVENT_CONNECT_REQUEST) ends.Accept(event.seen.id, number++);
  };
  for (rdma_cm_id* id : ids) ASSERT_EQ(ends.Connect(id, 5), 0);
  ends.Run(5 * kSecond);
  EXPECT_EQ(ends.Count('S', RDMA_CM_EVENT_CONNECT_REQUEST), 1);
  EXPECT_EQ(ends.Count('C', RDMA_CM_EVENT_CONNECT_RESPONSE), 1);
  EXPECT_EQ(ends.Count('C', RDMA_CM_EVENT_REJECTED), kCount - 1);
}

TEST_F(KernelNumbers, Fact114ManyOnOneServerNumberAreRepeatedEvery6400Milliseconds) {
  ends.Listen();
  constexpr int kCount = 100;
  std::vector<rdma_cm_id*> ids;
  for (int i = 0; i < kCount; ++i) ids.push_back(ends.Resolved());
  ends.on = [&](const Heard& event) {
    if (event.seen.type == RDMA_CM_EVENT_CONNECT_REQUEST) ends.Accept(event.seen.id, 6);
    if (event.seen.type == RDMA_CM_EVENT_CONNECT_RESPONSE) establish(event.seen.id);
  };
  for (int i = 0; i < kCount; ++i) {
    ASSERT_EQ(ends.Connect(ids[static_cast<size_t>(i)], 100 + static_cast<uint32_t>(i)), 0);
  }
  ends.Run(60 * kSecond);
  // One is established; each other comes at 0, 6.4 ... 57.6 s.
  EXPECT_EQ(ends.Count('S', RDMA_CM_EVENT_CONNECT_REQUEST), (kCount - 1) * 10 + 1);
  EXPECT_EQ(ends.Count('S', RDMA_CM_EVENT_REJECTED), (kCount - 1) * 10);
  EXPECT_EQ(ends.Count('C', RDMA_CM_EVENT_CONNECT_RESPONSE), 1);
  EXPECT_EQ(ends.Count('C', RDMA_CM_EVENT_REJECTED), 0);
}

TEST_F(KernelNumbers, Fact115AnyNumberIsTakenAndCutTo24Bits) {
  ends.Listen();
  struct Row {
    uint32_t given, seen;
  };
  constexpr Row kRows[] = {{0, 0},         {1, 1},         {2, 2}, {0xffffff, 0xffffff},
                           {0x1000005, 5}, {0x77000009, 9}};
  for (const Row& row : kRows) {
    rdma_cm_id* id = ends.Resolved();
    ASSERT_EQ(ends.Connect(id, row.given), 0);
    ends.Run(kSecond);
    ASSERT_EQ(ends.told.back().seen.type, RDMA_CM_EVENT_CONNECT_REQUEST);
    EXPECT_EQ(ends.told.back().seen.conn.qp_num, row.seen);
    ASSERT_EQ(ends.Accept(ends.told.back().seen.id, row.given + 0x1000), 0);
    ends.Run(kSecond);
    EXPECT_EQ(ends.told.back().seen.conn.qp_num, (row.given + 0x1000) & 0xffffff);
  }
}

TEST_F(KernelNumbers, Fact116SameNumberAtBothEndsOfTwoDevicesConnects) {
  ends.Listen();
  EXPECT_NE(ends.Establish(9, 9).server, nullptr);
}

TEST(KernelNumbersOnOneDevice, Fact116SameNumberAtBothEndsOfOneDeviceIsStale) {
  TwoEnds ends(Where::kOneDevice);
  ends.Listen();
  rdma_cm_id* id = ends.Resolved();
  ends.on = [&](const Heard& event) {
    if (event.seen.type == RDMA_CM_EVENT_CONNECT_REQUEST) ends.Accept(event.seen.id, 9);
  };
  ASSERT_EQ(ends.Connect(id, 9), 0);
  ends.Run(kSecond);
  EXPECT_EQ(ends.Story(), "S CONNECT_REQUEST, S REJECTED 10");
  ends.Run(kRetryNs);
  EXPECT_EQ(ends.Count('S', RDMA_CM_EVENT_REJECTED), 2);
}

}  // namespace kernel_numbers_test
}  // namespace sluice::softdc::cm
