// SPDX-License-Identifier: Apache-2.0
//
// Three engines, flows between all of them, requests that fail at any moment, narrow windows and few credits: every flow's
// messages arrive in order, once, none is lost, and no flow or slot is left.
#include <map>
#include <random>

#include "tests/middleware/flow/flow_fixture.h"

namespace sluice::flow {
namespace {

struct World;

// One end of one flow. Messages are numbers, 0, 1, 2 …, behind the number of the pair.
struct Point final : FlowHandler {
  Point(World* in, uint32_t the_pair) : world(in), pair(the_pair) {}
  void OnOpen(Flow which) override { flow = which; }
  void OnMessage(Flow which, std::span<const std::byte> bytes) override;
  void OnWritable(Flow which) override;
  void OnDelivered(Flow, uint64_t total) override {
    ASSERT_GT(total, delivered);
    ASSERT_LE(total, sent);
    delivered = total;
  }
  void OnClosed(Flow, const absl::Status& why, const FlowTotals& totals) override {
    ASSERT_FALSE(ended);
    ASSERT_TRUE(why.ok()) << why;
    ASSERT_EQ(totals.sent, sent);
    ASSERT_EQ(totals.received, received);
    ended = true;
  }
  bool Send();
  void Close() {
    closed_here = !ended;
    flow.Close();
  }

