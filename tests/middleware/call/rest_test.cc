// SPDX-License-Identifier: Apache-2.0
//
// A server without a place for another client asks an idle client to leave. No call fails for it, whatever crosses the message.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/middleware/call/cluster.h"

namespace sluice::call {
namespace rest_test {

constexpr Method kChat("/test.Service/Chat", Streams::kBoth);

frame::Header RestMessage() {
  frame::Header header;
  header.kind = frame::Kind::kDrain;
  header.flags = frame::kFlagRest;
  return header;
}

class RestTest : public Cluster {
 protected:
  ServerEngine& server(int index = 0) { return *nodes_[index]->engine; }
  const Connection& connection(int index = 0) { return *client_->connections()[index]; }
  // The message is on its way, and the client has not read it.
  void AskForPlace(int index = 0) {
    server(index).OnNoPlace(/*refused=*/true);
    server(index).Poll();
    nodes_[index]->end->Flush();
  }
  void Rest(int index = 0) {
    AskForPlace(index);
    Settle();
    ASSERT_EQ(connection(index).state, ConnectionState::kIdle);
  }
  // The same message, at any time.
  void SayRest(int index = 0) { client_->OnMessage(connection(index).peer, RestMessage(), {}); }
  // A call that waits for the connection, while no attempt to connect is answered.
  Outcome& StartDuringRest() {
    network_.set_silent(true);
    Rest();
    Outcome& call = outcomes_.emplace_back();
    EXPECT_TRUE(Start(&call).ok());
    Settle();
    return call;
  }
  void EndAttempt(const absl::Status& why) { client_->OnPeerDown(connection().peer, why); }
};

// ---- The client

TEST_F(RestTest, AnIdleClientLeavesAndItsNextCallConnects) {
  Connect(1);
  EXPECT_EQ(Call(), 0);
  Rest();
  EXPECT_EQ(client_->state(), ConnectionState::kIdle);
  EXPECT_EQ(server().counters().peers_down, 1u);
  EXPECT_EQ(server().counters().rests_asked, 1u);
  EXPECT_EQ(client_->counters().connections_lost, 0u);
  EXPECT_TRUE(client_->last_error().ok()) << client_->last_error();
  Advance(10'000 * kMs);
  EXPECT_EQ(client_->counters().dials, 1u) << "nobody needs it";
  EXPECT_EQ(Call(), 0);
  EXPECT_EQ(client_->counters().dials, 2u);
  EXPECT_EQ(client_->counters().connections, 2u);
  EXPECT_EQ(client_log_.Lines().find("warning"), std::string::npos) << client_log_.Lines();
}

TEST_F(RestTest, ARequestThatCrossesTheMessageIsAnsweredOnTheSameConnection) {
  Connect(1);
  AskForPlace();
  Outcome& crossing = outcomes_.emplace_back();
  ASSERT_TRUE(Start(&crossing, kHold).ok());
  client_->Flush();
  Settle();
  EXPECT_EQ(nodes_[0]->held.size(), 1u);
  EXPECT_EQ(crossing.ended, 0);
  FinishHeld(0);
  EXPECT_TRUE(crossing.status.ok()) << crossing.status;
  EXPECT_EQ(nodes_[0]->attempts, std::vector<std::string>{""}) << "it ran once";
  EXPECT_EQ(client_->counters().dials, 1u);
  EXPECT_EQ(client_->state(), ConnectionState::kUp);
}

TEST_F(RestTest, AStreamThatCrossesTheMessageGoesOn) {
  Connect(1);
  ServerCall* taken = nullptr;
  MethodHandler handler;
  handler.method = &kChat;
  handler.start = [&taken](ServerCall* call) { taken = call; };
  handler.request = std::make_unique<Text>();
  handler.reply = std::make_unique<Text>();
  ASSERT_TRUE(server().Register(std::move(handler)).ok());
  AskForPlace();
  ClientStream stream;
  Outcome& outcome = outcomes_.emplace_back();
  CallSpec spec;
  spec.method = &kChat;
  spec.reply = &outcome.reply;
  spec.timeout_ns = 60'000 * kMs;
  spec.stream = &stream;
  spec.argument = &outcome;
  spec.done = [](void* argument, const absl::Status& status) {
    ++static_cast<Outcome*>(argument)->ended;
    static_cast<Outcome*>(argument)->status = status;
  };
  ASSERT_TRUE(client_->Start(spec).ok());
  client_->Flush();
  Settle();
  ASSERT_NE(taken, nullptr);
  SayRest();  // and once more while nothing is on its way
  Text message;
  EXPECT_TRUE(client_->Write(&stream, message).ok());
  Settle();
  EXPECT_EQ(taken->Read(&message), ReadResult::kMessage);
  EXPECT_EQ(outcome.ended, 0);
  taken->Finish(absl::OkStatus());
  Settle();
  EXPECT_EQ(outcome.ended, 1);
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(client_->counters().dials, 1u);
}

TEST_F(RestTest, ACallThatWaitsForMemoryKeepsTheConnection) {
  Connect(1);
  client_end_->set_fail_reserves(1);
  Outcome& waiting = outcomes_.emplace_back();
  ASSERT_TRUE(Start(&waiting).ok());
  ASSERT_EQ(connection().outstanding, 0u);
  SayRest();
  EXPECT_EQ(client_->state(), ConnectionState::kUp);
  Settle();
  EXPECT_TRUE(waiting.status.ok()) << waiting.status;
  EXPECT_EQ(client_->counters().dials, 1u);
}

TEST_F(RestTest, ACancellationThatIsNotSentYetKeepsTheConnection) {
  Connect(1);
  Outcome& held = outcomes_.emplace_back();
  ASSERT_TRUE(Start(&held, kHold).ok());
  Settle();
  client_end_->set_fail_reserves(1);
  EXPECT_TRUE(client_->Cancel(last_id_));
  ASSERT_EQ(connection().outstanding, 0u);
  SayRest();
  EXPECT_EQ(client_->state(), ConnectionState::kUp);
  Settle();
  ASSERT_EQ(nodes_[0]->held.size(), 1u);
  EXPECT_FALSE(nodes_[0]->held[0]->why_cancelled().ok()) << "the handler was told";
  EXPECT_EQ(server().counters().peers_down, 0u);
  FinishHeld(0);
}

TEST_F(RestTest, CallsDuringTheRestWaitForTheConnectionWhileTheServerIsFull) {
  Connect(1);
  network_.set_silent(true);
  Rest();
  Outcome& call = outcomes_.emplace_back();
  ASSERT_TRUE(Start(&call).ok()) << "without wait_for_ready";
  for (int attempt = 0; attempt < 3; ++attempt) {
    Advance(100 * kMs);
    ASSERT_EQ(connection().state, ConnectionState::kConnecting);
    EndAttempt(absl::ResourceExhaustedError("all places are taken"));
    ASSERT_EQ(connection().state, ConnectionState::kBackoff);
    Outcome& later = outcomes_.emplace_back();
    ASSERT_TRUE(Start(&later).ok()) << attempt;
    Settle();
  }
  for (const Outcome& one : outcomes_) EXPECT_EQ(one.ended, 0) << one.status;
  network_.set_silent(false);
  Advance(200 * kMs);
  for (const Outcome& one : outcomes_) EXPECT_TRUE(one.status.ok()) << one.status;
  EXPECT_EQ(client_log_.Lines().find("warning"), std::string::npos) << client_log_.Lines();
}

TEST_F(RestTest, AnotherFailureThanAFullServerEndsTheCallsAtOnce) {
  Connect(1);
  Outcome& call = StartDuringRest();
  EndAttempt(absl::UnavailableError("the server is gone"));
  Settle();
  EXPECT_EQ(call.ended, 1);
  EXPECT_EQ(call.status.code(), absl::StatusCode::kUnavailable) << call.status;
}

TEST_F(RestTest, CallsDoNotWaitForeverForAFullServer) {
  Connect(1);
  Outcome& call = StartDuringRest();
  int refusals = 0;
  while (call.ended == 0 && refusals < 20) {
    ASSERT_EQ(connection().state, ConnectionState::kConnecting);
    EndAttempt(absl::ResourceExhaustedError("all places are taken"));
    ++refusals;
    Advance(200 * kMs);
  }
  EXPECT_EQ(refusals, 9);
  EXPECT_EQ(call.status.code(), absl::StatusCode::kUnavailable) << call.status;
}

TEST_F(RestTest, ReconnectAttemptsThatAreSetLowDoNotCutTheWait) {
  options_.max_reconnect_attempts = 0;
  Connect(1);
  Outcome& call = StartDuringRest();
  EndAttempt(absl::ResourceExhaustedError("all places are taken"));
  EXPECT_EQ(call.ended, 0) << call.status;
  network_.set_silent(false);
  Advance(200 * kMs);
  EXPECT_TRUE(call.status.ok()) << call.status;
}

TEST_F(RestTest, ABufferThatIsMadeDuringTheRestIsOrdinaryMemory) {
  Connect(1);
  Rest();
  const auto buffer = client_->MakeBuffer(1 << 20);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  EXPECT_EQ(buffer->bytes().size(), size_t{1} << 20);
  EXPECT_EQ(Call(), 0);
}

TEST_F(RestTest, TheMessageMeansNothingInOtherStates) {
  Connect(1);
  network_.set_silent(true);
  const endpoint::PeerId before = connection().peer;
  Rest();
  client_->OnMessage(before, RestMessage(), {});  // of a connection that is gone
  SayRest();
  client_->DialSoon();
  Settle();
  SayRest();
  EXPECT_EQ(connection().state, ConnectionState::kConnecting);
  EndAttempt(absl::UnavailableError("no"));
  SayRest();
  EXPECT_EQ(connection().state, ConnectionState::kBackoff);
  network_.set_silent(false);
  Advance(100 * kMs);
  ASSERT_EQ(connection().state, ConnectionState::kUp);
  Outcome& held = outcomes_.emplace_back();
  ASSERT_TRUE(Start(&held, kHold).ok());
  Settle();
  const int64_t now_ns = clock_.NowNs();
  server().StartDrain(now_ns + 1000 * kMs, now_ns + 2000 * kMs);
  Settle();
  ASSERT_EQ(connection().state, ConnectionState::kDraining);
  SayRest();
  EXPECT_EQ(connection().state, ConnectionState::kDraining);
  FinishHeld(0);
  EXPECT_TRUE(held.status.ok()) << held.status;
  EXPECT_EQ(server().drain().phase(), DrainPhase::kDrained);
  SayRest();  // no call is left, and the connection ends with the drain
  EXPECT_EQ(connection().state, ConnectionState::kDraining);
  EXPECT_NE(connection().peer, endpoint::PeerId());
}

TEST_F(RestTest, AServerThatAsksAgainAndAgainFailsNoCall) {
  Connect(1);
  for (int round = 0; round < 50; ++round) {
    SayRest();
    SayRest();
    EXPECT_EQ(Call(), 0) << round;
  }
  EXPECT_EQ(client_->counters().connections, 51u);
  EXPECT_EQ(client_->counters().connections_lost, 0u);
}

TEST_F(RestTest, TheFirstOfSeveralServersIsConnectedAgainAndAReserveIsNot) {
  Connect(2);
  EXPECT_EQ(Call(), 0);
  Rest(1);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Call(), 0);
  EXPECT_EQ(connection(1).state, ConnectionState::kIdle) << "it is a reserve, and may rest";
  EXPECT_EQ(client_->counters().dials, 2u);
  client_->DialSoon();  // for another reason, such as a retry
  Settle();
  EXPECT_EQ(connection(1).state, ConnectionState::kIdle) << "the first is up";
  KillServer(0);
  Settle();
  EXPECT_EQ(Call(), 1) << "now it is needed";
  StartServer(0);
  Advance(500 * kMs);
  Rest(0);
  EXPECT_EQ(Call(), 1);
  EXPECT_EQ(Call(), 0) << "the call before has connected it";
}

TEST_F(RestTest, WhenAllRestAndTheFirstIsGoneTheNextAnswers) {
  Connect(2);
  Rest(0);
  Rest(1);
  KillServer(0);
  EXPECT_EQ(Call(), 1);
  EXPECT_EQ(client_->counters().calls_failed, 0u);
}

TEST_F(RestTest, ACallThatWaitsForTheFirstWakesAReserveWhenTheFirstIsLost) {
  Connect(2);
  Rest(1);
  client_end_->set_fail_reserves(20);
  Outcome& waiting = outcomes_.emplace_back();
  ASSERT_TRUE(Start(&waiting).ok());
  for (int pass = 0; pass < 3; ++pass) client_->Poll();
  ASSERT_EQ(connection(0).outstanding, 0u);
  ASSERT_EQ(connection(1).state, ConnectionState::kIdle);
  client_end_->set_fail_reserves(0);
  KillServer(0);
  client_->OnPeerDown(connection(0).peer, absl::UnavailableError("gone"));
  Settle();
  EXPECT_TRUE(waiting.status.ok()) << waiting.status;
  EXPECT_EQ(nodes_[1]->attempts.size(), 1u);
}

TEST_F(RestTest, AReserveThatBecomesTheFirstIsConnected) {
  Connect(2);
  Rest(1);
  ASSERT_EQ(Call(), 0);
  ASSERT_EQ(connection(1).state, ConnectionState::kIdle);
  client_->SetServers({AddressOf(1), AddressOf(0)});
  (void)Call();
  EXPECT_EQ(Call(), 1);
}

TEST_F(RestTest, WithRoundRobinACallWakesTheServersThatRest) {
  options_.balancing = Balancing::kRoundRobin;
  Connect(3);
  Rest(1);
  EXPECT_GE(Call(), 0);
  EXPECT_EQ(connection(1).state, ConnectionState::kUp);
}

// ---- The server

class ManyClients : public RestTest {
 protected:
  struct Client {
    std::unique_ptr<ClientEngine> engine;
    std::unique_ptr<testing_support::FakeEndpoint> end;
  };
  void SetUp() override { StartServer(0); }
  void TearDown() override {
    for (auto& client : clients_) client.engine->Close();
    RestTest::TearDown();
  }
  void AddClient() {
    ConnectClient(1);
    clients_.push_back({std::move(client_), std::move(client_end_)});
    PollAll();
  }
  void PollAll() {
    for (int pass = 0; pass < 100; ++pass) {
      for (auto& client : clients_) client.engine->Poll();
      server().Poll();
    }
  }
  Outcome& StartAt(int index, const Method& method) {
    client_.swap(clients_[index].engine);
    Outcome& outcome = outcomes_.emplace_back();
    EXPECT_TRUE(Start(&outcome, method).ok());
    client_.swap(clients_[index].engine);
    PollAll();
    return outcome;
  }
  void CallAt(int index) {
    clock_.Advance(kMs);
    EXPECT_TRUE(StartAt(index, kOnce).status.ok());
  }
  // Returns the clients that are not connected, after the server was told that there is no place.
  std::vector<int> Resting(bool refused = true) {
    server().OnNoPlace(refused);
    PollAll();
    std::vector<int> resting;
    for (size_t i = 0; i < clients_.size(); ++i) {
      if (clients_[i].engine->state() != ConnectionState::kUp)
        resting.push_back(static_cast<int>(i));
    }
    return resting;
  }

