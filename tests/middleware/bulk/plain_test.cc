// SPDX-License-Identifier: Apache-2.0
//
// Transfers without protection share DCIs: what fails for one of them, or for one peer, is nobody else's trouble.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/middleware/bulk/port_nodes.h"

namespace sluice::bulk {
namespace plain_test {

using Kind = integrity::Transfer::Kind;

constexpr int64_t kMs = 1'000'000;
constexpr uint64_t kBytes = 40'000;

class PlainTest : public testing::Test {
 protected:
  void Make(uint32_t nodes, uint32_t max_pieces_in_flight = 16) {
    PortNodesOptions options;
    options.port.max_pieces_in_flight = max_pieces_in_flight;
    options.nodes = nodes;
    options.port.piece_bytes = 4096;
    options.port.dead_peer_ns = 60 * kMs;
    nodes_ = std::make_unique<PortNodes>(options);
    own_ = nodes_->Lend(0, 0).id;
    for (uint32_t i = 1; i < nodes; ++i) {
      joined_.push_back(nodes_->Join(0, i));
      lent_.push_back(nodes_->Lend(i, kMayRead | kMayWrite));
    }
    Fill(nodes_->random, here().memory);
  }
  TransferRequest Request(uint32_t lender, uint64_t tag, Kind kind = Kind::kWrite) {
    TransferRequest request;
    request.kind = kind;
    request.local = own_;
    request.local_offset = request.remote_offset = tag * kBytes;
    request.remote = lent_[lender - 1].capability;
    request.data_bytes = kBytes;
    request.tag = tag;
    return request;
  }
  TransferId Begin(uint32_t lender, const TransferRequest& request) {
    auto transfer = nodes_->Start(0, joined_[lender - 1].at_one, request);
    EXPECT_TRUE(transfer.ok()) << transfer.status();
    return transfer.value_or(0);
  }
  bool Landed(uint32_t lender, uint64_t tag) {
    return std::ranges::equal(here().at(tag * kBytes, kBytes),
                              (*nodes_)[lender].at(tag * kBytes, kBytes));
  }
  PortNode& here() { return (*nodes_)[0]; }
  PortNode& there(uint32_t lender = 1) { return (*nodes_)[lender]; }

