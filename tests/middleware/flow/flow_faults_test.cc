// SPDX-License-Identifier: Apache-2.0
//
// Peers that say what no Sluice says: their connection ends with an error that names it, and nobody else is harmed.
#include <functional>
#include <random>

#include "tests/middleware/flow/flow_fixture.h"
#include "transport/base/error.h"

namespace sluice::flow {
namespace flow_faults_test {

using frame::Header;
using frame::Kind;

// Says what a test wants, in order and once as a session does.
struct Raw final : session::User {
  Raw(FakeNetwork* network, ManualClock* clock) : endpoint(network->Create(&sessions, clock)) {
    sessions.Attach(endpoint.get());
    EXPECT_TRUE(endpoint->Connect("b", 1, INT64_MAX).ok());
  }
  void OnPeerUp(endpoint::PeerId id, const endpoint::PeerInfo&) override { peer = id; }
  void OnPeerDown(endpoint::PeerId, const absl::Status&) override { down = true; }
  void OnMessage(endpoint::PeerId, const Header& header, std::span<const std::byte>) override {
    last = header;
  }
  void OnWritable(endpoint::PeerId) override {}
  void OnProtocolError(endpoint::PeerId, std::string_view what, std::string_view) override {
    ADD_FAILURE() << what;
  }
  void Say(Header header, const std::string& payload = "") {
    auto buffer = sessions.Reserve(peer, static_cast<uint32_t>(payload.size()));
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    std::memcpy(buffer->data, payload.data(), payload.size());
    header.payload_bytes = static_cast<uint32_t>(payload.size());
    sessions.Commit(peer, *buffer, header);
  }
  static Header Of(Kind kind, uint32_t flow, uint32_t window = 0) {
    Header header;
    header.kind = kind;
    header.flow_id = flow;
    header.flow_window = window;
    return header;
  }
  void SayOpen(uint32_t index, uint32_t window = 10, const std::string& name = "end",
               char priority = 1) {
    Header header = Of(Kind::kFlowOpen, 0, window);
    header.call_id = index;
    Say(header, priority + name);
  }

