// SPDX-License-Identifier: Apache-2.0
//
// What was seen on a real kernel, fact by fact (docs/facts.md, "RDMA_CM on a kernel"), on a virtual
// clock. Each test names its fact; kernel_numbers_test has 111 to 116, kernel_loss_test 117 to 121.
#include "tests/transport/softdc/cm/two_ends.h"

namespace sluice::softdc::cm {
namespace kernel_facts_test {

struct KernelFacts : ::testing::Test {
  TwoEnds ends;
};

std::string Padded(const std::string& data, size_t bytes) {
  return data + std::string(bytes - data.size(), '\0');
}

TEST_F(KernelFacts, Fact100OrderOfEventsWithExternalQueuePairs) {
  ends.Listen();
  rdma_cm_id* id = ends.Resolved();
  ASSERT_EQ(ends.Connect(id, 5), 0);
  ends.Run(kSecond);
  EXPECT_EQ(ends.Story(), "S CONNECT_REQUEST");
  ASSERT_EQ(ends.Accept(ends.Last('S', RDMA_CM_EVENT_CONNECT_REQUEST), 6), 0);
  ends.Run(kSecond);
  EXPECT_EQ(ends.Story(), "S CONNECT_REQUEST, C CONNECT_RESPONSE");
  ASSERT_EQ(establish(id), 0);
  ends.Run(kLongNs);
  EXPECT_EQ(ends.Story(), "S CONNECT_REQUEST, C CONNECT_RESPONSE, S ESTABLISHED");
}

TEST_F(KernelFacts, Fact101AttributesWithoutAQueuePairOnTheId) {
  ends.Listen();
  rdma_cm_id* id = ends.Resolved();
  ASSERT_EQ(ends.Connect(id, 5), 0);
  ends.Run(kSecond);
  rdma_cm_id* request = ends.Last('S', RDMA_CM_EVENT_CONNECT_REQUEST);
  struct Row {
    ibv_qp_state state;
    int mask;
  };
  constexpr Row kRows[] = {{IBV_QPS_INIT, 0x39}, {IBV_QPS_RTR, 0x129181}, {IBV_QPS_RTS, 0x12e01}};
  ibv_qp_attr attr{};
  int mask = 0;
  for (const Row& row : kRows) {  // the server has all of it with the request
    attr.qp_state = row.state;
    EXPECT_EQ(init_qp_attr(request, &attr, &mask), 0);
    EXPECT_EQ(mask, row.mask);
  }
  EXPECT_EQ(attr.retry_cnt, 7);
  EXPECT_EQ(attr.rnr_retry, 7);
  EXPECT_EQ(attr.min_rnr_timer, 0);
  attr.qp_state = IBV_QPS_RTR;
  EXPECT_EQ(init_qp_attr(id, &attr, &mask), -1);  // the client with the response
  ASSERT_EQ(ends.Accept(request, 6), 0);
  ends.Run(kSecond);
  for (const Row& row : kRows) {
    attr.qp_state = row.state;
    EXPECT_EQ(init_qp_attr(id, &attr, &mask), 0);
    EXPECT_EQ(mask, row.mask);
  }
  EXPECT_EQ(attr.dest_qp_num, 6u);
}

TEST_F(KernelFacts, Fact102WhatTheEventsCarry) {
  ends.Listen();
  rdma_cm_id* id = ends.Resolved();
  ASSERT_EQ(ends.Connect(id, 5, "hello"), 0);
  ends.Run(kSecond);
  const Heard request = ends.told.back();
  EXPECT_EQ(request.seen.conn.qp_num, 5u);
  EXPECT_EQ(request.seen.conn.retry_count, 7);
  EXPECT_EQ(request.seen.conn.rnr_retry_count, 7);
  EXPECT_EQ(request.seen.conn.flow_control, 0);
  EXPECT_EQ(request.seen.conn.responder_resources, 4);
  EXPECT_EQ(request.seen.conn.initiator_depth, 4);
  ASSERT_EQ(ends.Accept(request.seen.id, 6), 0);
  ends.Run(kSecond);
  EXPECT_EQ(ends.told.back().seen.conn.qp_num, 6u);
  EXPECT_EQ(ends.told.back().seen.conn.retry_count, 0);
  ASSERT_EQ(establish(id), 0);
  ends.Run(kSecond);
  EXPECT_EQ(ends.told.back().seen.conn.qp_num, 0u);
  EXPECT_EQ(ends.told.back().seen.data, "");
}

TEST_F(KernelFacts, Fact103EceKeepsTheRequestersVendorIn24Bits) {
  struct Row {
    ibv_ece client_sets, server_sets, server_reads, client_reads;
  };
  const Row rows[] = {
      {{0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}},
      {{0x15b3, 1, 0}, {0, 0, 0}, {0x15b3, 1, 0}, {0x15b3, 0, 0}},
      {{0, 0, 0}, {0x15b3, 2, 0}, {0, 0, 0}, {0, 2, 0}},
      {{0x15b3, 0xffffffff, 0},
       {0x15b3, 0x80000001, 0},
       {0x15b3, 0xffffffff, 0},
       {0x15b3, 0x80000001, 0}},
      {{0xffffff, 0x12345678, 0},
       {0xffffff, 0x87654321, 0},
       {0xffffff, 0x12345678, 0},
       {0xffffff, 0x87654321, 0}},
      {{0x1ffffff, 5, 0}, {0xff000001, 6, 0}, {0xffffff, 5, 0}, {0xffffff, 6, 0}},
      {{0, 7, 0}, {0, 8, 0}, {0, 0, 0}, {0, 0, 0}},  // refused by the call
      {{0x15b3, 0, 0}, {0x15b3, 0, 0}, {0x15b3, 0, 0}, {0x15b3, 0, 0}},
  };
  ends.Listen();
  uint32_t number = 100;
  for (Row row : rows) {
    const auto set = [](rdma_cm_id* id, ibv_ece ece) {
      const int expected = ece.vendor_id != 0 ? 0 : -1;
      EXPECT_EQ(set_local_ece(id, &ece), expected);
    };
    rdma_cm_id* id = ends.Resolved();
    set(id, row.client_sets);
    ASSERT_EQ(ends.Connect(id, number++), 0);
    ends.Run(kSecond);
    const Heard request = ends.told.back();
    EXPECT_EQ(request.ece.vendor_id, row.server_reads.vendor_id);
    EXPECT_EQ(request.ece.options, row.server_reads.options);
    set(request.seen.id, row.server_sets);
    ASSERT_EQ(ends.Accept(request.seen.id, number++), 0);
    ends.Run(kSecond);
    EXPECT_EQ(ends.told.back().ece.vendor_id, row.client_reads.vendor_id);
    EXPECT_EQ(ends.told.back().ece.options, row.client_reads.options);
    EXPECT_EQ(ends.told.back().ece.comp_mask, 0u);
    ASSERT_EQ(establish(id), 0);
    ends.Run(kSecond);
    EXPECT_EQ(ends.told.back().ece.options, row.server_reads.options);  // still
  }
}

TEST_F(KernelFacts, Fact104PrivateDataComesAtFullLength) {
  ends.Listen();
  for (const size_t bytes : {0u, 1u, 56u}) {
    const std::string data(bytes, 'q');
    rdma_cm_id* id = ends.Resolved();
    ASSERT_EQ(ends.Connect(id, static_cast<uint32_t>(10 + bytes), data), 0);
    ends.Run(kSecond);
    EXPECT_EQ(ends.told.back().seen.data, Padded(data, 56));
    rdma_cm_id* request = ends.told.back().seen.id;
    ASSERT_EQ(ends.Accept(request, static_cast<uint32_t>(100 + bytes), data), 0);
    ends.Run(kSecond);
    EXPECT_EQ(ends.told.back().seen.data, Padded(data, 196));
    rdma_cm_id* other = ends.Resolved();
    ASSERT_EQ(ends.Connect(other, static_cast<uint32_t>(200 + bytes)), 0);
    ends.Run(kSecond);
    ASSERT_EQ(reject(ends.told.back().seen.id, data.data(), static_cast<uint8_t>(bytes)), 0);
    ends.Run(kSecond);
    EXPECT_EQ(ends.told.back().seen.status, 28);
    EXPECT_EQ(ends.told.back().seen.data, Padded(data, 148));
  }
}

TEST_F(KernelFacts, Fact105TooMuchPrivateData) {
  ends.Listen();
  rdma_cm_id* id = ends.Resolved();
  for (const size_t bytes : {57u, 100u, 255u}) {
    EXPECT_EQ(ends.Connect(id, 5, std::string(bytes, 'x')), -1);
    EXPECT_EQ(errno, EINVAL);
  }
  ASSERT_EQ(ends.Connect(id, 5), 0);
  ends.Run(kSecond);
  rdma_cm_id* request = ends.told.back().seen.id;
  const std::string data(149, 'x');
  EXPECT_EQ(reject(request, data.data(), 149), -1);
  ends.Run(kSecond);
  EXPECT_EQ(ends.Story(), "S CONNECT_REQUEST");  // a refused reject changes nothing
  EXPECT_EQ(ends.Accept(request, 6, std::string(197, 'x')), -1);
  EXPECT_EQ(errno, EINVAL);
  ends.Run(kSecond);  // a refused accept ends the attempt
  EXPECT_EQ(ends.Story(), "S CONNECT_REQUEST, C REJECTED 28");
}

TEST_F(KernelFacts, Fact106DisconnectWithoutAnAnswer) {
  ends.Listen();
  const Connection made = ends.Establish(5, 6);
  const int64_t start_ns = ends.network.now_ns();
  ASSERT_EQ(disconnect(made.client), 0);
  ends.Run(kAllRetriesNs - kMillisecond);
  EXPECT_EQ(ends.Story(), "S DISCONNECTED");
  EXPECT_LT(ends.told[0].at_ns - start_ns, 10 * kMillisecond);
  ends.Run(kMillisecond);
  EXPECT_EQ(ends.Story(), "S DISCONNECTED, C DISCONNECTED -110");
  EXPECT_NEAR(static_cast<double>(ends.told[1].at_ns - start_ns), 102.4e9, 0.5e9);
  ends.Run(5 * kSecond);
  EXPECT_EQ(ends.Story(), "S DISCONNECTED, C DISCONNECTED -110, C TIMEWAIT_EXIT");
  EXPECT_EQ(disconnect(made.server), 0);  // late
  ends.Run(5 * kSecond);
  EXPECT_EQ(ends.Story(), "S DISCONNECTED, C DISCONNECTED -110, C TIMEWAIT_EXIT, S TIMEWAIT_EXIT");
}

TEST_F(KernelFacts, Fact107TimewaitEndsOnBothSidesAfterTheAnswer) {
  ends.Listen();
  const Connection made = ends.Establish(5, 6);
  ASSERT_EQ(disconnect(made.client), 0);
  ends.Run(2 * kSecond);
  EXPECT_EQ(ends.Story(), "S DISCONNECTED");  // one side answers two seconds late
  ends.told.clear();
  const int64_t answer_ns = ends.network.now_ns();
  ASSERT_EQ(disconnect(made.server), 0);
  ends.Run(10 * kSecond);
  EXPECT_EQ(ends.Story(), "C DISCONNECTED, S TIMEWAIT_EXIT, C TIMEWAIT_EXIT");
  EXPECT_EQ(ends.told[1].seen.status, 0);
  const int64_t expected_ns = TimewaitNs(AckTimeout(kCaAckDelay, kRocePacketLifetime));
  EXPECT_EQ(ends.told[1].at_ns - answer_ns, expected_ns);
}

// Soft RoCE says 15 for its own delay. The values were seen there, as kernel 6.1 (lifetime 18) and
// 6.12 (lifetime 16) have them.
TEST(KernelFactsOfTime, Fact108AckTimeoutsOfQueuePairsAndTimewait) {
  constexpr uint8_t kSoftRoceDelay = 15;
  struct Row {
    uint8_t lifetime, timeout;
    int64_t seen_ms;
  };
  constexpr Row kRows[] = {{18, 19, 2240}, {16, 17, 541}, {7, 15, 135}, {13, 16, 273}};
  for (const Row& row : kRows) {
    const uint8_t timeout = AckTimeout(kSoftRoceDelay, row.lifetime);
    EXPECT_EQ(timeout, row.timeout);
    const int64_t timewait_ms = TimewaitNs(timeout) / kMillisecond;
    EXPECT_LE(timewait_ms, row.seen_ms);  // what was seen includes an emulated machine's delays
    EXPECT_GE(timewait_ms, row.seen_ms * 9 / 10);
  }
}

TEST_F(KernelFacts, Fact108OptionMustComeBeforeTheRoute) {
  ends.Listen();
  const Connection early = ends.Establish(5, 6, /*ack_timeout=*/17);
  ibv_qp_attr attr{};
  int mask = 0;
  attr.qp_state = IBV_QPS_RTS;
  ASSERT_EQ(init_qp_attr(early.client, &attr, &mask), 0);
  EXPECT_EQ(attr.timeout, 17);
  ASSERT_EQ(init_qp_attr(early.server, &attr, &mask), 0);
  EXPECT_EQ(attr.timeout, AckTimeout(kCaAckDelay, 16));  // from the path, and another value
  const Connection late = ends.Establish(7, 8);
  uint8_t much = 25;
  ASSERT_EQ(set_option(late.client, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &much, 1), 0);
  ASSERT_EQ(disconnect(late.client), 0);
  ends.Run(kSecond);
  ASSERT_EQ(disconnect(late.server), 0);
  ends.Run(3 * kSecond);
  EXPECT_EQ(ends.Count('C', RDMA_CM_EVENT_TIMEWAIT_EXIT), 1);
}

TEST_F(KernelFacts, Fact109IdDestroyedWithoutDisconnect) {
  ends.Listen();
  const Connection made = ends.Establish(5, 6);
  ends.Destroy(made.client);
  ends.Run(kLongNs);
  EXPECT_EQ(ends.Story(), "S DISCONNECTED");  // and no TIMEWAIT_EXIT without an answer
}

TEST_F(KernelFacts, Fact110RequestsThatNobodyWants) {
  rdma_cm_id* id = ends.Client();
  sockaddr_in nobody = Ipv4("10.0.0.2", TwoEnds::kPort);
  ends.Listen();
  nobody.sin_port = htons(99);
  ASSERT_EQ(resolve_addr(id, nullptr, Generic(&nobody), 1000), 0);
  ends.Run(kSecond);
  ASSERT_EQ(resolve_route(id, 1000), 0);
  ends.Run(kSecond);
  ends.told.clear();
  ASSERT_EQ(ends.Connect(id, 5), 0);
  ends.Run(kSecond);
  EXPECT_EQ(ends.Story(), "C REJECTED 8");
  rdma_cm_id* other = ends.Resolved();
  ASSERT_EQ(ends.Connect(other, 6), 0);
  ends.Run(kSecond);
  ends.Destroy(ends.Last('S', RDMA_CM_EVENT_CONNECT_REQUEST));
  ends.Run(kSecond);
  EXPECT_EQ(ends.Story(), "S CONNECT_REQUEST, C REJECTED 28");
}

}  // namespace kernel_facts_test
}  // namespace sluice::softdc::cm
