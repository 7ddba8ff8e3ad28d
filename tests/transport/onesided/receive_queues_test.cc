// SPDX-License-Identifier: Apache-2.0
//
// A peer's queue is its own: what it sends costs its own buffers, and it reaches nothing once it is cut off.
#include "transport/onesided/receive_queues.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/transport/onesided/movers.h"
#include "tests/transport/onesided/raw_peer.h"

namespace sluice::onesided {
namespace receive_queues_test {

using testing::Each;
using testing::HasSubstr;
using testing::Pair;
using testing::SizeIs;

constexpr int64_t kMs = 1'000'000;
constexpr uint32_t kVictim = 1, kFriend = 2;

// Host 0 has the address of a place of host 1, and host 2 is joined to host 1.
class ReceiveQueuesTest : public testing::Test {
 protected:
  void SetUp() override {
    movers_.Join(kFriend, 0, kVictim, 0);
    to_ = movers_.Do(kVictim, [](Mover& mover) { return *mover.Open(1); });
  }
  Head Word(uint32_t sequence) const {
    return {.place = to_.place, .token = to_.token, .sequence = sequence};
  }
  void ExpectWordsOfTheFriend() {
    const size_t before = movers_[kVictim].words.size();
    for (int i = 0; i < 20; ++i) {
      ASSERT_TRUE(movers_.Run([&] { return movers_.Say(kFriend, 0, std::to_string(i)); }));
    }
    ASSERT_TRUE(movers_.Run([&] { return movers_[kVictim].words.size() == before + 20; }));
    EXPECT_THAT(movers_[kFriend].downs, SizeIs(0));
  }
  // How a WRITE of one byte to the DCT ends.
  ibv_wc_status Write() {
    RawPeer peer(movers_, 0, to_);
    peer.Write(kVictim, 1);
    EXPECT_TRUE(movers_.Run([&] { return peer.done(); }));
    return peer.statuses().at(0);
  }

