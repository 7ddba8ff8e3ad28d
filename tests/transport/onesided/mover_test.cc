// SPDX-License-Identifier: Apache-2.0
//
// Pieces and words between simulated hosts, as they should be and when something fails.
#include "transport/onesided/mover.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/transport/onesided/movers.h"
#include "transport/queue/dci_pool.h"
#include "transport/verbs/handles.h"

namespace sluice::onesided {
namespace mover_test {

using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::SizeIs;

constexpr int64_t kMs = 1'000'000;

void Fill(base::Random& random, const memory::Slab& memory) {
  for (size_t i = 0; i < kMemoryBytes; ++i) {
    memory.data()[i] = static_cast<std::byte>(random.Next64());
  }
}

bool SameBytes(const memory::Slab& one, const memory::Slab& other, size_t offset, size_t size) {
  return std::memcmp(one.data() + offset, other.data() + offset, size) == 0;
}

TEST(Mover, PiecesGoBothWays) {
  Movers movers(2);
  movers.Join(0, 3, 1, 5);
  Fill(movers.random, movers[0].memory);
  ASSERT_TRUE(movers.Move(0, 3, movers.PieceOf(0, 1, 100, 5000)));
  ASSERT_TRUE(movers.Run([&] { return !movers[0].pieces.empty(); }));
  EXPECT_THAT(movers[0].pieces, ElementsAre(Pair(100, PieceEnd::kMoved)));
  EXPECT_TRUE(SameBytes(movers[0].memory, movers[1].memory, 100, 5000));
  Fill(movers.random, movers[1].memory);
  ASSERT_TRUE(movers.Move(0, 3, movers.PieceOf(0, 1, 70'000, 1, /*read=*/true)));
  ASSERT_TRUE(movers.Run([&] { return movers[0].pieces.size() == 2; }));
  EXPECT_TRUE(SameBytes(movers[0].memory, movers[1].memory, 70'000, 1));
  EXPECT_TRUE(movers[1].words.empty()) << "the other side hears nothing of it";
}

TEST(Mover, ManyPeersShareAFewDcis) {
  constexpr uint32_t kPeers = 12;
  Movers movers(kPeers + 1, {.dci_count = 1});
  for (uint32_t i = 1; i <= kPeers; ++i) movers.Join(0, i, i, 0);
  Fill(movers.random, movers[0].memory);
  for (uint32_t round = 0; round < 20; ++round) {
    for (uint32_t i = 1; i <= kPeers; ++i) {
      ASSERT_TRUE(
          movers.Run([&] { return movers.Move(0, i, movers.PieceOf(0, i, round * 4096, 4096)); }));
    }
  }
  ASSERT_TRUE(movers.Run([&] { return movers[0].pieces.size() == 20 * kPeers; }));
  for (uint32_t i = 1; i <= kPeers; ++i) {
    EXPECT_TRUE(SameBytes(movers[0].memory, movers[i].memory, 0, 20 * 4096));
  }
}

TEST(Mover, WordsComeOnceAndInOrderBothWays) {
  Movers movers(2);
  movers.Join(0, 0, 1, 1);
  constexpr int kWords = 1'200;  // more than there are slots
  for (int i = 0; i < kWords; ++i) {
    ASSERT_TRUE(movers.Run([&] { return movers.Say(0, 0, std::to_string(i)); }));
    ASSERT_TRUE(movers.Run([&] { return movers.Say(1, 1, std::to_string(-i)); }));
  }
  ASSERT_TRUE(movers.Run(
      [&] { return movers[0].words.size() >= kWords && movers[1].words.size() >= kWords; }));
  movers.RunFor(kMs);
  ASSERT_EQ(movers[1].words.size(), size_t{kWords});
  for (int i = 0; i < kWords; ++i) {
    EXPECT_THAT(movers[1].words[i], Pair(1, std::to_string(i)));
    EXPECT_THAT(movers[0].words[i], Pair(0, std::to_string(-i)));
  }
  EXPECT_EQ(movers[0].mover->counters().words_twice, 0u);
}

// Each failure, whether its request was carried out or not, and in the middle of whatever else is under way.
TEST(Mover, WordsComeOnceAndInOrderThoughRequestsFail) {
  for (const bool carried_out : {false, true}) {
    for (uint32_t skip = 0; skip < 40; skip += 7) {
      Movers movers(2);
      movers.Join(0, 0, 1, 0);
      movers.simulation->FailNext(
          {.node = 0, .peer = 1, .skip = skip, .count = 2, .carried_out = carried_out});
      movers.simulation->FailNext(
          {.node = 1, .peer = 0, .skip = skip / 10, .count = 1, .carried_out = carried_out});
      uint32_t said = 0, moved = 0;
      ASSERT_TRUE(movers.Run([&] {
        if (said < 60 && movers.Say(0, 0, std::to_string(said))) ++said;
        if (moved < 30 && movers.Move(0, 0, movers.PieceOf(0, 1, moved * 64, 64))) ++moved;
        return movers[1].words.size() >= 60 && movers[0].pieces.size() == 30;
      })) << skip;
      movers.RunFor(10 * kMs);
      ASSERT_EQ(movers[1].words.size(), 60u) << skip;
      for (int i = 0; i < 60; ++i) EXPECT_EQ(movers[1].words[i].second, std::to_string(i));
      EXPECT_TRUE(movers[0].downs.empty() && movers[1].downs.empty());
      EXPECT_GE(movers[0].mover->counters().words_again, 1u);
    }
  }
}

TEST(Mover, FailedPieceIsItsUsersToPostAgain) {
  Movers movers(2);
  movers.Join(0, 0, 1, 0);
  Fill(movers.random, movers[0].memory);
  movers.simulation->FailNext({.node = 0, .opcode = IBV_WR_RDMA_WRITE, .skip = 1});
  for (const uint64_t at : {0, 4096, 8192}) {
    ASSERT_TRUE(movers.Run([&] { return movers.Move(0, 0, movers.PieceOf(0, 1, at, 4096)); }));
  }
  ASSERT_TRUE(movers.Run([&] { return movers[0].pieces.size() == 3; }));
  EXPECT_THAT(movers[0].pieces, Contains(Pair(4096, PieceEnd::kFailed)));
  EXPECT_FALSE(SameBytes(movers[0].memory, movers[1].memory, 4096, 4096));
  // With its stream's others, perhaps.
  const auto ended = std::exchange(movers[0].pieces, {});
  size_t again = 0;
  for (const auto& [at, end] : ended) {
    if (end == PieceEnd::kMoved) continue;
    ++again;
    const Piece piece = movers.PieceOf(0, 1, at, 4096);
    ASSERT_TRUE(movers.Run([&] { return movers.Move(0, 0, piece); }));
  }
  ASSERT_TRUE(movers.Run([&] { return movers[0].pieces.size() == again; }));
  EXPECT_THAT(movers[0].pieces, Each(Pair(testing::_, PieceEnd::kMoved)));
  EXPECT_TRUE(SameBytes(movers[0].memory, movers[1].memory, 0, 3 * 4096));
}

// Its device says no: that is no fault of the way, and whatever else is under way to it goes on.
TEST(Mover, RefusedPieceEndsAlone) {
  Movers movers(3);
  movers.Join(0, 0, 1, 0);
  movers.Join(0, 1, 2, 0);
  for (int round = 0; round < 10; ++round) {
    movers[0].pieces.clear();
    Piece wrong = movers.PieceOf(0, 1, 0, 64);
    wrong.rkey ^= 0x5500;
    wrong.cookie = 99;
    ASSERT_TRUE(movers.Run([&] { return movers.Move(0, 0, wrong); }));
    ASSERT_TRUE(movers.Run([&] { return movers.Say(0, 0, "after it"); }));
    ASSERT_TRUE(movers.Run([&] { return movers.Move(0, 1, movers.PieceOf(0, 2, 64, 64)); }));
    ASSERT_TRUE(movers.Run([&] { return movers[0].pieces.size() == 2; }));
    EXPECT_THAT(movers[0].pieces, testing::UnorderedElementsAre(Pair(99, PieceEnd::kRefused),
                                                                Pair(64, PieceEnd::kMoved)));
    ASSERT_TRUE(movers.Run([&] { return movers[1].words.size() == size_t(round) + 1; }));
  }
  EXPECT_TRUE(movers[0].downs.empty());
  EXPECT_EQ(movers[0].mover->queue_counters().dci_recoveries, 0u);
}

// It takes as many words as it has granted, and no DCI waits for its buffers.
TEST(Mover, PeerThatDoesNotLookHoldsUpNobody) {
  Movers movers(3, {.window = 8});
  movers.Join(0, 0, 1, 0);
  movers.Join(0, 1, 2, 0);
  movers[1].deaf = true;
  uint32_t said = 0;
  for (int i = 0; i < 100; ++i) {
    said += movers.Say(0, 0, std::to_string(i)) ? 1 : 0;
    ASSERT_TRUE(movers.Run([&] { return movers.Say(0, 1, std::to_string(i)); }));
  }
  ASSERT_TRUE(movers.Run([&] { return movers[2].words.size() == 100; }));
  EXPECT_EQ(said, 8u);
  EXPECT_EQ(movers.simulation->counters().not_ready, 0u);
  movers[1].deaf = false;
  ASSERT_TRUE(movers.Run([&] { return movers.Say(0, 0, "8"); }));
  ASSERT_TRUE(movers.Run([&] { return movers[1].words.size() == 9; }));
  EXPECT_EQ(movers[1].words[8].second, "8");
}

TEST(Mover, PeerThatDiesIsDownOnceAllItsPiecesHaveEnded) {
  Movers movers(3, {.dead_peer_ns = 30 * kMs});
  movers.Join(0, 0, 1, 0);
  movers.Join(0, 1, 2, 0);
  ASSERT_TRUE(movers.Move(0, 0, movers.PieceOf(0, 1, 0, 64)));
  ASSERT_TRUE(movers.Run([&] { return movers[0].pieces.size() == 1; }));
  movers.simulation->Kill(1);
  movers[1].deaf = true;
  movers[0].pieces.clear();
  size_t posted = 0;
  const int64_t start_ns = movers.simulation->NowNs();
  ASSERT_TRUE(movers.Run([&] {
    // Whoever does not know yet goes on.
    if (movers.Move(0, 0, movers.PieceOf(0, 1, 64, 64, /*read=*/true))) ++posted;
    return !movers[0].downs.empty();
  }));
  EXPECT_LT(movers.simulation->NowNs() - start_ns, 2 * 30 * kMs);
  EXPECT_GE(posted, 3u);
  EXPECT_EQ(movers[0].pieces.size(), posted) << "OnDown() comes last";
  EXPECT_THAT(movers[0].pieces, Each(Pair(64, PieceEnd::kFailed)));
  EXPECT_EQ(movers[0].downs[0].second.code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(movers.Move(0, 0, movers.PieceOf(0, 1, 0, 64)));
  // Its place is free, and the neighbour's way is as it was.
  movers.Do(0, [](Mover& mover) { return *mover.Open(0); });
  movers[0].pieces.clear();
  ASSERT_TRUE(movers.Move(0, 1, movers.PieceOf(0, 2, 0, 64)));
  ASSERT_TRUE(movers.Run([&] { return movers[0].pieces.size() == 1; }));
  EXPECT_EQ(movers[0].pieces[0].second, PieceEnd::kMoved);
}

// With memory that the device may still touch: its user has it back before the peer is gone.
TEST(Mover, ClosedPeerIsDownOnceWhatWasPostedHasEnded) {
  Movers movers(2);
  movers.Join(0, 0, 1, 0);
  ASSERT_TRUE(movers.Move(0, 0, movers.PieceOf(0, 1, 0, 64)));
  ASSERT_TRUE(movers.Run([&] { return movers[0].pieces.size() == 1; }));
  for (uint64_t i = 0; i < 5; ++i) {
    ASSERT_TRUE(movers.Move(0, 0, movers.PieceOf(0, 1, i * 60'000, 60'000, /*read=*/true)));
  }
  movers.Do(0, [](Mover& mover) {
    mover.Close(0, absl::UnavailableError("left"), /*goodbye=*/false);
    return 0;
  });
  EXPECT_FALSE(movers.Move(0, 0, movers.PieceOf(0, 1, 0, 64)));
  ASSERT_TRUE(movers.Run([&] { return !movers[0].downs.empty(); }));
  EXPECT_THAT(movers[0].pieces, SizeIs(6));
}

TEST(Mover, GoodbyeIsHeardBehindWhatWasSaid) {
  Movers movers(2);
  movers.Join(0, 0, 1, 0);
  ASSERT_TRUE(movers.Move(0, 0, movers.PieceOf(0, 1, 0, 64)));
  ASSERT_TRUE(movers.Run([&] { return movers[0].pieces.size() == 1; }));
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(movers.Say(0, 0, std::to_string(i)));
  movers.Do(0, [](Mover& mover) {
    mover.Close(0, absl::UnavailableError("left"), /*goodbye=*/true);
    return 0;
  });
  ASSERT_TRUE(movers.Run([&] { return !movers[0].downs.empty() && !movers[1].downs.empty(); }));
  EXPECT_THAT(movers[1].words, SizeIs(5));
  EXPECT_THAT(std::string(movers[1].downs[0].second.message()), HasSubstr("the peer has left"));
  EXPECT_EQ(movers[0].downs[0].second.message(), "left");
  // Again, at the same places: what is left of before is nobody's.
  movers[0].downs.clear();
  movers[1].downs.clear();
  movers[1].words.clear();
  movers.Join(0, 0, 1, 0);
  ASSERT_TRUE(movers.Say(0, 0, "again"));
  ASSERT_TRUE(movers.Run([&] { return !movers[1].words.empty(); }));
  EXPECT_THAT(movers[1].words, ElementsAre(Pair(0, "again")));
}

TEST(Mover, PlaceThatWasNeverConnectedIsClosedAtOnce) {
  Movers movers(1);
  movers.Do(0, [](Mover& mover) {
    EXPECT_TRUE(mover.Open(2).ok());
    mover.Close(2, absl::CancelledError("no answer came"), /*goodbye=*/true);
    return 0;
  });
  ASSERT_TRUE(movers.Run([&] { return !movers[0].downs.empty(); }));
  EXPECT_EQ(movers[0].downs[0].first, 2u);
}

// Words of nobody, and of somebody who does not know the token.
TEST(Mover, StrangersAreNotHeard) {
  Movers movers(3);
  movers.Join(0, 0, 1, 0);
  Address to = movers.Do(1, [](Mover& mover) { return *mover.Open(1); });
  movers.Do(2, [](Mover& mover) { return *mover.Open(0); });
  to.token ^= 1;
  ASSERT_TRUE(
      movers.Do(2, [&](Mover& mover) { return mover.Connect(0, to, /*last=*/false); }).ok());
  ASSERT_TRUE(movers.Say(2, 0, "let me in"));
  ASSERT_TRUE(movers.Run([&] { return movers[1].mover->counters().strangers == 1; }));
  for (const uint32_t place : {2u, 64u}) {  // not given out, and none that there is
    const uint32_t mine = place == 2 ? 1 : 2;
    movers.Do(2, [&](Mover& mover) { return *mover.Open(mine); });
    to.place = place;
    ASSERT_TRUE(
        movers.Do(2, [&](Mover& mover) { return mover.Connect(mine, to, /*last=*/false); }).ok());
    ASSERT_TRUE(movers.Say(2, mine, "or here"));
  }
  ASSERT_TRUE(movers.Run([&] { return movers[1].mover->counters().strangers == 3; }));
  EXPECT_TRUE(movers[1].words.empty());
  EXPECT_TRUE(movers[1].downs.empty());
}

// Whoever sends what no mover does: any head, to whom it is joined.
class BrokenPeer : queue::QueueUser {
 public:
  static constexpr uint32_t kWords = 300;

  BrokenPeer(Movers& movers, uint32_t node, const Address& to) : movers_(movers), node_(node) {
    const Movers::Simulation::As as(*movers.simulation, node);
    device::Device& device = *movers[node].device;
    memory_ = memory::Slab::Create(device.api(), device.pd(), (kWords + 8) * 256, 0).value();
    slots_.emplace(memory_.data(), kWords, 256, memory_.data() + kWords * 256, 8, 256);
    cq_ = verbs::CreateCq(device.api(), device.context(), 512, nullptr).value();
    pool_ = queue::DciPool::Create(device, cq_.get(), *slots_, memory_.lkey(), {},
                                   *movers[node].commands, *this)
                .value();
    ibv_ah_attr attr = {};
    attr.is_global = 1;
    attr.port_num = 1;
    std::memcpy(attr.grh.dgid.raw, to.gid.data(), to.gid.size());
    handle_ = {&device.api(), device.api().create_ah(device.pd(), &attr)};
    target_.ah = handle_.get();
    target_.dctn[0] = to.dctn;
    target_.key[0] = to.access_key;
    pool_->Open(&target_);
  }
  ~BrokenPeer() override {
    const Movers::Simulation::As as(*movers_.simulation, node_);
    movers_[node_].commands->Finish();
    pool_.reset();
  }
  // kWords at most.
  void Say(const Head& head) {
    const Movers::Simulation::As as(*movers_.simulation, node_);
    const uint32_t slot = slots_->Take(/*control=*/false);
    Store(head, (*slots_)[slot].data);
    (*slots_)[slot].length_bytes = kHeadBytes;
    pool_->Post(&target_, slot);
    pool_->Flush();
  }
  // True, for conditions.
  bool Poll() {
    const Movers::Simulation::As as(*movers_.simulation, node_);
    pool_->Poll();
    return true;
  }

 private:
  void OnSent(queue::Target*, uint32_t, bool) override {}
  void OnTargetReset(queue::Target*, const absl::Status&) override {}
  void OnTargetFailed(queue::Target*, const absl::Status&) override {}
  void OnUnanswered(queue::Target*) override {}
  void OnTargetQuiet(queue::Target*) override {}
  void OnQueueDead(const absl::Status&) override {}

  Movers& movers_;
  const uint32_t node_;
  memory::Slab memory_;
  std::optional<queue::SlotTable> slots_;
  verbs::Cq cq_;
  verbs::Ah handle_;
  queue::Target target_;
  std::unique_ptr<queue::DciPool> pool_;
};

TEST(Mover, PeerThatLeavesOutAWordIsGivenUp) {
  Movers movers(2);
  const Address to = movers.Do(1, [](Mover& mover) { return *mover.Open(4); });
  BrokenPeer peer(movers, 0, to);
  const auto word = [&](uint32_t sequence) {
    return Head{.place = to.place, .token = to.token, .sequence = sequence};
  };
  peer.Say(word(0));
  peer.Say(word(0));  // twice is nothing
  ASSERT_TRUE(
      movers.Run([&] { return peer.Poll() && movers[1].mover->counters().words_twice == 1; }));
  EXPECT_THAT(movers[1].words, SizeIs(1));
  peer.Say(word(2));
  ASSERT_TRUE(movers.Run([&] { return peer.Poll() && !movers[1].downs.empty(); }));
  EXPECT_THAT(movers[1].words, SizeIs(1));
  EXPECT_THAT(std::string(movers[1].downs[0].second.message()), HasSubstr("left out a word"));
}

TEST(Mover, PeerThatSaysMoreThanItWasGrantedIsEndedAndTheOthersGoOn) {
  Movers movers(3, {.max_peers = 3, .window = 4});
  movers.Join(2, 0, 1, 0);
  const Address to = movers.Do(1, [](Mover& mover) { return *mover.Open(1); });
  BrokenPeer peer(movers, 0, to);
  movers[1].deaf = true;
  for (uint32_t i = 0; i < 6; ++i) {
    peer.Say({.place = to.place, .token = to.token, .sequence = i});
  }
  const int64_t until_ns = movers.simulation->NowNs() + kMs;
  movers.Run([&] { return peer.Poll() && movers.simulation->NowNs() >= until_ns; });
  movers[1].deaf = false;
  ASSERT_TRUE(movers.Run([&] { return peer.Poll() && !movers[1].downs.empty(); }));
  EXPECT_THAT(movers[1].words, SizeIs(4));
  EXPECT_THAT(std::string(movers[1].downs[0].second.message()),
              HasSubstr("the peer sent more than it was granted"));
  EXPECT_THAT(std::string(movers[1].downs[0].second.message()),
              HasSubstr("it has said 5 words, and was granted 4"));
  EXPECT_EQ(movers[1].mover->counters().over_credit, 1u);
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(movers.Run([&] { return movers.Say(2, 0, std::to_string(i)); }));
  }
  ASSERT_TRUE(movers.Run([&] { return movers[1].words.size() == 24; }));
  EXPECT_TRUE(movers[2].downs.empty());
}

// However slowly it does: nothing of use comes between.
TEST(Mover, PeerThatFloodsWithGrantsOrCopiesIsEnded) {
  for (const WordKind kind : {WordKind::kWord, WordKind::kGrant}) {
    Movers movers(2, {.window = 4});
    const Address to = movers.Do(1, [](Mover& mover) { return *mover.Open(1); });
    const Address from = movers.Do(0, [](Mover& mover) { return *mover.Open(0); });
    ASSERT_TRUE(
        movers.Do(1, [&](Mover& mover) { return mover.Connect(1, from, /*last=*/false); }).ok());
    BrokenPeer peer(movers, 0, to);
    const auto say = [&](uint32_t sequence, uint32_t count) {
      for (uint32_t i = 0; i < count; ++i) {
        peer.Say({.kind = kind,
                  .place = to.place,
                  .token = to.token,
                  .sequence = sequence,
                  .granted = 4});
        const int64_t until_ns = movers.simulation->NowNs() + 50'000;
        movers.Run([&] { return peer.Poll() && movers.simulation->NowNs() >= until_ns; });
      }
      movers.RunFor(kMs);
    };
    const uint32_t most = 64 + (4 + from.window) * peer::ReceiveCredits::kMaxCopies;
    const uint32_t of_use = kind == WordKind::kWord ? 1 : 0;
    say(0, of_use + most);
    EXPECT_THAT(movers[1].downs, SizeIs(0));
    say(of_use, of_use);  // the next word: it may begin anew
    EXPECT_THAT(movers[1].words, SizeIs(2 * of_use));
    say(of_use, of_use * most + 1);
    ASSERT_THAT(movers[1].downs, SizeIs(1));
    EXPECT_THAT(std::string(movers[1].downs[0].second.message()),
                HasSubstr("more than " + std::to_string(most)));
  }
}

TEST(Mover, GrantsOfWhatWasNeverSaidAreNotBelieved) {
  Movers movers(2, {.window = 4});
  const Address to = movers.Do(1, [](Mover& mover) { return *mover.Open(4); });
  const Address from = movers.Do(0, [](Mover& mover) { return *mover.Open(0); });
  ASSERT_TRUE(
      movers.Do(1, [&](Mover& mover) { return mover.Connect(4, from, /*last=*/false); }).ok());
  BrokenPeer peer(movers, 0, to);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(movers.Say(1, 4, "to nobody"));
  for (const uint32_t granted : {0u, 3u, 9u, 1'000u, UINT32_MAX}) {
    peer.Say({.kind = WordKind::kGrant, .place = to.place, .token = to.token, .granted = granted});
  }
  const int64_t until_ns = movers.simulation->NowNs() + kMs;
  movers.Run([&] { return peer.Poll() && movers.simulation->NowNs() >= until_ns; });
  EXPECT_FALSE(movers.Say(1, 4, "one too many"));
  peer.Say({.kind = WordKind::kGrant, .place = to.place, .token = to.token, .granted = 6});
  ASSERT_TRUE(movers.Run([&] { return peer.Poll() && movers.Say(1, 4, "five"); }));
  EXPECT_TRUE(movers.Say(1, 4, "six"));
  EXPECT_FALSE(movers.Say(1, 4, "seven"));
}

TEST(Mover, DciThatDiesWithoutAWordIsFound) {
  Movers movers(2, {.dci_count = 1, .dead_peer_ns = 30 * kMs});
  movers.Join(0, 0, 1, 0);
  uint32_t moved = 0;
  const auto move = [&] {
    if (movers.Move(0, 0, movers.PieceOf(0, 1, moved * 64, 64))) ++moved;
  };
  ASSERT_TRUE(movers.Run([&] {
    if (moved < 5) move();
    return movers[0].pieces.size() == 5;
  }));
  ASSERT_TRUE(movers.simulation->MakeDciDeadInRts(0, 0));
  movers[0].pieces.clear();
  moved = 0;
  ASSERT_TRUE(movers.Run([&] {
    if (moved < 5) move();
    return movers[0].pieces.size() == 5;
  }));
  EXPECT_THAT(movers[0].pieces, Contains(Pair(0, PieceEnd::kFailed)));
  movers[0].pieces.clear();
  ASSERT_TRUE(movers.Run([&] {
    if (moved < 10) move();
    return movers[0].pieces.size() == 5;
  }));
  EXPECT_THAT(movers[0].pieces, Each(Pair(testing::_, PieceEnd::kMoved)));
  EXPECT_GE(movers[0].mover->queue_counters().dci_recoveries, 1u);
}

// What it has was not lost: after an error only what may have been is sent again, or it would take the buffers of others.
TEST(Mover, PeerThatDoesNotLookIsSentNothingTwiceThatItHas) {
  Movers movers(2, {.max_peers = 2, .window = 8});
  movers.Join(0, 0, 1, 0);
  for (int i = 0; i < 9; ++i) {  // so that there are grants as well
    ASSERT_TRUE(movers.Run([&] { return movers.Say(1, 0, "back"); }));
  }
  ASSERT_TRUE(movers.Run([&] { return movers[0].words.size() == 9; }));
  movers.RunFor(kMs);
  movers[1].deaf = true;
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(movers.Say(0, 0, std::to_string(i)));
  for (size_t i = 0; i < 40; ++i) {
    Piece wrong = movers.PieceOf(0, 1, 0, 64);
    wrong.rkey ^= 0x5500;
    ASSERT_TRUE(movers.Run([&] { return movers.Move(0, 0, wrong); }));
    ASSERT_TRUE(movers.Run([&] { return movers[0].pieces.size() == i + 1; })) << i;
    EXPECT_EQ(movers[0].pieces.back().second, PieceEnd::kRefused) << i;
  }
  movers.RunFor(kMs);
  EXPECT_EQ(movers.simulation->counters().not_ready, 0u);
  EXPECT_TRUE(movers[0].downs.empty());
  movers[1].deaf = false;
  for (int i = 8; i < 20; ++i) {
    ASSERT_TRUE(movers.Run([&] { return movers.Say(0, 0, std::to_string(i)); }));
  }
  ASSERT_TRUE(movers.Run([&] { return movers[1].words.size() == 20; }));
  for (size_t i = 0; i < 20; ++i) EXPECT_EQ(movers[1].words[i].second, std::to_string(i));
}

// However many words somebody takes: those that it does not look at have no more buffers here than those of others.
TEST(Mover, PeerThatTakesMoreWordsThanOthersHasNoMoreBuffers) {
  Movers movers(3, {.max_peers = 4, .window = 8});
  Address to = movers.Do(1, [](Mover& mover) { return *mover.Open(0); });
  movers.Do(0, [](Mover& mover) { return *mover.Open(0); });
  to.window = 16;
  ASSERT_TRUE(
      movers.Do(0, [&](Mover& mover) { return mover.Connect(0, to, /*last=*/false); }).ok());
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(movers.Say(0, 0, "nobody looks"));
  EXPECT_FALSE(movers.Say(0, 0, "one too many"));
  // One that would grant after more than that is refused.
  to.window = 17;
  movers.Do(0, [](Mover& mover) { return *mover.Open(1); });
  EXPECT_EQ(movers.Do(0, [&](Mover& mover) { return mover.Connect(1, to, /*last=*/false); }).code(),
            absl::StatusCode::kInvalidArgument);
}

// Who may write here may write with immediate data, which takes buffers of words and leaves in them what was there: words of
// others, say, which are not taken once more.
TEST(Mover, WritesWithImmediateDataAreNoWords) {
  constexpr int kCount = 60;  // more than there are buffers
  Movers movers(3, {.max_peers = 2, .window = 2});
  movers.Join(0, 0, 1, 0);
  for (int i = 0; i < kCount; ++i) {
    ASSERT_TRUE(movers.Run([&] { return movers.Say(1, 0, "a word of host 1"); }));
  }
  ASSERT_TRUE(movers.Run([&] { return movers[0].words.size() == kCount; }));

  const Address there = movers.Do(0, [](Mover& mover) { return *mover.Open(1); });
  MoverNode& hostile = movers[2];
  const Movers::Simulation::As as(*movers.simulation, 2);
  const verbs::VerbsApi& api = hostile.device->api();
  verbs::Cq cq = *verbs::CreateCq(api, hostile.device->context(), kCount, nullptr);
  verbs::Qp dci = *verbs::CreateDci(api, hostile.device->context(), hostile.device->pd(), cq.get(),
                                    {.send_depth = kCount});
  ASSERT_TRUE(verbs::ActivateDci(api, dci.get(), hostile.device->path()).ok());
  ibv_ah_attr attr = {};
  attr.is_global = 1;
  attr.port_num = hostile.device->path().port;
  attr.grh.sgid_index = hostile.device->path().sgid_index;
  std::memcpy(attr.grh.dgid.raw, there.gid.data(), there.gid.size());
  const verbs::Ah to(&api, api.create_ah(hostile.device->pd(), &attr));
  ibv_wr_start(dci.ex);
  for (int i = 0; i < kCount; ++i) {
    dci.ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write_imm(dci.ex, movers[0].memory.rkey(),
                          reinterpret_cast<uint64_t>(movers[0].memory.data()), 7);
    ibv_wr_set_sge(dci.ex, hostile.memory.lkey(), reinterpret_cast<uint64_t>(hostile.memory.data()),
                   kHeadBytes + 16);
    mlx5dv_wr_set_dc_addr(dci.dv, to.get(), there.dctn, there.access_key);
  }
  ASSERT_EQ(ibv_wr_complete(dci.ex), 0);
  int ended = 0;
  ASSERT_TRUE(movers.Run([&] {
    const Movers::Simulation::As here(*movers.simulation, 2);
    ibv_wc completion;
    while (ibv_poll_cq(cq.get(), 1, &completion) == 1) {
      EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
      ++ended;
    }
    return ended == kCount;
  }));
  movers.RunFor(kMs);
  EXPECT_EQ(movers[0].mover->counters().words_twice, 0u);
  EXPECT_EQ(movers[0].mover->counters().words_taken, uint64_t{kCount});
  EXPECT_TRUE(movers[0].downs.empty());
}

TEST(MoverDevice, CompletionsThatCanNotBePolledEndEverything) {
  Movers movers(2);
  movers.Join(0, 3, 1, 5);
  movers[1].device->context()->ops.poll_cq = [](ibv_cq*, int, ibv_wc*) { return -2; };
  ASSERT_TRUE(movers.Run([&] { return !movers[1].downs.empty(); }));
  EXPECT_NE(movers[1].downs.begin()->second.message().find("can't be polled"),
            absl::string_view::npos)
      << movers[1].downs.begin()->second;
}

}  // namespace mover_test
}  // namespace sluice::onesided
