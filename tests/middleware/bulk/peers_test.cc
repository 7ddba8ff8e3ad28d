// SPDX-License-Identifier: Apache-2.0
//
// Who is a peer, and for how long: of few places the one that was not used for the longest time is given to others.
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/middleware/bulk/port_nodes.h"

namespace sluice::bulk {
namespace peers_test {

using testing::HasSubstr;

constexpr int64_t kMs = 1'000'000;

class TwoPeersTest : public testing::Test {
 protected:
  TwoPeersTest() {
    PortNodesOptions options;
    options.nodes = 4;
    options.port.max_peers = 2;
    nodes_ = std::make_unique<PortNodes>(options);
  }
  void RunFor(int64_t ns) {
    const int64_t end_ns = nodes_->simulation->NowNs() + ns;
    nodes_->Run([&] { return nodes_->simulation->NowNs() >= end_ns; });
  }
  PortNode& here() { return (*nodes_)[0]; }
  PortNode& there() { return (*nodes_)[1]; }

  std::unique_ptr<PortNodes> nodes_;
};

TEST_F(TwoPeersTest, PeerThatWritesHereIsInUse) {
  const auto joined = nodes_->Join(0, 1);
  nodes_->Join(0, 2);
  const auto mine = nodes_->Lend(0, kMayWrite);
  const auto theirs = nodes_->Lend(1, 0).id;
  TransferRequest request;
  request.local = theirs;
  request.remote = mine.capability;
  request.data_bytes = 100;
  ASSERT_TRUE(nodes_->Start(1, joined.at_other, request).ok());
  ASSERT_TRUE(nodes_->Run([&] { return here().arrivals.size() == 1; }));
  std::string ticket;
  {
    const auto as = nodes_->As(0);
    EXPECT_EQ(here().port->Offer(&ticket).status().code(), absl::StatusCode::kResourceExhausted);
  }
  ASSERT_TRUE(nodes_->Run([&] { return !here().downs.empty(); }));
  EXPECT_NE(here().downs[0].first, joined.at_one);
}

TEST_F(TwoPeersTest, WhoAsksAgainAtOnceCostsNoSecondPeer) {
  nodes_->Join(0, 1);
  nodes_->Join(0, 2);
  for (int i = 0; i < 3; ++i) {
    std::string ticket;
    const auto as = nodes_->As(0);
    const absl::Status status = here().port->Offer(&ticket).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()), HasSubstr("one peer is being disconnected"));
  }
  RunFor(10 * kMs);
  EXPECT_EQ(here().downs.size(), 1u);
  nodes_->Join(0, 3);
  EXPECT_EQ(here().port->counters().evicted, 1u);
}

// Their tickets were lost, say.
TEST_F(TwoPeersTest, OffersThatNobodyAcceptedMakeRoom) {
  std::string ticket;
  const auto offer = [&] {
    const auto as = nodes_->As(0);
    return here().port->Offer(&ticket).status();
  };
  EXPECT_TRUE(offer().ok());
  EXPECT_TRUE(offer().ok());
  EXPECT_EQ(offer().code(), absl::StatusCode::kResourceExhausted);
  RunFor(10 * kMs);
  EXPECT_EQ(here().downs.size(), 1u);
  EXPECT_TRUE(offer().ok());
}

TEST_F(TwoPeersTest, TicketIsAcceptedOnce) {
  std::string ticket, answer, second;
  {
    const auto as = nodes_->As(0);
    ASSERT_TRUE(here().port->Offer(&ticket).ok());
  }
  const auto as = nodes_->As(1);
  ASSERT_TRUE(there().port->Accept(ticket, &answer).ok());
  EXPECT_EQ(there().port->Accept(ticket, &second).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(PortOptions, PatienceMayBeForEver) {
  PortNodesOptions options;
  options.port.patience_ns = INT64_MAX;
  options.port.watch_ns = INT64_MAX;
  PortNodes nodes(options);
  const auto joined = nodes.Join(0, 1);
  const auto own = nodes.Lend(0, 0).id;
  const auto lent = nodes.Lend(1, kMayWrite);
  TransferRequest request;
  request.local = own;
  request.remote = lent.capability;
  request.data_bytes = kMemoryBytes;
  const auto transfer = nodes.Start(0, joined.at_one, request);
  ASSERT_TRUE(transfer.ok());
  nodes.Pass();
  {
    const auto as = nodes.As(0);
    ASSERT_TRUE(nodes[0].port->Cancel(*transfer).ok());
  }
  ASSERT_TRUE(nodes.Run([&] { return nodes[0].ended.contains(*transfer); }));
  EXPECT_EQ(nodes[0].ended[*transfer].code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(nodes[0].downs.empty());
}

}  // namespace peers_test
}  // namespace sluice::bulk
