// SPDX-License-Identifier: Apache-2.0
//
// What a gate hears of calls whose peers are disconnected because of them: each end once, with all it may read still there.
#include "middleware/call/gate.h"

#include <cstring>
#include <string>
#include <vector>

#include "middleware/frame/frame.h"
#include "tests/middleware/call/cluster.h"

namespace sluice::call {
namespace gate_test {

// Counts, and reads all that it is given, as interceptors do.
struct ReadingGate final : Gate {
  absl::Status OnCall(const Incoming& incoming) override {
    ++let_in;
    read += *incoming.peer + *incoming.tenant;
    return absl::OkStatus();
  }
  void OnEnd(const Incoming& incoming, const absl::Status& status, int64_t) override {
    ++ended;
    read += *incoming.peer + *incoming.tenant + std::string(incoming.method->full_name);
    last = status;
  }
  int let_in = 0;
  int ended = 0;
  std::string read;
  absl::Status last;
};

class GateTest : public Cluster {
 protected:
  GateTest() { server_options_.gate = &gate_; }

  ReadingGate gate_;
};

// The server answers, and the client grants no credit.
class GateOverflowTest : public GateTest, public ::testing::WithParamInterface<absl::StatusCode> {};

TEST_P(GateOverflowTest, HearsOfTheCallWhoseReplyOverflowsTheBacklog) {
  fake_options_.credits = 4;
  server_options_.max_waiting_replies_per_peer = 5;
  Connect(1);
  nodes_[0]->answer = absl::Status(GetParam(), "the answer");
  client_end_->set_withhold_credits(true);
  Outcome outcomes[20];
  for (Outcome& outcome : outcomes) ASSERT_TRUE(Start(&outcome).ok());
  Settle();
  EXPECT_EQ(nodes_[0]->engine->counters().overflows, 1u);
  EXPECT_EQ(nodes_[0]->engine->counters().peers_down, 1u);
  EXPECT_EQ(gate_.let_in, 10) << "four replies are sent, five wait, and one finds no place";
  EXPECT_EQ(gate_.ended, gate_.let_in);
  EXPECT_EQ(gate_.last.code(), GetParam());
  for (Outcome& outcome : outcomes) EXPECT_EQ(outcome.ended, 1);
}

INSTANTIATE_TEST_SUITE_P(Answers, GateOverflowTest,
                         ::testing::Values(absl::StatusCode::kOk, absl::StatusCode::kNotFound));

TEST_F(GateTest, HearsOfACallWhoseNumberIsGivenTwice) {
  Connect(1);
  uint64_t first = 0;
  client_end_->set_tamper([&first](std::vector<std::byte>& message) {
    frame::Header header;
    std::memcpy(&header, message.data(), sizeof(header));
    if (header.kind != frame::Kind::kRequest) return 1;
    if (first == 0) first = header.call_id;
    header.call_id = first;
    std::memcpy(message.data(), &header, sizeof(header));
    return 1;
  });
  static constexpr Method kHoldOnce("/test.Service/Hold");  // the same method, not tried again
  Outcome outcomes[2];
  for (Outcome& outcome : outcomes) ASSERT_TRUE(Start(&outcome, kHoldOnce).ok());
  Settle();
  Node& node = *nodes_[0];
  EXPECT_EQ(node.engine->counters().protocol_errors, 1u);
  ASSERT_EQ(node.held.size(), 1u);
  EXPECT_TRUE(node.held[0]->cancelled());
  EXPECT_EQ(gate_.ended, 1);
  EXPECT_EQ(gate_.last.code(), absl::StatusCode::kInvalidArgument);
  FinishHeld(0);
  EXPECT_EQ(gate_.let_in, 2);
  EXPECT_EQ(gate_.ended, 2);
  for (Outcome& outcome : outcomes) EXPECT_TRUE(absl::IsUnavailable(outcome.status));
}

}  // namespace gate_test
}  // namespace sluice::call
