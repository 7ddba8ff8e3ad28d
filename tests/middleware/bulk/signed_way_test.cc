// SPDX-License-Identifier: Apache-2.0
//
// The queue pair for protected transfers: there when it is needed, and gone when others need it more.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/middleware/bulk/hostile_port.h"
#include "tests/middleware/bulk/port_nodes.h"

namespace sluice::bulk {
namespace signed_way_test {

using integrity::Guard;
using integrity::Protection;
using Kind = integrity::Transfer::Kind;

constexpr Protection kDif{
    .memory = Guard::kT10DifCrc, .wire = Guard::kT10DifCrc, .block_bytes = 512};
constexpr uint64_t kData = 8 * 512;
constexpr uint64_t kBlocks = 8 * 520;
constexpr uint64_t kMostAtOnce = 8;

class SignedWayTest : public testing::Test {
 protected:
  // Everybody is joined to everybody else, lends all of its memory, and has good blocks in it.
  void Make(uint32_t nodes, uint32_t max_signed_peers = 16, bool simulated = true) {
    PortNodesOptions options;
    options.simulated = simulated;
    options.nodes = nodes;
    options.port.piece_bytes = 4096;
    options.port.max_signed_peers = max_signed_peers;
    if (dead_peer_ns_ != 0) options.port.dead_peer_ns = dead_peer_ns_;
    if (rate_bits_per_second_ != 0) options.sim.rate_bits_per_second = rate_bits_per_second_;
    nodes_ = std::make_unique<PortNodes>(options);
    for (uint32_t i = 0; i < nodes; ++i) {
      own_.push_back(nodes_->Lend(i, 0).id);
      lent_.push_back(nodes_->Lend(i, kMayRead | kMayWrite));
      PortNode& node = (*nodes_)[i];
      std::vector<std::byte> data(kMostAtOnce * kData);
      Fill(nodes_->random, data);
      Protect(kDif, data, node.at(0, kMostAtOnce * kBlocks));
      for (uint32_t j = 0; j < i; ++j) {
        const auto joined = nodes_->Join(j, i);
        peers_[{j, i}] = joined.at_one;
        peers_[{i, j}] = joined.at_other;
      }
    }
  }
  TransferId Begin(uint32_t from, uint32_t to, const Protection& protection = kDif,
                   uint64_t blocks = 1, int64_t deadline_ns = 0) {
    TransferRequest request;
    request.kind = Kind::kRead;  // nobody writes, so that all blocks stay good
    request.local = own_[from];
    request.local_offset = kBlocks * 100;
    request.remote = lent_[to].capability;
    request.data_bytes = blocks * kData;
    request.protection = protection;
    request.deadline_ns = deadline_ns;
    auto transfer = nodes_->Start(from, peers_[{from, to}], request);
    EXPECT_TRUE(transfer.ok()) << transfer.status();
    ++begun_[from];
    return transfer.value_or(0);
  }
  bool AllEnded() {
    for (const auto& [node, count] : begun_) {
      if ((*nodes_)[node].ended.size() < count) return false;
    }
    return true;
  }
  void RunFor(int64_t ns) {
    const int64_t end_ns = nodes_->simulation->NowNs() + ns;
    nodes_->Run([&] { return nodes_->simulation->NowNs() >= end_ns; });
  }
  void ExpectAllGood() {
    for (const auto& node : nodes_->nodes) {
      for (const auto& [id, status] : node->ended) EXPECT_TRUE(status.ok()) << status;
      for (const Arrival& arrival : node->arrivals) EXPECT_TRUE(arrival.status.ok());
      EXPECT_TRUE(node->downs.empty());
    }
  }
  const PortCounters& counters(uint32_t node) { return (*nodes_)[node].port->counters(); }

