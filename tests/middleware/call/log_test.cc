// SPDX-License-Identifier: Apache-2.0
//
// What engines say without being asked, and how often.
#include <string>

#include "tests/middleware/call/cluster.h"

namespace sluice::call {
namespace log_test {

using LogTest = Cluster;

TEST_F(LogTest, LostConnectionIsSaidOnceUntilItIsBack) {
  options_.max_reconnect_attempts = 1000;
  Connect(1);
  EXPECT_EQ(client_log_.Lines(), "") << "what goes well is not said";
  KillServer(0);
  Settle();
  ASSERT_EQ(client_log_.size(), 1u) << client_log_.Lines();
  EXPECT_EQ(client_log_.Lines(), "warning: connection lost (s0:1)\n");
  EXPECT_NE(client_log_[0].message.find("connection to s0:1 lost: "), std::string::npos);
  for (int i = 0; i < 50; ++i) Advance(100 * kMs);
  EXPECT_GT(client_->counters().dials, 20u);
  for (size_t i = 1; i < client_log_.size(); ++i) {
    EXPECT_EQ(client_log_[i].severity, base::Severity::kInfo) << client_log_[i].message;
  }
  client_log_.Clear();
  StartServer(0);
  Advance(200 * kMs);
  EXPECT_EQ(client_log_.Lines(), "info: connected again (s0:1)\n");
  KillServer(0);
  Settle();
  EXPECT_TRUE(client_log_.Has("connection lost")) << "it is news again";
}

TEST_F(LogTest, OneOfSeveralThatNeverCameUpIsSaidAndTheOnlyOneIsNot) {
  Connect(2);
  client_->SetServers({AddressOf(0), {"nobody", 1}});
  Settle();
  EXPECT_EQ(client_log_.Lines(), "warning: connect failed (nobody:1)\n");
  client_log_.Clear();
  ClientEngineOptions options = options_;
  options.host = "nobody";
  options.port = 1;
  ClientEngine alone(options, &clock_, &random_, &client_log_);
  const auto end = network_.Create(alone.handler(), &clock_, fake_options_);
  alone.Attach(end.get());
  alone.Dial();
  for (int i = 0; i < 40; ++i) alone.Poll();
  EXPECT_FALSE(alone.last_error().ok());
  EXPECT_EQ(client_log_.Lines(), "info: connect failed (nobody:1)\n") << "Connect() returns it";
  alone.Close();
}

TEST_F(LogTest, GivenUpIsSaid) {
  options_.max_reconnect_attempts = 2;
  Connect(1);
  KillServer(0);
  for (int i = 0; i < 50; ++i) Advance(100 * kMs);
  EXPECT_TRUE(client_log_.Has("connection given up")) << client_log_.Lines();
}

TEST_F(LogTest, OverloadIsSaidTwiceHoweverManyAreRefused) {
  server_options_.max_concurrent_calls = 2;
  options_.retry.max_attempts = 1;
  Connect(1);
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(Start(&outcomes_.emplace_back(), kHold).ok());
    Settle();
  }
  EXPECT_EQ(nodes_[0]->engine->counters().refused, 98u);
  EXPECT_EQ(server_log_.Lines(), "warning: overload begins\n");
  EXPECT_EQ(server_log_[0].message.rfind("calls are refused: /test.Service/Hold refused", 0), 0u)
      << server_log_[0].message;
  FinishHeld(0);
  Advance(999 * kMs);
  EXPECT_EQ(Call(), 0);
  EXPECT_EQ(server_log_.size(), 1u) << "they may come back";
  Advance(1 * kMs);
  EXPECT_EQ(Call(), 0);
  ASSERT_EQ(server_log_.size(), 2u);
  EXPECT_EQ(server_log_[1].event, "overload ends");
  EXPECT_EQ(server_log_[1].message, "calls are refused no more: there were 98 in 0 ms");
}

TEST_F(LogTest, ChannelWithoutPlacesSaysSo) {
  options_.max_outstanding_calls = 1;
  Connect(1);
  ASSERT_TRUE(Start(&outcomes_.emplace_back(), kHold).ok());
  for (int i = 0; i < 10; ++i) {
    EXPECT_FALSE(Start(&outcomes_.emplace_back(), kHold).ok());
  }
  EXPECT_EQ(client_log_.Lines(), "warning: overload begins\n");
  Settle();
  FinishHeld(0);
  Advance(1000 * kMs);
  EXPECT_EQ(client_log_.Lines(), "warning: overload begins\nwarning: overload ends\n");
}

TEST_F(LogTest, RetriesWithoutBudgetAreSaid) {
  options_.retry.budget = 0;
  Connect(1);
  nodes_[0]->answer = absl::UnavailableError("busy");
  for (int i = 0; i < 10; ++i) EXPECT_EQ(Call(kAnyTimes), -1);
  EXPECT_EQ(client_->counters().retries_denied, 10u);
  ASSERT_EQ(client_log_.Lines(), "warning: overload begins\n");
  EXPECT_EQ(client_log_[0].message, "the retry budget is used up: busy");
}

TEST_F(LogTest, CallersThatLeaveAreNoWarning) {
  Connect(1);
  client_->Close();
  client_.reset();
  for (int i = 0; i < 40; ++i) nodes_[0]->engine->Poll();
  EXPECT_EQ(server_log_.Lines().rfind("info: caller lost", 0), 0u) << server_log_.Lines();
  EXPECT_EQ(server_log_.size(), 1u);
}

TEST_F(LogTest, HandlerThatHoldsThePollerIsSaid) {
  Connect(1);
  int64_t blocks_ns = 99 * kMs;
  nodes_[0]->inside = [&] { clock_.Advance(blocks_ns); };
  EXPECT_EQ(Call(), 0);
  EXPECT_EQ(server_log_.Lines(), "") << "a little less";
  blocks_ns = 100 * kMs;
  EXPECT_EQ(Call(), 0);
  ASSERT_EQ(server_log_.Lines(), "warning: poller held\n");
  EXPECT_EQ(server_log_[0].message.rfind(
                "the polling thread was held for 100 ms by /test.Service/Once: ", 0),
            0u)
      << server_log_[0].message;
  server_log_.Clear();
  blocks_ns = 50 * kMs;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Start(&outcomes_.emplace_back()).ok());
  Settle();
  ASSERT_EQ(server_log_.Lines(), "warning: poller held\n") << "the calls of one pass wait for all";
  EXPECT_NE(server_log_[0].message.find("held for 150 ms by /test.Service/Once and 2 before it"),
            std::string::npos)
      << server_log_[0].message;
  server_log_.Clear();
  ASSERT_TRUE(Start(&outcomes_.emplace_back(), kHold).ok());
  Settle();
  Advance(5000 * kMs);
  FinishHeld(0);
  EXPECT_EQ(server_log_.Lines(), "") << "who answers later holds nobody";
}

TEST_F(LogTest, DrainIsSaidOnBothSides) {
  Connect(1);
  const int64_t now_ns = clock_.NowNs();
  nodes_[0]->engine->StartDrain(now_ns + 100 * kMs, now_ns + 200 * kMs);
  Settle();
  EXPECT_TRUE(server_log_.Has("drain"));
  EXPECT_EQ(client_log_.Lines(), "info: server drains (s0:1)\n");
}

}  // namespace log_test
}  // namespace sluice::call