  session::Sessions sessions{this};
  std::unique_ptr<FakeEndpoint> endpoint;
  endpoint::PeerId peer;
  Header last;
  bool down = false;
};

class FlowFaultsTest : public FlowTest {
 protected:
  void SettleWith(Raw* raw) {
    for (int i = 0; i < 20; ++i) {
      raw->endpoint->Poll();
      Settle();
    }
  }
};

struct Fault {
  const char* what;  // in the error
  std::function<void(Raw&, uint32_t flow)> say;
};

// `flow` is b's index of an open flow.
const Fault kFaults[] = {
    {"calls need a Server",
     [](Raw& raw, uint32_t) {
       Header header = Raw::Of(Kind::kRequest, 0);
       header.method_id = 1;
       raw.Say(header);
     }},
    {"calls need a Server",  // it names the place of a flow by chance: b has flow 0
     [](Raw& raw, uint32_t) { raw.Say(Raw::Of(Kind::kStreamWindow, 0, 10)); }},
    {"calls need a Server", [](Raw& raw, uint32_t) { raw.Say(Raw::Of(Kind::kDrain, 0)); }},
    {"does not have", [](Raw& raw, uint32_t) { raw.Say(Raw::Of(Kind::kFlowData, 77)); }},
    {"does not have", [](Raw& raw, uint32_t) { raw.Say(Raw::Of(Kind::kFlowClose, UINT32_MAX)); }},
    {"does not have",  // the other peer's: a's flow has the place before ours
     [](Raw& raw, uint32_t flow) { raw.Say(Raw::Of(Kind::kFlowData, flow - 1)); }},
    {"more than the flow's window",
     [](Raw& raw, uint32_t flow) {
       for (int i = 0; i < 5; ++i) raw.Say(Raw::Of(Kind::kFlowData, flow, 10), "m");
     }},
    {"window out of range",  // less than before
     [](Raw& raw, uint32_t flow) { raw.Say(Raw::Of(Kind::kFlowWindow, flow, 9)); }},
    {"window out of range",
     [](Raw& raw, uint32_t flow) {
       raw.Say(Raw::Of(Kind::kFlowWindow, flow, kMaxWindow));
       raw.Say(Raw::Of(Kind::kFlowWindow, flow, kMaxWindow + 1));
     }},
    {"window out of range",
     [](Raw& raw, uint32_t flow) { raw.Say(Raw::Of(Kind::kFlowData, flow, 9), "m"); }},
    {"window out of range",
     [](Raw& raw, uint32_t flow) {
       raw.Say(Raw::Of(Kind::kFlowData, flow, kMaxWindow), "m");
       raw.Say(Raw::Of(Kind::kFlowData, flow, kMaxWindow + 1), "m");
     }},
    {"window out of range", [](Raw& raw, uint32_t) { raw.SayOpen(8, kMaxWindow + 1); }},
    {"unknown priority", [](Raw& raw, uint32_t) { raw.SayOpen(8, 1, "end", 3); }},
    {"not being opened",
     [](Raw& raw, uint32_t flow) { raw.Say(Raw::Of(Kind::kFlowAccept, flow, 10)); }},
    {"has closed",
     [](Raw& raw, uint32_t flow) {
       raw.Say(Raw::Of(Kind::kFlowClose, flow));
       raw.Say(Raw::Of(Kind::kFlowData, flow, 10));
     }},
    {"has closed",
     [](Raw& raw, uint32_t flow) {
       raw.Say(Raw::Of(Kind::kFlowClose, flow));
       raw.Say(Raw::Of(Kind::kFlowClose, flow));
     }},
    {"without a name", [](Raw& raw, uint32_t) { raw.SayOpen(8, 1, std::string(256, 'n')); }},
    {"without a name", [](Raw& raw, uint32_t) { raw.SayOpen(8, 1, ""); }},
};

TEST_F(FlowFaultsTest, EachEndsItsConnectionAndNoOther) {
  accept_options_ = {.window = 4, .manual_consume = true};
  Start();
  Ear good;
  Open(&good);
  Settle();
  uint64_t errors = 0;
  for (const Fault& fault : kFaults) {
    SCOPED_TRACE(fault.what);
    Raw raw(&network_, &clock_);
    SettleWith(&raw);
    raw.SayOpen(7);
    SettleWith(&raw);
    ASSERT_EQ(raw.last.kind, Kind::kFlowAccept);
    ASSERT_EQ(raw.last.flow_id, 7u);
    const auto flow = static_cast<uint32_t>(raw.last.call_id);
    const size_t flows = b_->engine.flows();
    fault.say(raw, flow);
    SettleWith(&raw);
    EXPECT_TRUE(raw.down);
    EXPECT_EQ(b_->engine.counters().protocol_errors, ++errors);
    EXPECT_EQ(b_->engine.flows(), flows - 1);
    const Ear& ear = *ears_.back();
    EXPECT_EQ(ear.closed, 1);
    if (!ear.status.ok()) {  // else it had been closed in order before
      EXPECT_EQ(ear.status.code(), absl::StatusCode::kInternal);
      EXPECT_NE(std::string(ear.status.message()).find(fault.what), std::string::npos)
          << ear.status;
      EXPECT_FALSE(base::DetailOf(ear.status)->remedy().empty());
    }
  }
  EXPECT_EQ(good.closed, 0);
  ASSERT_TRUE(good.flow.Send(BytesOf("still here")).ok());
  Settle();
  EXPECT_EQ(ears_[0]->heard, std::vector<std::string>{"still here"});
}

// The same at the side that opens.
TEST_F(FlowFaultsTest, DataBeforeTheAcceptIsAFault) {
  struct Liar final : session::User {
    void OnPeerUp(endpoint::PeerId, const endpoint::PeerInfo&) override {}
    void OnPeerDown(endpoint::PeerId, const absl::Status&) override {}
    void OnMessage(endpoint::PeerId peer, const Header& open, std::span<const std::byte>) override {
      auto buffer = sessions.Reserve(peer, 0);
      Header header = Raw::Of(Kind::kFlowData, static_cast<uint32_t>(open.call_id));
      sessions.Commit(peer, *buffer, header);
    }
    void OnWritable(endpoint::PeerId) override {}
    void OnProtocolError(endpoint::PeerId, std::string_view, std::string_view) override {}
    session::Sessions sessions{this};
  } liar;
  auto endpoint = network_.Create(&liar.sessions, &clock_);
  liar.sessions.Attach(endpoint.get());
  ASSERT_TRUE(endpoint->Listen("b", 1).ok());
  a_ = std::make_unique<Node>(&network_, &clock_);
  Ear ear;
  Open(&ear);
  for (int i = 0; i < 10; ++i) {
    a_->engine.Poll();
    endpoint->Poll();
  }
  EXPECT_EQ(ear.closed, 1);
  EXPECT_NE(std::string(ear.status.message()).find("has not accepted"), std::string::npos)
      << ear.status;
  EXPECT_EQ(a_->engine.flows(), 0u);
}

// The device refuses the memory of a large message between Reserve() and Commit().
TEST_F(FlowFaultsTest, CommitThatLosesItsMessageEndsTheConnectionWhenThePassEnds) {
  fake_.max_large_bytes = 1 << 20;
  Start();
  Ear ear, next;
  Open(&ear);
  Settle();
  ASSERT_TRUE(ear.flow.is_open());
  a_->endpoint->set_slow_lending(true);
  const auto buffer = ear.flow.Reserve(100'000);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  a_->endpoint->FinishLending(absl::AbortedError("no memory"));
  a_->engine.Poll();
  ear.flow.Commit(*buffer, 100'000);
  EXPECT_EQ(ear.closed, 0) << "the caller is in Commit()";
  EXPECT_TRUE(a_->engine.HasWork()) << "there is another pass before a sleep";
  EXPECT_TRUE(absl::IsFailedPrecondition(ear.flow.Send(BytesOf("late"))));
  Open(&next);  // over a connection of its own
  Settle();
  EXPECT_EQ(ear.closed, 1);
  EXPECT_EQ(next.opened, 1);
  EXPECT_TRUE(next.flow.is_open());
  EXPECT_EQ(a_->engine.counters().protocol_errors, 1u);
  EXPECT_EQ(a_->engine.flows(), 1u);
}

// Its sender leaves, and the receiver does not know that yet: no rule is broken.
TEST_F(FlowFaultsTest, LargeMessageThatIsTakenBackEndsTheFlowAsUnavailable) {
  fake_.max_large_bytes = 1 << 20;
  Start();
  Ear ear;
  Open(&ear);
  Settle();
  ASSERT_EQ(ears_.size(), 1u);
  b_->endpoint->set_fail_fetches(absl::PermissionDeniedError("refused"));
  ASSERT_TRUE(ear.flow.Send(BytesOf(std::string(100'000, 'x'))).ok());
  Settle();
  EXPECT_EQ(ears_[0]->closed, 1);
  EXPECT_EQ(ears_[0]->status.code(), absl::StatusCode::kUnavailable) << ears_[0]->status;
  EXPECT_NE(std::string(ears_[0]->status.message()).find("withdrew the message"), std::string::npos)
      << ears_[0]->status;
  EXPECT_EQ(b_->engine.counters().protocol_errors, 0u);
  EXPECT_EQ(ear.closed, 1);
  EXPECT_EQ(ear.status.code(), absl::StatusCode::kUnavailable) << ear.status;
  EXPECT_EQ(b_->engine.flows(), 0u);
}

TEST_F(FlowFaultsTest, RefusalsThatAreNotReadAreBounded) {
  for (const char* end : {"no such end", "closed shop"}) {
    SCOPED_TRACE(end);
    Start();
    ASSERT_TRUE(
        b_->engine.Accept("closed shop", {}, [](Flow, const Offer&) { return nullptr; }).ok());
    Raw raw(&network_, &clock_);
    SettleWith(&raw);
    raw.endpoint->set_withhold_credits(true);  // b's answers are not taken
    for (uint32_t i = 0; i < 3000 && !raw.down; ++i) {
      raw.SayOpen(i, 1, end);
      raw.endpoint->Poll();
      Settle();
      raw.endpoint->Poll();
    }
    EXPECT_TRUE(raw.down);
    EXPECT_EQ(b_->engine.counters().protocol_errors, 1u);
    EXPECT_EQ(b_->engine.flows(), 0u);
    b_.reset();  // its name is free again
  }
}

// Its refusals take all the places; whoever needs one does not pay for that.
TEST_F(FlowFaultsTest, RefusalsThatAreNotReadEndTheirPeerNotAnother) {
  Start();
  Raw raw(&network_, &clock_);
  SettleWith(&raw);
  raw.endpoint->set_withhold_credits(true);
  for (uint32_t i = 0; i < 3000 && b_->engine.flows() < 1024; ++i) {
    raw.SayOpen(i, 1, "no such end");
    raw.endpoint->Poll();
    Settle();
  }
  ASSERT_EQ(b_->engine.flows(), 1024u);
  Ear refused, good;
  Open(&refused, {}, "no such end");
  Open(&good);
  Settle();
  raw.endpoint->Poll();
  EXPECT_TRUE(raw.down);
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kNotFound) << refused.status;
  EXPECT_EQ(good.opened, 1);
  EXPECT_TRUE(good.flow.is_open());
}

// An endpoint gives a peer's place away as soon as it is free, and tells who was there before afterwards.
TEST_F(FlowFaultsTest, PeerInThePlaceOfOneWhoseEndIsStillToBeToldTakesNoFlowOfIt) {
  Start();
  Ear ear;
  Open(&ear);
  Settle();
  ASSERT_EQ(ears_.size(), 1u);
  const Flow flow = ears_[0]->flow;
  ASSERT_TRUE(flow.is_open());
  endpoint::PeerInfo info;
  info.inbound = true;
  info.max_message_bytes = 4096;
  b_->engine.OnPeerUp({0, 2}, info);
  EXPECT_FALSE(flow.is_open());
  EXPECT_EQ(flow.Send({}).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ears_[0]->closed, 0);
  b_->engine.OnPeerDown({0, 1}, absl::UnavailableError("it was cut off"));
  EXPECT_EQ(ears_[0]->closed, 1);
  EXPECT_EQ(ears_[0]->status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(b_->engine.flows(), 0u);
}

TEST_F(FlowFaultsTest, HandlerMayTakeThePlaceOfThePeerThatItIsCalledFor) {
  Start();
  Ear ear;
  Open(&ear);
  Settle();
  Ear& there = *ears_.at(0);
  EXPECT_GT(there.SendAll("until there is no credit"), 1);
  endpoint::PeerInfo info;
  info.inbound = true;
  info.max_message_bytes = 4096;
  there.on_writable = [&] { b_->engine.OnPeerUp({0, 2}, info); };
  Settle();
  ASSERT_EQ(there.writable, 1);
  EXPECT_FALSE(there.flow.is_open());
  b_->engine.OnPeerDown({0, 1}, absl::UnavailableError("it was cut off"));
  EXPECT_EQ(there.closed, 1);
  EXPECT_EQ(b_->engine.flows(), 0u);
}

// Damaged bytes both ways: nobody crashes, each flow ends once, and a new one works.
TEST_F(FlowFaultsTest, DamagedMessagesNeverHarmMoreThanTheirConnection) {
  Start();
  std::mt19937 random(1);
  bool harm = true;
  const auto damage = [&](std::vector<std::byte>& message) {
    if (!harm || random() % 32 != 0) return 1;
    for (uint32_t n = 1 + random() % 3; n > 0; --n) {
      message[random() % std::min<size_t>(message.size(), frame::kHeaderBytes)] =
          static_cast<std::byte>(random() % 12);
    }
    return 1 + static_cast<int>(random() % 2);
  };
  a_->endpoint->set_tamper(damage);
  b_->endpoint->set_tamper(damage);
  std::vector<std::unique_ptr<Ear>> all;
  for (int round = 0; round < 3000; ++round) {
    auto ear = std::make_unique<Ear>();
    if (auto flow = a_->engine.Open("b", 1, "end", {}, ear.get()); flow.ok()) {
      ear->flow = *flow;
      all.push_back(std::move(ear));
    }
    for (int i = 0; i < 4 && !all.empty(); ++i) {
      Ear& some = *all[all.size() - 1 - random() % std::min<size_t>(all.size(), 20)];
      random() % 4 == 0 ? some.flow.Close() : (void)some.SendAll("m", 3);
    }
    a_->engine.Poll();
    b_->engine.Poll();
  }
  harm = false;
  Settle();
  for (auto& ear : all) ear->flow.Close();
  Settle();
  for (auto& ear : all) ASSERT_EQ(ear->closed, 1);
  EXPECT_GT(a_->engine.counters().protocol_errors, 20u);
  EXPECT_GT(b_->engine.counters().protocol_errors, 20u);
  EXPECT_EQ(a_->engine.flows(), 0u);
  Ear last;
  Open(&last);
  Settle();
  EXPECT_EQ(last.opened, 1);
}

}  // namespace flow_faults_test
}  // namespace sluice::flow