  int64_t dead_peer_ns_ = 0;           // 0: as by default
  uint64_t rate_bits_per_second_ = 0;  // 0: as by default
  std::unique_ptr<PortNodes> nodes_;
  std::vector<LeaseId> own_;
  std::vector<PortNodes::Lent> lent_;
  std::map<std::pair<uint32_t, uint32_t>, PeerId> peers_;
  std::map<uint32_t, size_t> begun_;
};

TEST_F(SignedWayTest, PlainTransfersNeedNone) {
  Make(3);
  for (int i = 0; i < 10; ++i) Begin(0, 1 + i % 2, Protection());
  ASSERT_TRUE(nodes_->Run([&] { return AllEnded(); }));
  ExpectAllGood();
  for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(counters(i).signed_queues, 0u);
}

TEST_F(SignedWayTest, FirstProtectedTransferMakesItForAllThatFollow) {
  Make(3);
  for (int i = 0; i < 10; ++i) Begin(0, 1);
  ASSERT_TRUE(nodes_->Run([&] { return AllEnded(); }));
  for (int i = 0; i < 10; ++i) Begin(1, 0);
  ASSERT_TRUE(nodes_->Run([&] { return AllEnded(); }));
  ExpectAllGood();
  EXPECT_EQ((*nodes_)[1].arrivals.size(), 10u);
  EXPECT_EQ((*nodes_)[0].arrivals.size(), 10u);
  EXPECT_EQ(counters(0).signed_queues, 1u);
  EXPECT_EQ(counters(1).signed_queues, 1u);
  EXPECT_EQ(counters(2).signed_queues, 0u);
}

TEST_F(SignedWayTest, ReadsAreUnderWayTogether) {
  Make(2);
  Begin(0, 1);
  ASSERT_TRUE(nodes_->Run([&] { return AllEnded(); }));
  const auto time_of = [&](int transfers) {
    const int64_t start_ns = nodes_->simulation->NowNs();
    while (transfers-- > 0) Begin(0, 1);
    EXPECT_TRUE(nodes_->Run([&] { return AllEnded(); }));
    return nodes_->simulation->NowNs() - start_ns;
  };
  const int64_t one_ns = time_of(1);
  EXPECT_LT(time_of(16), 6 * one_ns);
  ExpectAllGood();
}

TEST_F(SignedWayTest, BothSidesMayWantItAtOnce) {
  Make(2);
  const int64_t start_ns = nodes_->simulation->NowNs();
  Begin(0, 1);
  Begin(1, 0);
  ASSERT_TRUE(nodes_->Run([&] { return AllEnded(); }));
  ExpectAllGood();
  // Nobody sends to a queue pair that is not ready: that would be lost, and sent again much later.
  EXPECT_LT(nodes_->simulation->NowNs() - start_ns, 10'000'000);
  EXPECT_EQ(counters(0).signed_queues, 1u);
  EXPECT_EQ(counters(1).signed_queues, 1u);
}

TEST_F(SignedWayTest, TransferThatComesWhileItIsBeingClosedWaitsForTheNext) {
  Make(3, /*max_signed_peers=*/1);
  Begin(0, 1);
  ASSERT_TRUE(nodes_->Run([&] { return AllEnded(); }));
  Begin(0, 2);
  nodes_->Pass();  // 1 is asked
  Begin(0, 1);
  Begin(1, 0);
  ASSERT_TRUE(nodes_->Run([&] { return AllEnded(); }));
  ExpectAllGood();
  EXPECT_EQ(counters(0).signed_queues, 3u);
}

TEST_F(SignedWayTest, PeerThatIsLeftMakesRoom) {
  Make(3, /*max_signed_peers=*/1);
  Begin(0, 1);
  ASSERT_TRUE(nodes_->Run([&] { return AllEnded(); }));
  {
    const auto as = nodes_->As(0);
    ASSERT_TRUE((*nodes_)[0].port->Disconnect(peers_[{0, 1}]).ok());
  }
  ASSERT_TRUE(nodes_->Run([&] { return !(*nodes_)[0].downs.empty(); }));
  const TransferId next = Begin(0, 2);
  ASSERT_TRUE(nodes_->Run([&] { return AllEnded(); }));
  EXPECT_TRUE((*nodes_)[0].ended[next].ok());
  EXPECT_EQ(counters(0).signed_closed, 0u);
}

TEST_F(SignedWayTest, TransferThatWaitsForItMayBeStopped) {
  Make(2);
  const TransferId cancelled = Begin(0, 1);
  const TransferId late = Begin(0, 1, kDif, 1, nodes_->simulation->NowNs() + 1);
  const TransferId good = Begin(0, 1);
  {
    const auto as = nodes_->As(0);
    ASSERT_TRUE((*nodes_)[0].port->Cancel(cancelled).ok());
  }
  ASSERT_TRUE(nodes_->Run([&] { return AllEnded() && (*nodes_)[1].arrivals.size() == 3; }));
  auto& ended = (*nodes_)[0].ended;
  EXPECT_EQ(ended[cancelled].code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(ended[late].code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(ended[good].ok()) << ended[good];
  EXPECT_EQ((*nodes_)[1].arrivals[0].status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ((*nodes_)[1].arrivals[1].status.code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE((*nodes_)[1].arrivals[2].status.ok());
}

TEST_F(SignedWayTest, EldestMakesRoomAndStaysAPeer) {
  Make(5, /*max_signed_peers=*/2);
  for (const uint32_t to : {1u, 2u, 1u, 3u, 1u, 4u}) {
    Begin(0, to);
    ASSERT_TRUE(nodes_->Run([&] { return AllEnded(); })) << to;
  }
  ExpectAllGood();
  // 1 was always used later than the one that went.
  EXPECT_EQ(counters(0).signed_queues, 4u);
  EXPECT_EQ(counters(0).signed_closed, 2u);
  EXPECT_EQ(counters(1).signed_closed, 0u);
  EXPECT_EQ(counters(2).signed_closed, 1u);
  EXPECT_EQ(counters(3).signed_closed, 1u);
  // Those without are peers as before, and have one again when they need it.
  Begin(0, 2, Protection());
  Begin(2, 0);
  ASSERT_TRUE(nodes_->Run([&] { return AllEnded(); }));
  ExpectAllGood();
  EXPECT_EQ(counters(0).signed_queues, 5u);
}

// Everybody with everybody, of fewer queue pairs than there are ways, now and then many transfers at once: whoever is asked to
// close has begun something, or asks itself, or wants another one at once.
TEST_F(SignedWayTest, AllTransfersArriveHoweverOftenQueuePairsChange) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    peers_.clear();
    own_.clear();
    lent_.clear();
    begun_.clear();
    base::SeededRandom random(seed);
    Make(4, /*max_signed_peers=*/1 + seed % 2);
    std::map<uint32_t, size_t> expected;
    for (int round = 0; round < 150; ++round) {
      const auto from = static_cast<uint32_t>(random.Next64() % 4);
      const uint32_t to = (from + 1 + static_cast<uint32_t>(random.Next64() % 3)) % 4;
      const uint64_t burst = random.Next64() % 4 == 0 ? 5 : 1;
      for (uint64_t i = 0; i < burst; ++i) {
        const bool plain = random.Next64() % 5 == 0;
        Begin(from, to, plain ? Protection() : kDif, 1 + random.Next64() % kMostAtOnce);
        ++expected[to];
      }
      // Sometimes at once, sometimes when all is quiet.
      const uint64_t wait = random.Next64() % 3;
      if (wait == 0) continue;
      const int64_t until_ns =
          nodes_->simulation->NowNs() + static_cast<int64_t>(random.Next64() % 100'000);
      ASSERT_TRUE(nodes_->Run([&] {
        return wait == 1 ? nodes_->simulation->NowNs() >= until_ns : AllEnded();
      })) << seed;
    }
    ASSERT_TRUE(nodes_->Run([&] {
      if (!AllEnded()) return false;
      return std::ranges::all_of(expected, [&](const auto& count) {
        return (*nodes_)[count.first].arrivals.size() == count.second;
      });
    })) << seed;
    ExpectAllGood();
    uint64_t closed = 0;
    for (uint32_t i = 0; i < 4; ++i) closed += counters(i).signed_closed;
    EXPECT_GT(closed, 10u);
  }
}

// It has lost its patience with the other side, which lives, and must not go on as if nothing had been.
TEST_F(SignedWayTest, PeerThatIsGivenUpHearsOfItWhenItLooksAgain) {
  Make(2);
  Begin(0, 1);
  ASSERT_TRUE(nodes_->Run([&] { return AllEnded(); }));
  nodes_->dead = {false, true};  // it lives, but does not poll
  for (int i = 0; i < 250; ++i) Begin(0, 1);
  ASSERT_TRUE(nodes_->Run([&] { return AllEnded(); }));
  for (int i = 0; i < 50; ++i) Begin(0, 1, kDif, 1, nodes_->simulation->NowNs() + 1'000'000);
  ASSERT_TRUE(nodes_->Run([&] { return !(*nodes_)[0].downs.empty(); }));
  nodes_->dead = {};
  ASSERT_TRUE(nodes_->Run([&] { return !(*nodes_)[1].downs.empty(); }));
}

// A lender takes transfers in their order, and remembers so many of those behind one that is late.
TEST_F(SignedWayTest, PlainTransfersThatPassAProtectedOneDoNotGoTooFarAhead) {
  Make(3, /*max_signed_peers=*/1);
  Begin(0, 1);
  ASSERT_TRUE(nodes_->Run([&] { return AllEnded(); }));
  const TransferId waits = Begin(0, 2);
  std::vector<TransferId> to_one;
  std::vector<TransferId> plain;
  size_t plain_begun = 0;
  const auto& ended = (*nodes_)[0].ended;
  const auto top_up = [&](size_t most_to_one) {
    std::erase_if(to_one, [&](TransferId id) { return ended.contains(id); });
    while (to_one.size() < most_to_one) to_one.push_back(Begin(0, 1, kDif, kMostAtOnce));
    std::erase_if(plain, [&](TransferId id) { return ended.contains(id); });
    for (; plain_begun < 5000 && plain.size() < 100; ++plain_begun) {
      plain.push_back(Begin(0, 2, Protection()));
    }
  };
  top_up(4);
  // The way to 1 is never idle, so the one to 2 has to wait.
  const int64_t until_ns = nodes_->simulation->NowNs() + 50'000'000;
  ASSERT_TRUE(nodes_->Run([&] {
    top_up(4);
    return nodes_->simulation->NowNs() > until_ns || !(*nodes_)[2].downs.empty();
  }));
  EXPECT_FALSE(ended.contains(waits));
  EXPECT_GT(plain_begun, 1000u);
  ASSERT_TRUE(nodes_->Run([&] {
    if (!(*nodes_)[2].downs.empty()) return true;
    top_up(0);
    return AllEnded() && (*nodes_)[2].arrivals.size() == 5001;
  }));
  ExpectAllGood();
}

TEST_F(SignedWayTest, PeerThatDiesWhileItIsAskedForRoomIsNotWaitedFor) {
  Make(4, /*max_signed_peers=*/1);
  Begin(0, 1);
  ASSERT_TRUE(nodes_->Run([&] { return AllEnded(); }));
  nodes_->simulation->Kill(1);
  nodes_->dead = {false, true};
  for (const uint32_t to : {2u, 3u}) {
    const TransferId transfer = Begin(0, to);
    ASSERT_TRUE(nodes_->Run([&] { return AllEnded(); })) << to;
    EXPECT_TRUE((*nodes_)[0].ended[transfer].ok());
  }
}

TEST_F(SignedWayTest, PeerThatDoesNotLookIsNotWaitedForLong) {
  Make(4, /*max_signed_peers=*/2);
  Begin(0, 1);
  ASSERT_TRUE(nodes_->Run([&] { return AllEnded(); }));
  Begin(0, 2);
  ASSERT_TRUE(nodes_->Run([&] { return AllEnded(); }));
  nodes_->dead = {false, true};  // it lives, but does not poll
  Begin(0, 3);
  ASSERT_TRUE(nodes_->Run([&] { return AllEnded(); }));
  ExpectAllGood();
  nodes_->dead = {};
  Begin(0, 1);
  ASSERT_TRUE(nodes_->Run([&] { return AllEnded(); }));
  ExpectAllGood();
}

// ---- Peers that do not complete their queue pair: after dead_peer_ns another peer gets the place.

constexpr char kHeld[] = "the peer keeps a place for protected transfers";

TEST_F(SignedWayTest, PeerThatNeverConnects_IsGivenUpForAnother) {
  Make(3, /*max_signed_peers=*/1);
  HostilePort hostile(*nodes_, 2, 0);
  hostile.Say({.kind = PortWord::Kind::kQueue, .qp_number = 0x123, .notices = 4, .reads = 1});
  ASSERT_TRUE(hostile.Run([&] { return counters(0).signed_queues == 1; }));
  const int64_t start_ns = nodes_->simulation->NowNs();
  const TransferId transfer = Begin(0, 1);
  ASSERT_TRUE(hostile.Run([&] { return AllEnded(); })) << "it has its place for ever";
  EXPECT_TRUE((*nodes_)[0].ended[transfer].ok()) << (*nodes_)[0].ended[transfer];
  EXPECT_TRUE(hostile.down());
  EXPECT_NE(hostile.why().find(kHeld), std::string::npos) << hostile.why();
  EXPECT_GE(nodes_->simulation->NowNs() - start_ns, 900'000'000);
  EXPECT_EQ((*nodes_)[0].downs.size(), 1u);
}

// Nobody needs its place.
TEST_F(SignedWayTest, PeerThatNeverConnects_StaysWhileThereIsRoom) {
  Make(3, /*max_signed_peers=*/2);
  HostilePort hostile(*nodes_, 2, 0);
  hostile.Say({.kind = PortWord::Kind::kQueue, .qp_number = 0x123, .notices = 4, .reads = 1});
  const int64_t end_ns = nodes_->simulation->NowNs() + 5'000'000'000;
  ASSERT_TRUE(hostile.Run([&] { return nodes_->simulation->NowNs() > end_ns; }));
  const TransferId transfer = Begin(0, 1);
  ASSERT_TRUE(hostile.Run([&] { return AllEnded(); }));
  EXPECT_TRUE((*nodes_)[0].ended[transfer].ok());
  EXPECT_FALSE(hostile.down());
}

TEST_F(SignedWayTest, PeerThatNeverCloses_IsGivenUpForAnother) {
  Make(3, /*max_signed_peers=*/1);
  HostilePort hostile(*nodes_, 2, 0);
  hostile.MakeQueue();
  const TransferId transfer = Begin(0, 1);
  ASSERT_TRUE(hostile.Run([&] { return AllEnded(); })) << "it has its place for ever";
  EXPECT_TRUE((*nodes_)[0].ended[transfer].ok()) << (*nodes_)[0].ended[transfer];
  EXPECT_NE(hostile.why().find(kHeld), std::string::npos) << hostile.why();
}

// A peer that is asked to close ends what it has begun first, however long that takes.
TEST_F(SignedWayTest, PeerInTheMiddleOfALongTransfer_IsWaitedFor) {
  dead_peer_ns_ = 100'000'000;
  rate_bits_per_second_ = 1'000'000;
  Make(3, /*max_signed_peers=*/1);
  const TransferId lasts = Begin(1, 0, kDif, kMostAtOnce);
  ASSERT_TRUE(nodes_->Run([&] { return counters(0).signed_queues == 1; }));
  RunFor(20'000'000);
  const TransferId waits = Begin(0, 2);
  RunFor(150'000'000);
  EXPECT_FALSE((*nodes_)[1].ended.contains(lasts)) << "nothing is shown";
  ASSERT_TRUE(nodes_->Run([&] { return AllEnded(); }));
  EXPECT_TRUE((*nodes_)[0].ended.contains(waits));
  ExpectAllGood();
}

// What has come by the queue pair comes before the goodbye, however late both are looked at.
TEST_F(SignedWayTest, GoodbyeDoesNotPassNotices) {
  Make(2, 16, /*simulated=*/false);
  Begin(0, 1);
  ASSERT_TRUE(nodes_->Run([&] { return AllEnded(); }));
  nodes_->dead = {false, true};
  for (int i = 0; i < 200; ++i) Begin(0, 1);
  ASSERT_TRUE(nodes_->Run([&] { return AllEnded(); }));
  {
    const auto as = nodes_->As(0);
    ASSERT_TRUE((*nodes_)[0].port->Disconnect(peers_[{0, 1}]).ok());
  }
  ASSERT_TRUE(nodes_->Run([&] { return !(*nodes_)[0].downs.empty(); }));
  nodes_->dead = {};
  ASSERT_TRUE(nodes_->Run([&] { return !(*nodes_)[1].downs.empty(); }));
  EXPECT_EQ((*nodes_)[1].arrivals.size(), 201u);
}

// Too late: all of it moves, and its lender hears so.
TEST_F(SignedWayTest, TransferThatIsStoppedWhenAllOfItIsUnderWayEndsAlikeAtBothEnds) {
  Make(2);
  Begin(0, 1);
  ASSERT_TRUE(nodes_->Run([&] { return AllEnded(); }));
  const TransferId cancelled = Begin(0, 1);
  nodes_->Pass();
  {
    const auto as = nodes_->As(0);
    ASSERT_TRUE((*nodes_)[0].port->Cancel(cancelled).ok());
  }
  ASSERT_TRUE(nodes_->Run([&] { return AllEnded() && (*nodes_)[1].arrivals.size() == 2; }));
  EXPECT_EQ((*nodes_)[0].ended[cancelled].code(), (*nodes_)[1].arrivals[1].status.code());
  // Likewise one that had ended, but whose end was not told yet.
  std::vector<TransferId> both = {Begin(0, 1, Protection()), Begin(0, 1, Protection())};
  (*nodes_)[0].on_transferred = [&](TransferId) {
    for (const TransferId id : both) (void)(*nodes_)[0].port->Cancel(id);
  };
  ASSERT_TRUE(nodes_->Run([&] { return AllEnded() && (*nodes_)[1].arrivals.size() == 4; }));
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ((*nodes_)[0].ended[both[i]].code(), (*nodes_)[1].arrivals[2 + i].status.code()) << i;
  }
}

}  // namespace signed_way_test
}  // namespace sluice::bulk