  std::unique_ptr<PortNodes> nodes_;
  LeaseId own_;
  std::vector<PortNodes::Joined> joined_;
  std::vector<PortNodes::Lent> lent_;
};

// Whatever request fails, carried out or not: each arrival comes once, in order, and its bytes are there.
TEST_F(PlainTest, TransfersGoOnThoughRequestsFail) {
  constexpr uint64_t kTransfers = 20;
  for (uint32_t skip = 0; skip < 60; skip += 7) {
    joined_.clear();
    lent_.clear();
    Make(2);
    for (const bool carried_out : {false, true}) {
      nodes_->simulation->FailNext(
          {.node = 0, .peer = 1, .skip = skip, .carried_out = carried_out});
    }
    std::vector<TransferId> ids;
    for (uint64_t tag = 0; tag < kTransfers; ++tag) ids.push_back(Begin(1, Request(1, tag)));
    size_t seen = 0;
    ASSERT_TRUE(nodes_->Run([&] {
      for (; seen < there().arrivals.size(); ++seen) EXPECT_TRUE(Landed(1, seen)) << seen;
      return here().ended.size() == kTransfers && there().arrivals.size() >= kTransfers;
    })) << skip;
    ASSERT_EQ(there().arrivals.size(), kTransfers);
    for (uint64_t tag = 0; tag < kTransfers; ++tag) {
      EXPECT_TRUE(here().ended[ids[tag]].ok()) << here().ended[ids[tag]];
      EXPECT_EQ(there().arrivals[tag].tag, tag);
      EXPECT_EQ(there().arrivals[tag].data_bytes, kBytes);
      EXPECT_TRUE(there().arrivals[tag].status.ok());
    }
    EXPECT_TRUE(here().downs.empty() && there().downs.empty());
  }
}

TEST_F(PlainTest, LinkThatIsCutForAMomentDelaysOnly) {
  Make(2);
  const TransferId transfer = Begin(1, Request(1, 0, Kind::kRead));
  nodes_->simulation->CutLink(0, 1);
  const int64_t until_ns = nodes_->simulation->NowNs() + 30 * kMs;  // longer than one attempt
  ASSERT_TRUE(nodes_->Run([&] { return nodes_->simulation->NowNs() > until_ns; }));
  EXPECT_FALSE(here().ended.contains(transfer));
  nodes_->simulation->HealLink(0, 1);
  ASSERT_TRUE(nodes_->Run([&] { return !there().arrivals.empty(); }));
  EXPECT_TRUE(here().ended[transfer].ok()) << here().ended[transfer];
  EXPECT_TRUE(Landed(1, 0));
}

TEST_F(PlainTest, RefusedTransferEndsAloneAmongThoseOfItsPeer) {
  Make(2);
  std::vector<TransferId> ids;
  for (uint64_t tag = 0; tag < 9; ++tag) {
    TransferRequest request = Request(1, tag);
    if (tag % 3 == 1) request.remote.key ^= 0x7700;  // as if its bytes had been changed
    ids.push_back(Begin(1, request));
  }
  ASSERT_TRUE(nodes_->Run([&] { return there().arrivals.size() == 9; }));
  for (uint64_t tag = 0; tag < 9; ++tag) {
    const bool refused = tag % 3 == 1;
    EXPECT_EQ(here().ended[ids[tag]].code(),
              refused ? absl::StatusCode::kPermissionDenied : absl::StatusCode::kOk);
    EXPECT_EQ(there().arrivals[tag].status.code(),
              refused ? absl::StatusCode::kCancelled : absl::StatusCode::kOk);
    EXPECT_EQ(there().arrivals[tag].data_bytes, refused ? 0 : kBytes);
    EXPECT_EQ(Landed(1, tag), !refused);
  }
  EXPECT_TRUE(here().downs.empty());
}

TEST_F(PlainTest, LenderThatDoesNotLookHoldsUpNobody) {
  Make(3);
  nodes_->dead = {false, true};
  for (uint64_t tag = 0; tag < 24; ++tag) {
    Begin(1, Request(1, tag));
    Begin(2, Request(2, tag));
  }
  ASSERT_TRUE(nodes_->Run([&] { return there(2).arrivals.size() == 24; }));
  EXPECT_EQ(nodes_->simulation->counters().not_ready, 0u);
  EXPECT_LT(here().ended.size(), 48u) << "they wait until it has looked at some";
  nodes_->dead.clear();
  ASSERT_TRUE(nodes_->Run([&] { return there(1).arrivals.size() == 24; }));
  ASSERT_TRUE(nodes_->Run([&] { return here().ended.size() == 48; }));
  for (const auto& [id, status] : here().ended) EXPECT_TRUE(status.ok()) << status;
}

TEST_F(PlainTest, LenderThatDiesCostsItsNeighboursNothing) {
  Make(4);
  std::set<TransferId> to_dead;
  for (uint64_t tag = 0; tag < 24; ++tag) {
    for (const uint32_t lender : {1u, 2u, 3u}) {
      const TransferId id = Begin(lender, Request(lender, tag));
      if (lender == 1) to_dead.insert(id);
    }
    if (tag == 3) {
      ASSERT_TRUE(nodes_->Run([&] { return there(1).arrivals.size() == 1; }));
      nodes_->simulation->Kill(1);
      nodes_->dead = {false, true};
    }
  }
  ASSERT_TRUE(nodes_->Run([&] { return here().ended.size() == 72; }));
  for (const auto& [id, status] : here().ended) {
    if (!to_dead.contains(id)) {
      EXPECT_TRUE(status.ok()) << status;
    }
  }
  ASSERT_TRUE(nodes_->Run([&] { return here().downs.size() == 1; }));
  EXPECT_EQ(here().downs[0].first, joined_[0].at_one);
  for (const uint32_t lender : {2u, 3u}) {
    EXPECT_EQ(there(lender).arrivals.size(), 24u);
    for (uint64_t tag = 0; tag < 24; ++tag) EXPECT_TRUE(Landed(lender, tag));
  }
}

// The other side need not have heard of it: what it is told comes before it knows from whom, and it answers afterwards.
TEST_F(PlainTest, SideThatAcceptedMayBeginBeforeTheOtherHasCompleted) {
  Make(2);
  const auto lent = nodes_->Lend(0, kMayWrite);
  const LeaseId own = nodes_->Lend(1, 0).id;
  std::string ticket, answer;
  PeerId at_one, at_other;
  {
    const auto as = nodes_->As(0);
    at_one = *here().port->Offer(&ticket);
  }
  {
    const auto as = nodes_->As(1);
    at_other = *there().port->Accept(ticket, &answer);
  }
  TransferRequest request;
  request.local = own;
  request.remote = lent.capability;
  request.data_bytes = kBytes;
  const integrity::Protection dif{.wire = integrity::Guard::kT10DifCrc, .block_bytes = 512};
  constexpr size_t kPlain = 20;  // more than it takes words before it answers
  for (size_t i = 0; i <= kPlain; ++i) {
    if (i == 5) {
      request.protection = dif;
      request.data_bytes = 10 * 512;
    }
    ASSERT_TRUE(nodes_->Start(1, at_other, request).ok());
    request.protection = {};
    request.data_bytes = kBytes;
  }
  ASSERT_TRUE(nodes_->Run([&] { return here().arrivals.size() == 5; }));
  EXPECT_GE(there().ended.size(), 5u);
  const int64_t until_ns = nodes_->simulation->NowNs() + 300 * kMs;
  ASSERT_TRUE(nodes_->Run([&] { return nodes_->simulation->NowNs() > until_ns; }));
  EXPECT_LT(there().ended.size(), kPlain + 1);
  {
    const auto as = nodes_->As(0);
    ASSERT_TRUE(here().port->Complete(at_one, answer).ok());
  }
  ASSERT_TRUE(nodes_->Run(
      [&] { return there().ended.size() == kPlain + 1 && here().arrivals.size() == kPlain + 1; }));
  for (const auto& [id, status] : there().ended) EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(here().downs.empty() && there().downs.empty());
}

TEST_F(PlainTest, PeerThatIsLeftHearsOfIt) {
  Make(2);
  {
    const auto as = nodes_->As(0);
    EXPECT_TRUE(here().port->Disconnect(joined_[0].at_one).ok());
  }
  ASSERT_TRUE(nodes_->Run([&] { return !there().downs.empty() && !here().downs.empty(); }));
  EXPECT_EQ(there().downs[0].first, joined_[0].at_other);
  EXPECT_EQ(there().downs[0].second.code(), absl::StatusCode::kUnavailable);
}

// There are so many pieces for all peers together, and any two of these would take them all.
TEST_F(PlainTest, PeersThatHaveMuchToDoLeavePiecesToOthers) {
  for (uint32_t alone = 1; alone <= 3; ++alone) {
    joined_.clear();
    lent_.clear();
    Make(4, /*max_pieces_in_flight=*/128);
    std::vector<std::vector<TransferId>> open(4);
    const auto top_up = [&] {
      for (uint32_t to = 1; to <= 3; ++to) {
        if (to == alone) continue;
        std::erase_if(open[to], [&](TransferId id) { return here().ended.contains(id); });
        TransferRequest much = Request(to, 0);
        much.data_bytes = kMemoryBytes;
        while (open[to].size() < 3) open[to].push_back(Begin(to, much));
      }
    };
    top_up();
    nodes_->Pass();
    const TransferId small = Begin(alone, Request(alone, 1));
    const int64_t end_ns = nodes_->simulation->NowNs() + 20 * kMs;
    nodes_->Run([&] {
      top_up();
      return here().ended.contains(small) || nodes_->simulation->NowNs() > end_ns;
    });
    EXPECT_TRUE(here().ended.contains(small)) << alone;
  }
}

}  // namespace plain_test
}  // namespace sluice::bulk