  Movers movers_{3, {.max_peers = 6, .window = 4}};
  Address to_;
};

TEST_F(ReceiveQueuesTest, OffenderThatKnowsNumberAndKeyReachesNothing) {
  RawPeer peer(movers_, 0, to_);
  EXPECT_EQ(Write(), IBV_WC_SUCCESS);
  movers_[kVictim].deaf = true;
  for (uint32_t i = 0; i < 6; ++i) peer.Say(Word(i));
  ASSERT_TRUE(movers_.Run([&] { return peer.done(); }));
  movers_[kVictim].deaf = false;
  ASSERT_TRUE(movers_.Run([&] { return !movers_[kVictim].downs.empty(); }));
  EXPECT_THAT(std::string(movers_[kVictim].downs[0].second.message()),
              HasSubstr("the peer sent more than it was granted"));
  movers_.RunFor(kMs);
  EXPECT_EQ(Write(), IBV_WC_RETRY_EXC_ERR);
  ExpectWordsOfTheFriend();
}

// Nobody looks, and the friend's words find their buffers all the same.
TEST_F(ReceiveQueuesTest, FloodTakesNoBufferOfOthers) {
  RawPeer peer(movers_, 0, to_);
  movers_[kVictim].deaf = true;
  for (uint32_t i = 0; i < 200; ++i) peer.Say(Word(i));
  const int64_t until_ns = movers_.simulation->NowNs() + kMs;
  ASSERT_TRUE(movers_.Run([&] { return peer.Poll() && movers_.simulation->NowNs() >= until_ns; }));
  EXPECT_LT(peer.statuses().size(), 20u);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(movers_.Say(kFriend, 0, std::to_string(i)));
  const int64_t soon_ns = movers_.simulation->NowNs() + kMs / 10;  // less than an RNR timer
  ASSERT_TRUE(movers_.Run([&] { return movers_.simulation->NowNs() >= soon_ns; }));
  EXPECT_FALSE(movers_[kFriend].mover->busy()) << "all are acknowledged";
  movers_[kVictim].deaf = false;
  ASSERT_TRUE(movers_.Run([&] { return !movers_[kVictim].downs.empty(); }));
  EXPECT_EQ(movers_[kVictim].downs[0].first, 1u);
  ExpectWordsOfTheFriend();
}

// They are no words of anybody, and take buffers; the queue says who sent them.
TEST_F(ReceiveQueuesTest, WritesWithImmediateDataAndWordsOfNobodyEndTheirPeer) {
  for (const bool immediate : {true, false}) {
    movers_[kVictim].downs.clear();
    RawPeer peer(movers_, 0, to_);
    Head nobodys = Word(0);
    nobodys.token ^= 1;
    for (uint32_t i = 0; i < 100; ++i) {  // 64, and 8 windows
      immediate ? peer.WriteWithImmediate(kVictim, 8) : peer.Say(nobodys);
    }
    if (immediate) {
      ASSERT_TRUE(movers_.Run([&] { return !movers_[kVictim].downs.empty(); }));
    } else {
      // In the name of its neighbour it says nothing either.
      nobodys = Word(0);
      nobodys.place = 0;
      for (uint32_t i = 0; i < 100; ++i) peer.Say(nobodys);
      ASSERT_TRUE(movers_.Run([&] { return !movers_[kVictim].downs.empty(); }));
    }
    ASSERT_THAT(movers_[kVictim].downs, SizeIs(1));
    EXPECT_EQ(movers_[kVictim].downs[0].first, 1u);
    EXPECT_THAT(std::string(movers_[kVictim].downs[0].second.message()),
                HasSubstr("more than 96 messages came one after the other that were of no use"));
    movers_.RunFor(kMs);
    to_ = movers_.Do(kVictim, [](Mover& mover) { return *mover.Open(1); });
  }
  ExpectWordsOfTheFriend();
}

// What it has begun ends well: on a NIC a request to a DCT that is gone holds up its neighbours until all retries are over.
TEST_F(ReceiveQueuesTest, PeerThatIsLeftEndsWhatItHasBegun) {
  Address from = movers_.Do(0, [](Mover& mover) { return *mover.Open(0); });
  ASSERT_TRUE(
      movers_.Do(0, [&](Mover& mover) { return mover.Connect(0, to_, /*last=*/false); }).ok());
  ASSERT_TRUE(
      movers_.Do(kVictim, [&](Mover& mover) { return mover.Connect(1, from, /*last=*/true); })
          .ok());
  ASSERT_TRUE(movers_.Move(0, 0, movers_.PieceOf(0, kVictim, 0, 64)));
  ASSERT_TRUE(movers_.Run([&] { return movers_[0].pieces.size() == 1; }));
  for (uint64_t i = 0; i < 8; ++i) {
    ASSERT_TRUE(movers_.Move(0, 0, movers_.PieceOf(0, kVictim, i * 60'000, 60'000)));
  }
  movers_.Do(kVictim, [](Mover& mover) {
    mover.Close(1, absl::UnavailableError("left"), /*goodbye=*/true);
    return 0;
  });
  ASSERT_TRUE(movers_.Run([&] { return !movers_[0].downs.empty(); }));
  ASSERT_THAT(movers_[0].pieces, SizeIs(9));
  EXPECT_THAT(movers_[0].pieces, Each(Pair(testing::_, PieceEnd::kMoved)));
  // It knows the DCT still: until others have left as well.
  EXPECT_EQ(Write(), IBV_WC_SUCCESS);
  for (uint32_t i = 0; i < ReceiveQueues::kMaxRetired; ++i) {
    movers_.Do(kVictim, [](Mover& mover) {
      EXPECT_TRUE(mover.Open(2).ok());
      mover.Close(2, absl::UnavailableError("left"), /*goodbye=*/true);
      return 0;
    });
    ASSERT_TRUE(movers_.Run([&] { return movers_[kVictim].downs.size() == 2 + i; }));
  }
  movers_.RunFor(kMs);
  EXPECT_EQ(Write(), IBV_WC_RETRY_EXC_ERR);
}

TEST_F(ReceiveQueuesTest, PeerInADomainOfItsOwnReachesNothingOnceItIsDown) {
  movers_.Do(kVictim, [&](Mover& mover) {
    to_ = *mover.Open(2, *mover.MakeDomain());
    mover.Close(2, absl::UnavailableError("left"), /*goodbye=*/true);
    return 0;
  });
  ASSERT_TRUE(movers_.Run([&] { return !movers_[kVictim].downs.empty(); }));
  movers_.RunFor(kMs);
  EXPECT_EQ(Write(), IBV_WC_RETRY_EXC_ERR);
}

// A slot is free again when its DCT is gone and all that it has taken has been read.
TEST(ReceiveQueues, SlotsAreBoundedAndComeBack) {
  Movers movers(1);
  const Movers::Simulation::As as(*movers.simulation, 0);
  device::Device& device = *movers[0].device;
  poller::InlineCommands commands;
  auto queues = *ReceiveQueues::Create(device, commands, {.peers = 1, .depth = 2});
  std::vector<uint32_t> made;
  absl::Status status;
  for (uint32_t i = 0; status.ok(); ++i) {
    auto index = queues->Make(i, nullptr, 1, device.path());
    status = index.status();
    if (index.ok()) made.push_back(*index);
  }
  EXPECT_EQ(made.size(), 1 + ReceiveQueues::kMaxRetired + ReceiveQueues::kMaxEnding);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("all 9 receive queues are taken"));
  queues->Destroy(made[3]);
  const auto make = [&] { return queues->Make(7, nullptr, 1, device.path()); };
  EXPECT_FALSE(make().ok());
  EXPECT_TRUE(queues->Look().empty());
  queues->FreeEnded();
  EXPECT_FALSE(make().ok()) << "its command has not ended";
  commands.Drain();
  EXPECT_FALSE(make().ok()) << "nobody has looked";
  EXPECT_TRUE(queues->Look().empty());
  queues->FreeEnded();
  const auto again = make();
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, made[3]);
  EXPECT_EQ(queues->PlaceOf(static_cast<const void*>(nullptr)), std::nullopt);
}

}  // namespace receive_queues_test
}  // namespace sluice::onesided
