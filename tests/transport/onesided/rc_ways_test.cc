// SPDX-License-Identifier: Apache-2.0
//
// Movers on devices without DC: an RC queue pair for each peer.
#include <cstring>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/transport/onesided/movers.h"
#include "transport/onesided/mover.h"

namespace sluice::onesided {
namespace rc_ways_test {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::SizeIs;

constexpr int64_t kMs = 1'000'000;

struct RcMovers : Movers {
  explicit RcMovers(uint32_t count, MoverOptions options = {})
      : Movers(count, options, {}, "softdc0/rc") {}

  void Close(uint32_t node, uint32_t place, bool goodbye) {
    Do(node, [&](Mover& mover) {
      mover.Close(place, absl::UnavailableError("left"), goodbye);
      return 0;
    });
  }
  bool IsMoved(uint32_t node, uint32_t place, const Piece& piece) {
    (*this)[node].pieces.clear();
    if (!Run([&] { return Move(node, place, piece); })) return false;
    return Run([&] { return (*this)[node].pieces.size() == 1; }) &&
           (*this)[node].pieces[0].second == PieceEnd::kMoved;
  }
  std::string WhyDown(uint32_t node) {
    const auto& downs = (*this)[node].downs;
    return downs.size() == 1 ? std::string(downs[0].second.message())
                             : std::to_string(downs.size()) + " peers are down";
  }
};

TEST(RcWays, PiecesAndWordsGoBothWays) {
  RcMovers movers(3);
  movers.Join(0, 3, 1, 5);
  movers.Join(0, 4, 2, 0);
  std::memset(movers[0].memory.data(), 7, kMemoryBytes);
  EXPECT_TRUE(movers.IsMoved(0, 3, movers.PieceOf(0, 1, 100, 5000)));
  EXPECT_EQ(std::memcmp(movers[0].memory.data() + 100, movers[1].memory.data() + 100, 5000), 0);
  EXPECT_EQ(movers[1].memory.data()[5100], std::byte{0});
  EXPECT_TRUE(movers.IsMoved(2, 0, movers.PieceOf(2, 0, 9000, 70'000, /*read=*/true)));
  EXPECT_EQ(std::memcmp(movers[2].memory.data() + 9000, movers[0].memory.data(), 70'000), 0);
  constexpr int kWords = 1'200;  // more than there are slots
  for (int i = 0; i < kWords; ++i) {
    ASSERT_TRUE(movers.Run([&] { return movers.Say(0, 3, std::to_string(i)); }));
    ASSERT_TRUE(movers.Run([&] { return movers.Say(1, 5, std::to_string(-i)); }));
  }
  ASSERT_TRUE(movers.Run(
      [&] { return movers[0].words.size() >= kWords && movers[1].words.size() >= kWords; }));
  movers.RunFor(kMs);
  ASSERT_EQ(movers[1].words.size(), size_t{kWords});
  for (int i = 0; i < kWords; ++i) {
    EXPECT_THAT(movers[1].words[i], Pair(5, std::to_string(i)));
    EXPECT_THAT(movers[0].words[i], Pair(3, std::to_string(-i)));
  }
  EXPECT_THAT(movers[2].words, IsEmpty());
}

TEST(RcWays, SideThatConnectsFirstWaitsForTheOther) {
  RcMovers movers(2, {.dead_peer_ns = 5 * kMs});
  const Address from = movers.Do(0, [](Mover& mover) { return *mover.Open(1); });
  const Address to = movers.Do(1, [](Mover& mover) { return *mover.Open(2); });
  EXPECT_TRUE(from.rc && to.rc);
  ASSERT_TRUE(movers.Do(0, [&](Mover& mover) { return mover.Connect(1, to, false); }).ok());
  movers.RunFor(100 * kMs);
  EXPECT_FALSE(movers.Do(0, [](Mover& mover) { return mover.IsReady(1); }));
  EXPECT_FALSE(movers.Move(0, 1, movers.PieceOf(0, 1, 0, 64)));
  EXPECT_FALSE(movers.Say(0, 1, "too early"));
  ASSERT_TRUE(movers.Do(1, [&](Mover& mover) { return mover.Connect(2, from, true); }).ok());
  EXPECT_TRUE(movers.IsMoved(0, 1, movers.PieceOf(0, 1, 0, 64)));
  EXPECT_TRUE(movers[0].downs.empty() && movers[1].downs.empty());
}

// The device of the lender refuses it, which ends the queue pair on both sides. Other peers are not affected, and the places can be used again.
TEST(RcWays, RefusedPieceEndsThePeerOnBothSides) {
  RcMovers movers(3);
  movers.Join(0, 0, 1, 0);
  movers.Join(0, 1, 2, 0);
  for (int round = 0; round < 10; ++round) {
    movers[0].pieces.clear();
    movers[0].downs.clear();
    movers[1].downs.clear();
    movers[1].words.clear();
    ASSERT_TRUE(movers.Run([&] { return movers.Say(0, 0, "before it"); }));
    Piece wrong = movers.PieceOf(0, 1, 0, 64);
    wrong.rkey ^= 0x5500;
    wrong.cookie = 99;
    ASSERT_TRUE(movers.Run([&] { return movers.Move(0, 0, wrong); }));
    ASSERT_TRUE(movers.Move(0, 0, movers.PieceOf(0, 1, 64, 64)));
    ASSERT_TRUE(movers.Run([&] { return !movers[0].downs.empty() && !movers[1].downs.empty(); }));
    EXPECT_THAT(movers[0].pieces, testing::UnorderedElementsAre(Pair(99, PieceEnd::kRefused),
                                                                Pair(64, PieceEnd::kFailed)));
    EXPECT_THAT(movers[1].words, ElementsAre(Pair(0, "before it")));
    EXPECT_THAT(movers.WhyDown(1), HasSubstr("a request of the peer was refused"));
    movers.Join(round % 2 == 0 ? 1 : 0, 0, round % 2 == 0 ? 0 : 1, 0);
    ASSERT_TRUE(movers.IsMoved(0, 1, movers.PieceOf(0, 2, 64, 64)));
  }
  movers[0].downs.clear();
  EXPECT_TRUE(movers.IsMoved(0, 0, movers.PieceOf(0, 1, 0, 64)));
  EXPECT_THAT(movers[2].downs, IsEmpty());
}

TEST(RcWays, GoodbyeIsHeardBehindWhatWasSaid) {
  RcMovers movers(2);
  for (int round = 0; round < 12; ++round) {  // more than there are retired queues
    movers[0].downs.clear();
    movers[1].downs.clear();
    movers[1].words.clear();
    movers.Join(0, 0, 1, 0);
    for (int i = 0; i < 5; ++i) {
      ASSERT_TRUE(movers.Run([&] { return movers.Say(0, 0, std::to_string(i)); }));
    }
    movers.Close(0, 0, /*goodbye=*/true);
    ASSERT_TRUE(movers.Run([&] { return !movers[0].downs.empty() && !movers[1].downs.empty(); }));
    EXPECT_THAT(movers[1].words, SizeIs(5));
    EXPECT_THAT(movers.WhyDown(1), HasSubstr("the peer has left"));
    EXPECT_EQ(movers.WhyDown(0), "left");
  }
}

// A side that was closed before the other has connected can send no goodbye.
TEST(RcWays, PeerThatHasLeftBeforeDoesNotAnswer) {
  RcMovers movers(2, {.dead_peer_ns = 30 * kMs});
  const Address from = movers.Do(0, [](Mover& mover) { return *mover.Open(1); });
  const Address to = movers.Do(1, [](Mover& mover) { return *mover.Open(2); });
  ASSERT_TRUE(movers.Do(0, [&](Mover& mover) { return mover.Connect(1, to, false); }).ok());
  movers.Close(0, 1, /*goodbye=*/true);
  ASSERT_TRUE(movers.Run([&] { return !movers[0].downs.empty(); }));
  ASSERT_TRUE(movers.Do(1, [&](Mover& mover) { return mover.Connect(2, from, true); }).ok());
  ASSERT_TRUE(movers.Run([&] { return !movers[1].downs.empty(); }));
  EXPECT_THAT(movers.WhyDown(1), HasSubstr("the peer does not answer"));
}

TEST(RcWays, PlaceThatWasNeverConnectedIsClosedAtOnce) {
  RcMovers movers(1);
  for (int round = 0; round < 12; ++round) {
    movers[0].downs.clear();
    movers.Do(0, [](Mover& mover) { return *mover.Open(2); });
    movers.Close(0, 2, /*goodbye=*/true);
    ASSERT_TRUE(movers.Run([&] { return !movers[0].downs.empty(); }));
    EXPECT_EQ(movers[0].downs[0].first, 2u);
  }
}

TEST(RcWays, ClosedPeerIsDownOnceWhatWasPostedHasEnded) {
  RcMovers movers(2);
  movers.Join(0, 0, 1, 0);
  ASSERT_TRUE(movers.IsMoved(0, 0, movers.PieceOf(0, 1, 0, 64)));
  movers[0].pieces.clear();
  for (uint64_t i = 0; i < 5; ++i) {
    ASSERT_TRUE(movers.Move(0, 0, movers.PieceOf(0, 1, i * 60'000, 60'000, /*read=*/true)));
  }
  movers.Close(0, 0, /*goodbye=*/false);
  EXPECT_FALSE(movers.Move(0, 0, movers.PieceOf(0, 1, 0, 64)));
  ASSERT_TRUE(movers.Run([&] { return !movers[0].downs.empty(); }));
  EXPECT_THAT(movers[0].pieces, SizeIs(5));
}

TEST(RcWays, PeerThatIsCutOffCanMoveNothingMore) {
  RcMovers movers(3, {.dead_peer_ns = 30 * kMs});
  movers.Join(0, 0, 1, 0);
  movers.Join(2, 0, 1, 1);
  ASSERT_TRUE(movers.IsMoved(0, 0, movers.PieceOf(0, 1, 0, 64)));
  movers[0].pieces.clear();
  movers.Do(1, [](Mover& mover) {
    mover.Close(0, absl::UnavailableError("it broke the protocol"), /*goodbye=*/true);
    mover.CutOff(0);
    return 0;
  });
  ASSERT_TRUE(movers.Run([&] { return !movers[1].downs.empty(); }));
  ASSERT_TRUE(movers.Run([&] {
    movers.Move(0, 0, movers.PieceOf(0, 1, 64, 64));
    return !movers[0].downs.empty();
  }));
  EXPECT_THAT(movers[0].pieces, testing::Not(IsEmpty()));
  EXPECT_THAT(movers[0].pieces, Each(Pair(64, PieceEnd::kFailed)));
  EXPECT_TRUE(movers.IsMoved(2, 0, movers.PieceOf(2, 1, 0, 64)));
}

TEST(RcWays, PeerThatDiesIsDownOnceAllItsPiecesHaveEnded) {
  RcMovers movers(3, {.dead_peer_ns = 30 * kMs});
  movers.Join(0, 0, 1, 0);
  movers.Join(0, 1, 2, 0);
  ASSERT_TRUE(movers.IsMoved(0, 0, movers.PieceOf(0, 1, 0, 64)));
  movers.simulation->Kill(1);
  movers[1].deaf = true;
  movers[0].pieces.clear();
  size_t posted = 0;
  ASSERT_TRUE(movers.Run([&] {
    if (movers.Move(0, 0, movers.PieceOf(0, 1, 64, 64, /*read=*/true))) ++posted;
    return !movers[0].downs.empty();
  }));
  EXPECT_GE(posted, 3u);
  EXPECT_EQ(movers[0].pieces.size(), posted) << "OnDown() comes last";
  EXPECT_THAT(movers[0].pieces, Each(Pair(64, PieceEnd::kFailed)));
  EXPECT_THAT(movers.WhyDown(0), HasSubstr("the peer does not answer"));
  EXPECT_TRUE(movers.IsMoved(0, 1, movers.PieceOf(0, 2, 0, 64)));
}

TEST(RcWays, UnlikeTransportsAreRefusedByName) {
  RcMovers rc(1);
  Movers dc(1);
  const Address with_rc = rc.Do(0, [](Mover& mover) { return *mover.Open(0); });
  const Address with_dc = dc.Do(0, [](Mover& mover) { return *mover.Open(0); });
  const absl::Status at_rc =
      rc.Do(0, [&](Mover& mover) { return mover.Connect(0, with_dc, true); });
  const absl::Status at_dc =
      dc.Do(0, [&](Mover& mover) { return mover.Connect(0, with_rc, true); });
  EXPECT_EQ(at_rc.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(at_dc.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(at_rc.message()), HasSubstr("this side has RC queue pairs, the peer DC"));
  EXPECT_THAT(std::string(at_dc.message()), HasSubstr("this side has DC, the peer RC queue pairs"));
}

TEST(RcWays, DomainOfItsOwnIsRefused) {
  RcMovers movers(1);
  EXPECT_EQ(movers.Do(0, [](Mover& mover) { return mover.MakeDomain().status().code(); }),
            absl::StatusCode::kUnimplemented);
}

TEST(RcWays, FailureOfTheDeviceEndsAllPeers) {
  RcMovers movers(3);
  movers.Join(0, 0, 1, 0);
  movers.Join(0, 1, 2, 0);
  movers.Do(0, [](Mover& mover) { return *mover.Open(2); });
  ASSERT_TRUE(movers.Run([&] { return movers.Move(0, 0, movers.PieceOf(0, 1, 0, 64)); }));
  movers.simulation->DeviceFatal(0);
  ASSERT_TRUE(movers.Run([&] { return movers[0].downs.size() == 3; }));
  EXPECT_FALSE(movers[0].mover->health().ok());
  EXPECT_THAT(movers[0].pieces, SizeIs(1));
}

TEST(RcWays, PeersEndWhenTheAddressOfThisHostChanges) {
  RcMovers movers(2, {.dead_peer_ns = 30 * kMs});
  movers.Join(0, 0, 1, 0);
  ASSERT_TRUE(movers.IsMoved(0, 0, movers.PieceOf(0, 1, 0, 64)));
  ibv_gid gid = Movers::Simulation::Gid(0);
  gid.raw[15] ^= 0x40;
  movers.simulation->SetGid(0, 0, gid);
  ASSERT_TRUE(movers.Run([&] { return !movers[0].downs.empty(); }));
  EXPECT_THAT(movers.WhyDown(0), HasSubstr("the address of this host changed"));
  movers[0].downs.clear();
  movers.Close(1, 0, /*goodbye=*/false);
  ASSERT_TRUE(movers.Run([&] { return !movers[1].downs.empty(); }));
  movers.Join(0, 0, 1, 0);
  EXPECT_TRUE(movers.IsMoved(0, 0, movers.PieceOf(0, 1, 0, 64)));
}

}  // namespace rc_ways_test
}  // namespace sluice::onesided
