// SPDX-License-Identifier: Apache-2.0
//
// What an engine does when a peer can be written to, and with the flows that an acceptor refuses.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/middleware/flow/flow_fixture.h"

namespace sluice::flow {
namespace flow_reception_test {

using Texts = std::vector<std::string>;

// An endpoint whose peers wait for buffers: only a peer whose OnWritable() runs gets one, as in transport/endpoint/messages.cc.
class BuffersInTurn final : public endpoint::Handler {
 public:
  static constexpr int kRefused = 1'000'000'000;

  explicit BuffersInTurn(endpoint::Handler* to) : to_(to) {}
  void OnPeerUp(endpoint::PeerId peer, const endpoint::PeerInfo& info) override {
    to_->OnPeerUp(peer, info);
  }
  void OnPeerDown(endpoint::PeerId peer, const absl::Status& why) override {
    to_->OnPeerDown(peer, why);
  }
  bool OnMessage(endpoint::PeerId peer, std::span<const std::byte> bytes) override {
    return to_->OnMessage(peer, bytes);
  }
  void OnAcknowledged(endpoint::PeerId peer, uint32_t total) override {
    to_->OnAcknowledged(peer, total);
  }
  void OnWritable(endpoint::PeerId peer) override {
    if (short_of_buffers) endpoint->set_fail_reserves(0);
    to_->OnWritable(peer);
    if (short_of_buffers) endpoint->set_fail_reserves(kRefused);
  }
  // The peer whose turn it is has used its share.
  void EndTurn() { endpoint->set_fail_reserves(kRefused); }

  FakeEndpoint* endpoint = nullptr;
  bool short_of_buffers = false;

 private:
  endpoint::Handler* const to_;
};

TEST_F(FlowTest, PeersThatWaitForBuffersAreServedInTheirTurnBesideAPeerWithoutCredit) {
  static constexpr int kPeers = 4;
  accept_options_.window = 60000;
  FlowEngine engine({}, &clock_, nullptr);
  BuffersInTurn buffers(engine.handler());
  const std::unique_ptr<FakeEndpoint> endpoint = network_.Create(&buffers, &clock_);
  buffers.endpoint = endpoint.get();
  engine.Attach(endpoint.get());
  std::unique_ptr<Node> nodes[kPeers];
  Ear there[kPeers];
  Ear here[kPeers];
  const auto poll = [&](int passes) {
    for (int i = 0; i < passes; ++i) {
      engine.Poll();
      for (auto& node : nodes) node->engine.Poll();
    }
  };
  for (int i = 0; i < kPeers; ++i) {
    const std::string host = "peer" + std::to_string(i);
    nodes[i] = std::make_unique<Node>(&network_, &clock_);
    ASSERT_TRUE(nodes[i]->endpoint->Listen(host, 1).ok());
    ASSERT_TRUE(nodes[i]
                    ->engine
                    .Accept("end", accept_options_,
                            [&there, i](Flow flow, const Offer&) {
                              there[i].flow = flow;
                              return &there[i];
                            })
                    .ok());
    const auto flow = engine.Open(host, 1, "end", {}, &here[i]);
    ASSERT_TRUE(flow.ok()) << flow.status();
    here[i].flow = *flow;
  }
  poll(10);
  // The first peer gives no credit back: it waits all the time, in front of the others.
  nodes[0]->endpoint->set_withhold_credits(true);
  for (int i = 0; i < 10; ++i) {
    here[0].SendAll("m");
    poll(1);
  }
  const uint64_t starved = here[0].flow.totals().sent;
  buffers.short_of_buffers = true;
  buffers.EndTurn();
  for (int i = 1; i < kPeers; ++i) {
    here[i].on_writable = [&, i] {
      EXPECT_EQ(here[i].SendAll("m", 1), 1);
      buffers.EndTurn();
      EXPECT_EQ(here[i].SendAll("m"), 0);
    };
    EXPECT_EQ(here[i].SendAll("m"), 0);
  }
  poll(100);
  EXPECT_EQ(here[0].flow.totals().sent, starved);
  for (int i = 1; i < kPeers; ++i) {
    EXPECT_GE(here[i].flow.totals().sent, 90u) << i;
    EXPECT_GE(there[i].heard.size(), 89u) << i;
  }
  buffers.short_of_buffers = false;
  endpoint->set_fail_reserves(0);
  engine.Close();
}

// The refusals wait for credit. They take places of refusals, not of flows.
TEST_F(FlowTest, FlowsThatTheAcceptorRefusesDoNotFillTheTable) {
  static constexpr int kRefused = 20;
  fake_.credits = 4;
  engine_options_.max_flows = 4;
  Start();
  ASSERT_TRUE(
      b_->engine.Accept("closed shop", {}, [](Flow, const Offer&) { return nullptr; }).ok());
  ASSERT_TRUE(b_->engine
                  .Accept("closes", {},
                          [](Flow flow, const Offer&) {
                            flow.Close(absl::AbortedError("closed by the acceptor"));
                            return nullptr;
                          })
                  .ok());
  Node c(&network_, &clock_);
  const auto settle = [&] {
    for (int i = 0; i < 20; ++i) {
      c.engine.Poll();
      Settle();
    }
  };
  Ear refused[kRefused];
  for (int i = 0; i < kRefused; ++i) {
    refused[i].flow =
        *c.engine.Open("b", 1, i % 2 == 0 ? "closed shop" : "closes", {}, &refused[i]);
  }
  c.endpoint->set_withhold_credits(true);
  settle();
  EXPECT_EQ(b_->engine.counters().refused, static_cast<uint64_t>(kRefused));
  EXPECT_EQ(b_->engine.flows(), static_cast<uint32_t>(kRefused - fake_.credits));
  Ear good;
  Open(&good);
  settle();
  EXPECT_EQ(good.opened, 1) << good.status;
  c.endpoint->set_withhold_credits(false);
  settle();
  for (int i = 0; i < kRefused; ++i) {
    EXPECT_EQ(refused[i].closed, 1);
    EXPECT_EQ(refused[i].status.code(),
              i % 2 == 0 ? absl::StatusCode::kPermissionDenied : absl::StatusCode::kAborted);
  }
  EXPECT_EQ(b_->engine.flows(), 1u);
  good.flow.Close();
  settle();
}

// The peer knows such a flow, so it ends as one that was open.
TEST_F(FlowTest, AcceptorThatSendsMayStillRefuse) {
  Start();
  ASSERT_TRUE(b_->engine
                  .Accept("once", {},
                          [](Flow flow, const Offer&) {
                            EXPECT_TRUE(flow.Send(BytesOf("no")).ok());
                            return nullptr;
                          })
                  .ok());
  Ear ear;
  ear.on_open = [&ear] { ear.SendAll("m", 3); };
  Open(&ear, {}, "once");
  Settle();
  EXPECT_EQ(ear.heard, Texts{"no"});
  EXPECT_EQ(ear.closed, 1);
  EXPECT_EQ(ear.status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(b_->engine.counters().protocol_errors, 0u);
  EXPECT_EQ(a_->engine.flows() + b_->engine.flows(), 0u);
}

}  // namespace flow_reception_test
}  // namespace sluice::flow
