// SPDX-License-Identifier: Apache-2.0
//
// A client engine with several servers: who gets which call, and what the loss of one costs.
#include <algorithm>
#include <functional>
#include <map>
#include <vector>

#include "tests/middleware/call/cluster.h"

namespace sluice::call {
namespace client_connections_test {

class ClientConnectionsTest : public Cluster {
 protected:
  std::vector<int> Calls(int count) {
    std::vector<int> who;
    for (int i = 0; i < count; ++i) who.push_back(Call());
    return who;
  }
  // Connects to two servers. Calls use up the credit of the first one, and the last call waits for it.
  Outcome& StartStarved() {
    options_.retry.max_attempts = 1;
    fake_options_.credits = 2;
    Connect(2);
    nodes_[0]->end->set_withhold_credits(true);
    for (int i = 0; i < 2; ++i) {
      EXPECT_TRUE(Start(&outcomes_.emplace_back(), kHold).ok());
      Settle();
    }
    EXPECT_EQ(nodes_[0]->held.size(), 2u);
    Outcome& waits = outcomes_.emplace_back();
    EXPECT_TRUE(Start(&waits).ok());
    Settle();
    EXPECT_EQ(waits.ended, 0);
    return waits;
  }
  void ExpectAnswerOf(const Outcome& outcome, uint32_t server) {
    EXPECT_EQ(outcome.ended, 1);
    EXPECT_TRUE(outcome.status.ok()) << outcome.status;
    EXPECT_EQ(outcome.reply.syndrome(), server);
  }
  const Connection& ConnectionTo(size_t place) { return *client_->connections()[place]; }
  // Without calls, until no more attempts to connect follow.
  void KillUntilGivenUp(int server) {
    KillServer(server);
    for (int i = 0; i < 100; ++i) Advance(20 * kMs);
    ASSERT_EQ(ConnectionTo(server).state, ConnectionState::kIdle);
  }
};

TEST_F(ClientConnectionsTest, PickFirstUsesTheFirstThatIsUp) {
  Connect(3);
  EXPECT_EQ(Calls(3), (std::vector<int>{0, 0, 0}));
  KillServer(0);
  Settle();
  EXPECT_EQ(Calls(3), (std::vector<int>{1, 1, 1}));
  StartServer(0);
  Advance(500 * kMs);
  EXPECT_EQ(Calls(2), (std::vector<int>{0, 0})) << "it is back";
}

TEST_F(ClientConnectionsTest, RoundRobinTakesTurns) {
  options_.balancing = Balancing::kRoundRobin;
  Connect(3);
  EXPECT_EQ(Calls(6), (std::vector<int>{0, 1, 2, 0, 1, 2}));
}

TEST_F(ClientConnectionsTest, OneDeadServerOfThreeCostsNoCall) {
  options_.balancing = Balancing::kRoundRobin;
  Connect(3);
  KillServer(1);
  Settle();
  std::map<int, int> answered;
  for (const int who : Calls(300)) ++answered[who];
  EXPECT_EQ(answered[-1], 0);
  EXPECT_EQ(answered[1], 0);
  EXPECT_EQ(answered[0] + answered[2], 300);
  EXPECT_GE(std::min(answered[0], answered[2]), 100);
}

TEST_F(ClientConnectionsTest, CallsUnderWayElsewhereOutliveADeadServer) {
  options_.balancing = Balancing::kRoundRobin;
  options_.retry.max_attempts = 1;
  Connect(2);
  Outcome& dies = outcomes_.emplace_back();
  Outcome& lives = outcomes_.emplace_back();
  ASSERT_TRUE(Start(&dies, kHold).ok());
  ASSERT_TRUE(Start(&lives, kHold).ok());
  Settle();
  KillServer(0);
  Settle();
  EXPECT_EQ(dies.status.code(), absl::StatusCode::kUnavailable) << dies.status;
  EXPECT_NE(dies.status.message().find("s0:1"), std::string::npos) << dies.status;
  EXPECT_EQ(lives.ended, 0);
  FinishHeld(1);
  EXPECT_TRUE(lives.status.ok()) << lives.status;
}

TEST_F(ClientConnectionsTest, LeastOutstandingAvoidsWhoIsBusy) {
  options_.balancing = Balancing::kLeastOutstanding;
  Connect(3);
  std::map<int, int> held;
  for (int i = 0; i < 9; ++i) {
    ASSERT_TRUE(Start(&outcomes_.emplace_back(), kHold).ok());
    Settle();
  }
  for (int i = 0; i < 3; ++i) EXPECT_EQ(nodes_[i]->held.size(), 3u) << i;
  FinishHeld(1);
  EXPECT_EQ(Calls(4), (std::vector<int>{1, 1, 1, 1}));
  for (auto& connection : client_->connections()) {
    EXPECT_EQ(connection->outstanding, connection->server == "s1:1" ? 0u : 3u);
  }
}

TEST_F(ClientConnectionsTest, ServerWithoutCreditIsPassedOver) {
  options_.balancing = Balancing::kRoundRobin;
  fake_options_.credits = 2;
  Connect(2);
  nodes_[0]->end->set_withhold_credits(true);
  int ended = 0;
  for (int i = 0; i < 20; ++i) ended += Call() >= 0;
  EXPECT_EQ(ended, 20);
  EXPECT_EQ(nodes_[0]->attempts.size(), 2u) << "as many as its credit was";
}

TEST_F(ClientConnectionsTest, DrainingServerGetsNoMoreCallsAndNoneFails) {
  options_.balancing = Balancing::kRoundRobin;
  Connect(3);
  Outcome& held = outcomes_.emplace_back();
  ASSERT_TRUE(Start(&held, kHold).ok());
  Settle();
  ASSERT_EQ(nodes_[0]->held.size(), 1u);
  const int64_t now_ns = clock_.NowNs();
  nodes_[0]->engine->StartDrain(now_ns + 1000 * kMs, now_ns + 2000 * kMs);
  // These cross the news: round robin sends one of them there.
  std::vector<Outcome*> crossing;
  for (int i = 0; i < 3; ++i) {
    crossing.push_back(&outcomes_.emplace_back());
    ASSERT_TRUE(Start(crossing.back()).ok());
  }
  client_->Flush();
  Settle();
  for (Outcome* one : crossing) EXPECT_TRUE(one->status.ok()) << one->status;
  EXPECT_EQ(nodes_[0]->engine->counters().refused_draining, 1u);
  EXPECT_EQ(client_->counters().retries, 1u);
  for (const int who : Calls(10)) EXPECT_GT(who, 0);
  FinishHeld(0);
  EXPECT_TRUE(held.status.ok()) << held.status;
  EXPECT_EQ(nodes_[0]->engine->drain().phase(), DrainPhase::kDrained);
}

TEST_F(ClientConnectionsTest, ServersComeAndGo) {
  options_.balancing = Balancing::kRoundRobin;
  Connect(2);
  Outcome& held = outcomes_.emplace_back();
  ASSERT_TRUE(Start(&held, kHold).ok());
  Settle();
  ASSERT_EQ(nodes_[0]->held.size(), 1u);
  StartServer(2);
  client_->SetServers({AddressOf(1), AddressOf(2), AddressOf(2)});
  EXPECT_EQ(client_->server(), "s1:1,s2:1") << "one that is named twice is there once";
  Settle();
  for (const int who : Calls(6)) EXPECT_GT(who, 0);
  EXPECT_EQ(nodes_[0]->engine->counters().peers_down, 0u) << "its call goes on";
  FinishHeld(0);
  EXPECT_TRUE(held.status.ok()) << held.status;
  Settle();
  EXPECT_EQ(nodes_[0]->engine->counters().peers_down, 1u);
  EXPECT_EQ(client_->counters().connections, 3u) << "the one that stayed was not made again";
}

TEST_F(ClientConnectionsTest, ServerThatWasTakenAwayIsNotDialledAgain) {
  Connect(2);
  KillServer(0);
  Settle();
  client_->SetServers({AddressOf(1)});
  Settle();
  const uint64_t dials = client_->counters().dials;
  for (int i = 0; i < 100; ++i) Advance(10 * kMs);
  EXPECT_EQ(client_->counters().dials, dials);
  EXPECT_EQ(Call(), 1);
}

TEST_F(ClientConnectionsTest, WithoutServersCallsFailOrWait) {
  Connect(1);
  client_->SetServers({});
  Settle();
  Outcome& hasty = outcomes_.emplace_back();
  const absl::Status refused = Start(&hasty);
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(refused.message().find("no servers"), std::string::npos) << refused;
  Outcome& patient = outcomes_.emplace_back();
  ASSERT_TRUE(Start(&patient, kOnce, 60'000 * kMs, /*wait_for_ready=*/true).ok());
  Settle();
  EXPECT_EQ(patient.ended, 0);
  client_->SetServers({AddressOf(0)});
  Settle();
  EXPECT_TRUE(patient.status.ok()) << patient.status;
}

// A loop that polls once and then asks whether it may sleep, as docs/threads.md has it.
TEST_F(ClientConnectionsTest, CallThatACallbackStartsIsDialledBeforeASleep) {
  options_.max_reconnect_attempts = 0;
  ConnectClient(1);  // nobody listens
  struct First : Outcome {
    std::function<void()> then;
  } first;
  Outcome second;
  first.then = [&] { EXPECT_TRUE(Start(&second).ok()); };
  CallSpec spec;
  spec.method = &kOnce;
  spec.request = &first.request;
  spec.reply = &first.reply;
  spec.timeout_ns = 1000 * kMs;
  spec.argument = &first;
  spec.done = [](void* argument, const absl::Status&) {
    auto* ended = static_cast<First*>(argument);
    ++ended->ended;
    ended->then();
  };
  ASSERT_TRUE(client_->Start(spec).ok());
  while (first.ended == 0) client_->Poll();
  const uint64_t dials = client_->counters().dials;
  EXPECT_FALSE(client_->PrepareToSleep()) << "the next Poll() dials";
  Settle();
  EXPECT_EQ(client_->counters().dials, dials + 1);
  EXPECT_TRUE(absl::IsUnavailable(second.status)) << second.status;
  EXPECT_TRUE(client_->PrepareToSleep());
}

TEST_F(ClientConnectionsTest, CallThatIsToBeCancelledEndsBeforeASleep) {
  Connect(1);
  Outcome outcome;
  CallControl control;
  uint64_t id = 0;
  EXPECT_FALSE(control.Cancel(&id)) << "it has no number so far";
  CallSpec spec;
  spec.method = &kOnce;
  spec.request = &outcome.request;
  spec.reply = &outcome.reply;
  spec.timeout_ns = 1000 * kMs;
  spec.argument = &outcome;
  spec.done = [](void* argument, const absl::Status&) { ++static_cast<Outcome*>(argument)->ended; };
  spec.control = &control;
  ASSERT_TRUE(client_->Start(spec).ok());
  client_->Flush();
  EXPECT_FALSE(client_->PrepareToSleep()) << "the next Poll() cancels";
  client_->Poll();
  EXPECT_EQ(outcome.ended, 1);
}

// A connection that is left ends in the Poll() after its last call, and nothing wakes a loop for that.
TEST_F(ClientConnectionsTest, ServerThatIsLeftIsDisconnectedBeforeASleep) {
  Connect(2);
  client_->SetServers({AddressOf(1), AddressOf(0)});  // the first gets the calls
  Settle();
  Outcome& held = outcomes_.emplace_back();
  ASSERT_TRUE(Start(&held, kHold).ok());
  Settle();
  client_->SetServers({AddressOf(0)});
  EXPECT_FALSE(client_->PrepareToSleep()) << "Poll() has not looked at the servers";
  Settle();
  EXPECT_TRUE(client_->PrepareToSleep()) << "a call that goes on keeps nobody awake";
  std::vector<ServerCall*> calls;
  calls.swap(nodes_[1]->held);
  ASSERT_EQ(calls.size(), 1u);
  calls[0]->Finish(absl::OkStatus());
  nodes_[1]->engine->Poll();
  while (held.ended == 0) client_->Poll();
  EXPECT_FALSE(client_->PrepareToSleep()) << "the next Poll() disconnects";
  Settle();
  EXPECT_EQ(nodes_[1]->engine->counters().peers_down, 1u);
  EXPECT_TRUE(client_->PrepareToSleep());
}

TEST_F(ClientConnectionsTest, AllDeadIsToldAtOnce) {
  Connect(2);
  KillServer(0);
  KillServer(1);
  Settle();
  const absl::Status refused = Start(&outcomes_.emplace_back());
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable) << refused;
}

TEST_F(ClientConnectionsTest, CallThatWaitsForCreditGoesElsewhereWhenItsServerIsLost) {
  Outcome& waits = StartStarved();
  KillServer(0);
  Settle();
  ExpectAnswerOf(waits, 1);
}

TEST_F(ClientConnectionsTest, CallThatWaitsForCreditGoesElsewhereWhenItsServerDrains) {
  Outcome& waits = StartStarved();
  const int64_t now_ns = clock_.NowNs();
  nodes_[0]->engine->StartDrain(now_ns + 1000 * kMs, now_ns + 2000 * kMs);
  Settle();
  ExpectAnswerOf(waits, 1);
  FinishHeld(0);
  EXPECT_TRUE(outcomes_[0].status.ok()) << outcomes_[0].status;
}

TEST_F(ClientConnectionsTest, CallThatWaitsForCreditGoesElsewhereWhenItsServerIsRemoved) {
  Outcome& waits = StartStarved();
  client_->SetServers({AddressOf(1)});
  EXPECT_EQ(waits.ended, 0) << "not inside SetServers(), which a callback may call";
  EXPECT_FALSE(client_->PrepareToSleep()) << "the next Poll() sends it";
  Settle();
  ExpectAnswerOf(waits, 1);
  FinishHeld(0);
  EXPECT_TRUE(outcomes_[0].status.ok()) << outcomes_[0].status;
}

TEST_F(ClientConnectionsTest, CallThatWaitsForCreditGoesToTheServerThatIsNowTheFirst) {
  Outcome& waits = StartStarved();
  client_->SetServers({AddressOf(1), AddressOf(0)});
  Settle();
  ExpectAnswerOf(waits, 1);
}

// The loss ends a call. Its callback removes the lost server and starts another call, before the waiting call is sent.
TEST_F(ClientConnectionsTest, CallbackOfALossSetsServersAndStartsACall) {
  Outcome& waits = StartStarved();
  nodes_[0]->end->set_withhold_credits(false);
  Settle();
  ExpectAnswerOf(waits, 0);
  struct First : Outcome {
    std::function<void()> then;
  } first;
  Outcome& second = outcomes_.emplace_back();
  first.then = [&] {
    client_->SetServers({AddressOf(1)});
    EXPECT_TRUE(Start(&second).ok());
  };
  CallSpec spec;
  spec.method = &kHold;
  spec.request = &first.request;
  spec.reply = &first.reply;
  spec.timeout_ns = 60'000 * kMs;
  spec.argument = &first;
  spec.done = [](void* argument, const absl::Status&) {
    auto* ended = static_cast<First*>(argument);
    ++ended->ended;
    ended->then();
  };
  nodes_[0]->end->set_withhold_credits(true);
  ASSERT_TRUE(client_->Start(spec).ok());
  Settle();
  ASSERT_TRUE(Start(&outcomes_.emplace_back(), kHold).ok());
  Settle();
  ASSERT_EQ(nodes_[0]->held.size(), 4u);
  Outcome& still_waits = outcomes_.emplace_back();
  ASSERT_TRUE(Start(&still_waits).ok());
  Settle();
  ASSERT_EQ(still_waits.ended, 0);
  KillServer(0);
  Settle();
  EXPECT_EQ(first.ended, 1);
  ExpectAnswerOf(still_waits, 1);
  ExpectAnswerOf(second, 1);
  EXPECT_EQ(client_->server(), "s1:1");
}

TEST_F(ClientConnectionsTest, ServerThatWasGivenUpGetsCallsAgainAfterTheOutage) {
  options_.max_reconnect_attempts = 2;
  for (const Balancing policy :
       {Balancing::kPickFirst, Balancing::kRoundRobin, Balancing::kLeastOutstanding}) {
    SCOPED_TRACE(static_cast<int>(policy));
    options_.balancing = policy;
    Connect(2);
    KillUntilGivenUp(0);
    StartServer(0);
    const uint64_t dials = client_->counters().dials;
    Advance(10'000 * kMs);
    EXPECT_EQ(client_->counters().dials, dials) << "no calls, no attempts";
    EXPECT_EQ(Call(), 1) << "this call starts an attempt";
    EXPECT_EQ(client_->counters().dials, dials + 1);
    const std::vector<int> who = Calls(4);
    EXPECT_EQ(std::count(who.begin(), who.end(), -1), 0);
    EXPECT_GT(std::count(who.begin(), who.end(), 0), 0);
    client_->Close();
    client_.reset();
    KillServer(0);
    KillServer(1);
  }
}

TEST_F(ClientConnectionsTest, ServerThatIsGoneCostsOneAttemptPerBackoff) {
  options_.max_reconnect_attempts = 3;
  Connect(2);
  KillUntilGivenUp(0);
  client_log_.Clear();
  const uint64_t before = client_->counters().dials;
  for (int i = 0; i < 1000; ++i) {
    Advance(10 * kMs);
    EXPECT_EQ(Call(), 1);
  }
  const uint64_t dials = client_->counters().dials - before;
  EXPECT_LE(dials, 170u) << "in 10 seconds: one in 60 ms or more";
  EXPECT_GE(dials, 80u);
  EXPECT_FALSE(client_log_.Has("connection given up")) << "written once for each outage";
}

TEST_F(ClientConnectionsTest, ServerThatComesBackHasAllItsAttemptsAgain) {
  options_.max_reconnect_attempts = 2;
  Connect(2);
  KillUntilGivenUp(0);
  StartServer(0);
  EXPECT_EQ(Call(), 1);
  EXPECT_EQ(Call(), 0);
  KillServer(0);
  Settle();
  EXPECT_EQ(ConnectionTo(0).state, ConnectionState::kBackoff);
  StartServer(0);
  Advance(200 * kMs);
  EXPECT_EQ(Call(), 0) << "no call was needed to connect";
}

// A server that takes every connection and loses it at once, for a minute: no storm.
TEST_F(ClientConnectionsTest, AttemptsToConnectAreBoundedPerSecond) {
  options_.backoff_min_ns = 20 * kMs;
  options_.backoff_max_ns = 2000 * kMs;
  options_.max_reconnect_attempts = 1'000'000;
  Connect(1);
  const uint64_t before = client_->counters().dials;
  for (int i = 0; i < 6000; ++i) {
    if (client_->state() == ConnectionState::kUp) {
      KillServer(0);
      StartServer(0);
    }
    Advance(10 * kMs);
  }
  const uint64_t dials = client_->counters().dials - before;
  EXPECT_LE(dials, 60u) << "in 60 seconds: seven while the wait doubles, then one in 1.5 s or more";
  EXPECT_GE(dials, 24u) << "and not given up";
}

}  // namespace client_connections_test
}  // namespace sluice::call