  World* const world;
  const uint32_t pair;
  Flow flow;
  uint64_t sent = 0;
  uint64_t received = 0;
  uint64_t consumed = 0;
  uint64_t delivered = 0;
  bool wants = false;  // a Send() was refused
  bool ended = false;
  bool closed_here = false;  // before it ended
  bool manual = false;
};

struct World {
  std::mt19937 random;
  uint64_t refused = 0;
};

bool Point::Send() {
  const uint64_t message[2] = {pair, sent};
  const absl::Status status = flow.Send(std::as_bytes(std::span(message)));
  if (status.ok()) {
    ++sent;
    return true;
  }
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  wants = true;
  ++world->refused;
  return false;
}

void Point::OnWritable(Flow which) {
  flow = which;
  ASSERT_TRUE(wants) << "nobody asked";
  wants = false;
  for (uint32_t n = world->random() % 6; n > 0 && Send(); --n) {
  }
}

void Point::OnMessage(Flow which, std::span<const std::byte> bytes) {
  flow = which;
  ASSERT_FALSE(ended);
  uint64_t message[2];
  ASSERT_EQ(bytes.size(), sizeof(message));
  std::memcpy(message, bytes.data(), sizeof(message));
  ASSERT_EQ(message[0], pair) << "another flow's";
  ASSERT_EQ(message[1], received) << "lost, repeated or out of order";
  ++received;
  if (world->random() % 8 == 0 && !wants) Send();
}

class FlowPropertyTest : public ::testing::TestWithParam<int> {};

TEST_P(FlowPropertyTest, NothingIsLostOrRepeatedAndNoFlowIsLeft) {
  World world{std::mt19937(static_cast<uint32_t>(GetParam())), 0};
  auto& random = world.random;
  ManualClock clock;
  FakeNetwork network;
  std::vector<std::unique_ptr<Node>> nodes;
  std::vector<std::unique_ptr<Point>> openers;
  std::map<uint32_t, std::unique_ptr<Point>> acceptors;  // by pair, which is the end's name
  for (uint16_t i = 0; i < 3; ++i) {
    nodes.push_back(std::make_unique<Node>(
        &network, &clock, FakeNetwork::Options{.credits = 2 + static_cast<int>(random() % 20)}));
    ASSERT_TRUE(nodes[i]->endpoint->Listen("n", i + 1).ok());
  }
  const auto pass = [&] {
    int done = 0;
    for (auto& node : nodes) done += node->engine.Poll();
    return done;
  };
  const auto some_point = [&]() -> Point* {
    const auto at =
        static_cast<uint32_t>(openers.size() - 1 - random() % std::min<size_t>(openers.size(), 30));
    if (random() % 2 == 0) return openers[at].get();
    const auto other = acceptors.find(at);
    return other == acceptors.end() ? nullptr : other->second.get();
  };
  for (int step = 0; step < 20'000; ++step) {
    const uint32_t dice = static_cast<uint32_t>(random() % 100);
    if (openers.empty() || dice < 2) {
      const auto pair = static_cast<uint32_t>(openers.size());
      const uint32_t from = static_cast<uint32_t>(random() % 3);
      const uint32_t to = (from + 1 + static_cast<uint32_t>(random() % 2)) % 3;
      FlowOptions options;
      options.window = 1 + static_cast<uint32_t>(random() % 5);
      options.priority = static_cast<Priority>(random() % 3);
      options.manual_consume = random() % 2 == 0;
      options.report_delivery = random() % 2 == 0;
      FlowOptions at_acceptor = options;
      at_acceptor.manual_consume = random() % 2 == 0;
      at_acceptor.window = 1 + static_cast<uint32_t>(random() % 5);
      ASSERT_TRUE(nodes[to]
                      ->engine
                      .Accept(std::to_string(pair), at_acceptor,
                              [&, pair, at_acceptor](Flow flow, const Offer& offer) {
                                EXPECT_EQ(offer.end, std::to_string(pair));
                                auto& point = acceptors[pair];
                                EXPECT_EQ(point, nullptr) << "offered twice";
                                point = std::make_unique<Point>(&world, pair);
                                point->flow = flow;
                                point->manual = at_acceptor.manual_consume;
                                if (random() % 4 == 0) point->Send();
                                return point.get();
                              })
                      .ok());
      openers.push_back(std::make_unique<Point>(&world, pair));
      openers.back()->manual = options.manual_consume;
      auto flow = nodes[from]->engine.Open("n", static_cast<uint16_t>(to + 1), std::to_string(pair),
                                           options, openers.back().get());
      ASSERT_TRUE(flow.ok()) << flow.status();
      openers.back()->flow = *flow;
    } else if (dice < 50) {
      Point* point = some_point();
      if (point != nullptr && point->flow.is_open() && !point->wants) point->Send();
    } else if (dice < 60) {
      Point* point = some_point();
      if (point != nullptr && point->manual && point->flow.is_open()) {
        const auto unread = static_cast<uint32_t>(point->received - point->consumed);
        const uint32_t n = unread == 0 ? 0 : 1 + static_cast<uint32_t>(random() % unread);
        point->consumed += n;
        point->flow.Consume(n);
      }
    } else if (dice < 62) {
      Point* point = some_point();
      if (point != nullptr && !point->ended && !point->closed_here) point->Close();
    } else if (dice < 66) {
      // Of any of its peers: the fake hands out indexes from 0, and takes each generation once.
      nodes[random() % 3]->endpoint->FailRequests({static_cast<uint32_t>(random() % 4), 1});
    } else if (dice < 70) {
      nodes[random() % 3]->endpoint->set_fail_reserves(1 + static_cast<int>(random() % 3));
    } else {
      nodes[random() % 3]->engine.Poll();
    }
    ASSERT_FALSE(HasFatalFailure());
  }
  const auto settle = [&] {
    for (int quiet = 0; quiet < 3;) quiet = pass() > 0 ? 0 : quiet + 1;
  };
  settle();
  for (auto& opener : openers) {
    if (!opener->ended && !opener->closed_here) opener->Close();
  }
  settle();
  uint64_t messages = 0;
  uint64_t sent_again = 0;
  for (auto& opener : openers) {
    const auto other = acceptors.find(opener->pair);
    ASSERT_TRUE(opener->ended);
    if (other == acceptors.end()) continue;  // closed before it was offered
    const Point& acceptor = *other->second;
    ASSERT_TRUE(acceptor.ended);
    messages += opener->received + acceptor.received;
    // Who did not close itself has had everything.
    if (!acceptor.closed_here) {
      ASSERT_EQ(acceptor.received, opener->sent);
    }
    if (!opener->closed_here) {
      ASSERT_EQ(opener->received, acceptor.sent);
    }
  }
  for (auto& node : nodes) {
    EXPECT_EQ(node->engine.flows(), 0u);
    EXPECT_FALSE(node->engine.HasWork());
    EXPECT_EQ(node->engine.counters().protocol_errors, 0u);
    EXPECT_EQ(node->engine.counters().opened + node->engine.counters().accepted,
              node->engine.counters().ended);
    sent_again += node->engine.session_counters().sent_again;
  }
  EXPECT_GT(openers.size(), 200u);
  EXPECT_GT(messages, 1000u);
  EXPECT_GT(sent_again, 200u);
  EXPECT_GT(world.refused, 200u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, FlowPropertyTest, ::testing::Range(1, 21));

}  // namespace
}  // namespace sluice::flow