  std::vector<Client> clients_;
};

TEST_F(ManyClients, TheLongestUnusedIsAskedFirst) {
  for (int i = 0; i < 4; ++i) AddClient();
  for (const int index : {2, 0, 3, 1}) CallAt(index);
  EXPECT_EQ(Resting(), (std::vector<int>{2}));
  EXPECT_EQ(Resting(), (std::vector<int>{0, 2}));
  CallAt(2);
  EXPECT_EQ(Resting(), (std::vector<int>{0, 3})) << "2 has called meanwhile";
}

TEST_F(ManyClients, AClientWithACallIsNotAskedAndTheEndOfTheCallIsAUse) {
  for (int i = 0; i < 3; ++i) AddClient();
  Outcome& held = StartAt(0, kHold);
  CallAt(1);
  CallAt(2);
  EXPECT_EQ(Resting(), (std::vector<int>{1}));
  EXPECT_EQ(Resting(), (std::vector<int>{1, 2}));
  EXPECT_EQ(Resting(), (std::vector<int>{1, 2})) << "nobody is left to ask";
  EXPECT_EQ(server().counters().rests_asked, 2u);
  CallAt(1);
  clock_.Advance(kMs);
  ASSERT_EQ(nodes_[0]->held.size(), 1u);
  nodes_[0]->held[0]->Finish(absl::OkStatus());
  nodes_[0]->held.clear();
  PollAll();
  EXPECT_TRUE(held.status.ok()) << held.status;
  EXPECT_EQ(Resting(), (std::vector<int>{1, 2})) << "its call ended after the call of 1";
  EXPECT_EQ(Resting(), (std::vector<int>{0, 1, 2}));
}

TEST_F(ManyClients, AClientThatDoesNotLeaveGoesToTheEndOfTheLine) {
  for (int i = 0; i < 2; ++i) AddClient();
  CallAt(0);
  CallAt(1);
  clients_[0].end->Kill();  // it does not answer, and the server does not know that yet
  clock_.Advance(kMs);
  for (int i = 0; i < 3; ++i) {
    server().OnNoPlace(true);
    clock_.Advance(50 * kMs);
    server().Poll();
  }
  EXPECT_EQ(server().counters().rests_asked, 2u) << "each was asked, and not again at once";
  clock_.Advance(800 * kMs);
  server().Poll();
  server().OnNoPlace(true);
  EXPECT_EQ(server().counters().rests_asked, 2u);
}

TEST_F(ManyClients, ForOneThatTriesAgainAndAgainOneIsAskedAtATime) {
  for (int i = 0; i < 5; ++i) AddClient();
  for (int i = 0; i < 20; ++i) {
    server().OnNoPlace(true);  // nobody has read the message yet
    clock_.Advance(2 * kMs);
    server().Poll();
  }
  EXPECT_EQ(server().counters().rests_asked, 1u);
  PollAll();
  server().OnNoPlace(true);
  EXPECT_EQ(server().counters().rests_asked, 2u) << "the first has left";
}

TEST_F(ManyClients, WhileNoClientWaitsOneThatWasUsedJustNowIsNotAsked) {
  for (int i = 0; i < 3; ++i) AddClient();
  for (int i = 0; i < 3; ++i) CallAt(i);
  clock_.Advance(2000 * kMs);
  EXPECT_EQ(Resting(/*refused=*/false), std::vector<int>{}) << "there are enough places";
  EXPECT_EQ(Resting(/*refused=*/true), (std::vector<int>{0}));
  CallAt(1);
  CallAt(2);
  EXPECT_EQ(Resting(/*refused=*/false), (std::vector<int>{0})) << "the others were used just now";
  clock_.Advance(999 * kMs);
  CallAt(2);
  EXPECT_EQ(Resting(/*refused=*/false), (std::vector<int>{0, 1}));
  clock_.Advance(10'000 * kMs);
  EXPECT_EQ(Resting(/*refused=*/false), (std::vector<int>{0, 1})) << "nobody was refused lately";
}

TEST_F(ManyClients, AServerThatDrainsAsksNobody) {
  AddClient();
  server().StartDrain(clock_.NowNs() + 1000 * kMs, clock_.NowNs() + 2000 * kMs);
  server().OnNoPlace(true);
  EXPECT_EQ(server().counters().rests_asked, 0u);
}

TEST_F(RestTest, AClientMayNotAskTheServerToRest) {
  Connect(1);
  Outcome& held = outcomes_.emplace_back();
  ASSERT_TRUE(Start(&held, kHold).ok());
  Settle();
  client_end_->set_tamper([](std::vector<std::byte>& message) {
    if (message[1] == std::byte{12}) message[2] = std::byte{frame::kFlagRest};
    return 1;
  });
  server().StartDrain(clock_.NowNs() + 1000 * kMs, clock_.NowNs() + 2000 * kMs);
  Settle();
  EXPECT_EQ(server().counters().protocol_errors, 1u);
}

// ---- Both

TEST_F(RestTest, WhateverCrossesTheMessageNoCallFails) {
  uint64_t connections = 0;
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    fake_options_.credits = 1 + static_cast<int>(random() % 4);
    if (client_ != nullptr) client_->Close();
    nodes_.clear();
    outcomes_.clear();
    Connect(1);
    for (int step = 0; step < 1500; ++step) {
      switch (random() % 8) {
        case 0:
          if (random() % 4 != 0) break;
          ASSERT_TRUE(Start(&outcomes_.emplace_back(), random() % 4 == 0 ? kHold : kOnce).ok());
          break;
        case 1:
          server().OnNoPlace(true);
          break;
        case 2:
          clock_.Advance(200 * kMs);
          break;
        case 3:
          for (ServerCall* call : std::exchange(nodes_[0]->held, {})) call->Finish({});
          break;
        case 4:
          client_->Flush();
          break;
        case 5:
          nodes_[0]->end->Flush();
          break;
        case 6:
          client_->Poll();
          break;
        default:
          server().Poll();
      }
    }
    Settle();
    FinishHeld(0);
    Settle();
    for (const Outcome& one : outcomes_) {
      ASSERT_EQ(one.ended, 1);
      ASSERT_TRUE(one.status.ok()) << one.status;
    }
    EXPECT_EQ(client_->counters().connections_lost, 0u);
    connections += client_->counters().connections;
  }
  EXPECT_GT(connections, 600u) << "it rests, or this shows nothing";
}

}  // namespace rest_test
}  // namespace sluice::call
