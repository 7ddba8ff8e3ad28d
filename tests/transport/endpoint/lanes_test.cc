// SPDX-License-Identifier: Apache-2.0
//
// Lanes between endpoints on simulated hosts: who gets one, that no message is lost, doubled, torn or passed by another on the
// way into it, through it and out of it, and what a peer that writes nonsense can do.
#include <algorithm>
#include <utility>

#include "gtest/gtest.h"
#include "tests/transport/endpoint/lane_world.h"
#include "transport/lane/layout.h"

namespace sluice::endpoint {
namespace lanes_test {

using softdc::InOrder;
using softdc::sim::Simulation;

softdc::sim::Options Promise(InOrder order) {
  softdc::sim::Options options;
  options.dials.features.in_order = order;
  return options;
}

class LanesTest : public testing::Test {
 protected:
  void Make(softdc::sim::Options sim_options = {}, Options options = LaneOptions(),
            const verbs::VerbsApi& table = Simulation::Verbs()) {
    world_.emplace(sim_options, options, table);
    peer_ = world_->Connect(1);
  }
  bool MakeLane() {
    return world_->Send(1, peer_, 20, 64) &&
           world_->RunUntil([&] { return receiver().Counts().lanes_watched == 1; }) &&
           world_->Send(1, peer_, 1, 64) &&
           world_->RunUntil([&] { return sender().Counts().lane_sent > 0 || !Send(64); });
  }
  bool Send(uint32_t size_bytes) { return world_->Send(1, peer_, 1, size_bytes); }
  LaneHost& receiver() { return *world_->hosts[0]; }
  LaneHost& sender() { return *world_->hosts[1]; }

  std::optional<LaneWorld> world_;
  PeerId peer_;
};

TEST_F(LanesTest, BusyPeerGetsOneAndItsMessagesGoThroughIt) {
  Make();
  ASSERT_TRUE(MakeLane());
  const Counters before = receiver().Counts();
  ASSERT_TRUE(world_->Send(1, peer_, 1000, 100));
  const Counters after = receiver().Counts();
  EXPECT_GT(after.lane_received - before.lane_received, 900u);
  EXPECT_EQ(after.lane_announced, 0u);
  EXPECT_EQ(after.lanes, 1u);
  EXPECT_EQ(sender().Counts().lane_sent, after.lane_received);
  world_->ExpectClean();
}

TEST_F(LanesTest, BlocksInOrderAreEnough) {
  Make(Promise(InOrder::kBlocks128));
  ASSERT_TRUE(MakeLane());
  for (uint32_t bytes = 8; bytes <= 230; bytes += 7) {
    ASSERT_TRUE(world_->Send(1, peer_, 10, bytes)) << bytes;
  }
  EXPECT_GT(receiver().Counts().lane_received, 250u);
  EXPECT_EQ(receiver().Counts().lane_announced, 0u);
  world_->ExpectClean();
}

TEST_F(LanesTest, WithoutOrderThereIsNoneUnlessItIsAskedFor) {
  Make(Promise(InOrder::kNone));
  ASSERT_TRUE(world_->Send(1, peer_, 500, 64));
  EXPECT_EQ(receiver().Counts().lanes_granted, 0u);
  Options options = LaneOptions();
  options.lanes_without_order = true;
  Make(Promise(InOrder::kNone), options);
  ASSERT_TRUE(world_->Send(1, peer_, 500, 64));
  EXPECT_GT(receiver().Counts().lane_received, 300u);
  EXPECT_EQ(receiver().Counts().lane_received, receiver().Counts().lane_announced);
  EXPECT_EQ(receiver().Counts().lanes_watched, 0u);
  world_->ExpectClean();
}

TEST_F(LanesTest, NoMemoryNoLane) {
  Options options = LaneOptions();
  options.lane_memory_bytes = 0;
  Make({}, options);
  ASSERT_TRUE(world_->Send(1, peer_, 500, 64));
  EXPECT_EQ(receiver().Counts().lanes_granted, 0u);
}

TEST_F(LanesTest, LongMessagesAreSentAndPassNobody) {
  for (const InOrder order : {InOrder::kWholeMessage, InOrder::kBlocks128}) {
    Make(Promise(order));
    ASSERT_TRUE(MakeLane());
    const uint64_t target = receiver().program.received + 2000;
    uint32_t left = 2000;
    ASSERT_TRUE(world_->RunUntil([&] {
      while (left != 0 && sender().Send(peer_, left % 3 == 0 ? 1000 : 50)) --left;
      return receiver().program.received == target;
    }));
    EXPECT_GT(receiver().Counts().lane_received, 500u);
    world_->ExpectClean();
  }
}

// Credits of many laps: numbers of messages, of 16 bits, come round.
TEST_F(LanesTest, NumbersComeRound) {
  Make();
  ASSERT_TRUE(MakeLane());
  ASSERT_TRUE(world_->Send(1, peer_, 70'000, 32));
  EXPECT_GT(receiver().Counts().lane_received, 65'536u);
  world_->ExpectClean();
}

TEST_F(LanesTest, SleeperNapsUntilTheSenderAnnouncesAndIsWokenByEachMessageThen) {
  Make();
  ASSERT_TRUE(MakeLane());
  const auto sleep = [&] { return receiver().Sleep(); };
  ASSERT_TRUE(sleep());
  EXPECT_EQ(receiver().sleep_limit_ns, 50'000) << "the sender has not answered";
  ASSERT_TRUE(world_->RunUntil([&] { return receiver().Counts().lanes_watched == 0; }));
  ASSERT_TRUE(sleep());
  EXPECT_GT(receiver().sleep_limit_ns, 1'000'000) << "timers only";
  const uint64_t announced = receiver().Counts().lane_announced;
  ASSERT_TRUE(sender().Send(peer_, 64));
  ASSERT_TRUE(world_->RunUntil([&] { return receiver().Counts().lane_announced == announced + 1; },
                               1'000'000));
  // Busy again: nobody announces.
  ASSERT_TRUE(world_->Send(1, peer_, 30, 64));
  ASSERT_TRUE(world_->RunUntil([&] { return receiver().Counts().lanes_watched == 1; }));
  EXPECT_GT(receiver().Counts().lane_wakes, 0u);
  EXPECT_EQ(receiver().Counts().lanes_granted, 1u) << "the same lane all the time";
  world_->ExpectClean();
}

TEST_F(LanesTest, WhatWasWrittenBeforeTheAnswerEndsANap) {
  Make();
  ASSERT_TRUE(MakeLane());
  for (int round = 0; round < 50; ++round) {
    ASSERT_TRUE(receiver().Sleep());
    ASSERT_TRUE(sender().Send(peer_, 64));  // before it has heard
    const uint64_t target = receiver().program.received + 1;
    ASSERT_TRUE(world_->RunUntil([&] { return receiver().program.received == target; }, 200'000))
        << round;
    ASSERT_TRUE(world_->Send(1, peer_, 30, 64));
    ASSERT_TRUE(world_->RunUntil([&] { return receiver().Counts().lanes_watched == 1; }));
  }
  world_->ExpectClean();
}

TEST_F(LanesTest, IdleLaneIsNotWatchedForEver) {
  Make();
  ASSERT_TRUE(MakeLane());
  for (int pass = 0; pass < 70'000 && receiver().Counts().lane_hushes == 0; ++pass) {
    receiver().Look();
  }
  ASSERT_TRUE(world_->RunUntil([&] { return receiver().Counts().lanes_watched == 0; }));
  EXPECT_EQ(receiver().Counts().lanes, 1u);
}

// Reported as failed, carried out when the message has long been taken, sent again, and the place given to others.
TEST_F(LanesTest, FailedWriteThatLandsLateIsNobodysMessage) {
  for (const InOrder order : {InOrder::kWholeMessage, InOrder::kBlocks128}) {
    for (const int64_t late_ns : {1'000, 20'000, 60'000, 200'000, 5'000'000}) {
      Make(Promise(order));
      ASSERT_TRUE(MakeLane());
      world_->simulation->FailNext(
          {.node = 1, .opcode = IBV_WR_RDMA_WRITE, .skip = 3, .lands_late_ns = late_ns});
      ASSERT_TRUE(world_->Send(1, peer_, 5000, 64)) << late_ns;
      const Counters counts = receiver().Counts();
      EXPECT_EQ(counts.lanes_lost, 1u);
      EXPECT_EQ(counts.lanes_granted, 2u) << "a new one, elsewhere";
      EXPECT_EQ(counts.lanes, 1u);
      EXPECT_GT(sender().Counts().reposts, 0u);
      world_->ExpectClean();
    }
  }
}

TEST_F(LanesTest, GoodbyeWaitsForWhatWasWrittenBefore) {
  for (const InOrder order : {InOrder::kWholeMessage, InOrder::kBlocks128}) {
    Make(Promise(order));
    ASSERT_TRUE(MakeLane());
    const uint64_t target = receiver().program.received + 10;
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(sender().Send(peer_, 200));
    sender().Disconnect(peer_);
    ASSERT_TRUE(world_->RunUntil([&] { return receiver().program.downs == 1; }));
    EXPECT_EQ(receiver().program.received, target);
    ASSERT_TRUE(world_->RunUntil([&] { return receiver().Counts().lane_bytes == 0; }));
    EXPECT_EQ(receiver().Counts().lanes, 0u);
  }
}

// ---- Memory

TEST_F(LanesTest, MemoryIsBoundedAndGoesToTheBusiest) {
  softdc::sim::Options sim_options;
  sim_options.nodes = 7;
  Options options = LaneOptions();
  options.lane_memory_bytes = 4 * 8192;  // a lane of 18 slots takes two pages
  LaneWorld world(sim_options, options);
  std::vector<PeerId> peers(7);
  for (uint32_t from = 1; from < 7; ++from) peers[from] = world.Connect(from);
  LaneHost& receiver = *world.hosts[0];
  for (uint32_t from = 1; from < 7; ++from) {
    for (int round = 0; round < 200 && world.hosts[from]->Counts().lane_sent == 0; ++round) {
      ASSERT_TRUE(world.Send(from, peers[from], 50, 64));
      ASSERT_LE(receiver.Counts().lane_bytes, options.lane_memory_bytes);
    }
    ASSERT_GT(world.hosts[from]->Counts().lane_sent, 0u) << from;
  }
  const Counters counts = receiver.Counts();
  EXPECT_EQ(counts.lanes, 4u);
  EXPECT_EQ(counts.lanes_closed, 2u) << "for those who came later";
  EXPECT_EQ(counts.lanes_lost, 0u);
  world.ExpectClean();
}

// ---- A peer that answers nothing. Nobody is asked for a sign of life here.

Options NobodyIsProbed() {
  Options options = LaneOptions();
  options.keepalive_ns = 0;
  return options;
}

TEST_F(LanesTest, PeerThatNeverLeavesItsLaneIsEndedAndOthersGetTheMemory) {
  softdc::sim::Options sim_options;
  sim_options.nodes = 3;
  Options options = NobodyIsProbed();
  options.lane_memory_bytes = 8192;  // of one lane
  LaneWorld world(sim_options, options);
  LaneHost& receiver = *world.hosts[0];
  const PeerId mute = world.Connect(1), busy = world.Connect(2);
  while (world.hosts[1]->Counts().lane_sent == 0) ASSERT_TRUE(world.Send(1, mute, 50, 64));
  world.hosts[1]->hung = true;
  const int64_t asked_ns = world.simulation->NowNs();
  for (int round = 0; round < 10; ++round) ASSERT_TRUE(world.Send(2, busy, 50, 64));
  ASSERT_EQ(receiver.Counts().lanes_granted, 1u);
  while (receiver.program.downs == 0) {
    ASSERT_LT(world.simulation->NowNs() - asked_ns, 60'000'000'000);
    world.simulation->RunFor(1'000'000'000);
    receiver.Look(/*thorough=*/true);
    world.hosts[2]->Look(/*thorough=*/true);
  }
  EXPECT_GE(world.simulation->NowNs() - asked_ns, 30'000'000'000);
  const absl::Status& why = receiver.program.Of(receiver.program.ups[0]).down;
  EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(why.message().find("the peer does not stop using its lane"), absl::string_view::npos)
      << why;
  for (int round = 0; round < 200 && world.hosts[2]->Counts().lane_sent == 0; ++round) {
    ASSERT_TRUE(world.Send(2, busy, 50, 64));
  }
  EXPECT_GT(world.hosts[2]->Counts().lane_sent, 0u)
      << receiver.Counts().lane_bytes << " bytes of lanes are left, "
      << receiver.Counts().lanes_granted << " were granted, " << receiver.program.downs << " down";
}

TEST_F(LanesTest, PeerThatNeverAnnouncesIsEndedSoThatThisSideMaySleep) {
  Make({}, NobodyIsProbed());
  ASSERT_TRUE(MakeLane());
  sender().hung = true;
  const int64_t asked_ns = world_->simulation->NowNs();
  ASSERT_TRUE(receiver().Sleep());
  EXPECT_EQ(receiver().sleep_limit_ns, 50'000);
  while (receiver().program.downs == 0) {
    ASSERT_LT(world_->simulation->NowNs() - asked_ns, 60'000'000'000);
    world_->simulation->RunFor(1'000'000'000);
    receiver().Look(/*thorough=*/true);
  }
  EXPECT_GE(world_->simulation->NowNs() - asked_ns, 30'000'000'000);
  const absl::Status& why = receiver().program.Of(receiver().program.ups[0]).down;
  EXPECT_NE(why.message().find("the peer does not announce what it writes into its lane"),
            absl::string_view::npos)
      << why;
  for (int i = 0; i < 4; ++i) receiver().Look(/*thorough=*/true);
  ASSERT_TRUE(receiver().Sleep());
  EXPECT_TRUE(receiver().sleep_limit_ns < 0 || receiver().sleep_limit_ns > 1'000'000)
      << receiver().sleep_limit_ns;
}

TEST_F(LanesTest, PeerThatIsAskedShortlyBeforeALookHasThreeWholeRoundsToAnswer) {
  Make({}, NobodyIsProbed());
  ASSERT_TRUE(MakeLane());
  ASSERT_TRUE(receiver().Sleep());
  ASSERT_TRUE(world_->RunUntil([&] { return receiver().Counts().lanes_watched == 0; }));
  world_->simulation->RunFor(9'000'000'000);
  ASSERT_TRUE(world_->Send(1, peer_, 30, 64));
  ASSERT_TRUE(world_->RunUntil([&] { return receiver().Counts().lanes_watched == 1; }));
  sender().hung = true;
  const int64_t asked_ns = world_->simulation->NowNs();
  ASSERT_TRUE(receiver().Sleep());
  while (receiver().program.downs == 0) {
    ASSERT_LT(world_->simulation->NowNs() - asked_ns, 60'000'000'000);
    world_->simulation->RunFor(1'000'000'000);
    receiver().Look(/*thorough=*/true);
  }
  EXPECT_GE(world_->simulation->NowNs() - asked_ns, 30'000'000'000);
}

// ---- A peer that is broken, or worse. Simulated processes share this one's memory.

struct Region {
  std::byte* data = nullptr;
  size_t size_bytes = 0;
};
Region g_lane;
bool g_refuse = false;

const verbs::VerbsApi& SpyingTable() {
  static const verbs::VerbsApi table = [] {
    verbs::VerbsApi api = Simulation::Verbs();
    // ibv_reg_mr is a macro over this one where the compiler can't tell the access.
    api.reg_mr = [](ibv_pd* pd, void* data, size_t size_bytes, int access) -> ibv_mr* {
      if ((access & IBV_ACCESS_REMOTE_WRITE) != 0) {
        if (g_refuse) {
          errno = ENOMEM;
          return nullptr;
        }
        g_lane = {static_cast<std::byte*>(data), size_bytes};
      }
      return Simulation::Verbs().reg_mr(pd, data, size_bytes, access);
    };
    return api;
  }();
  return table;
}

TEST_F(LanesTest, MemoryThatCannotBeRegisteredMeansNoLane) {
  g_refuse = true;
  Make({}, LaneOptions(), SpyingTable());
  EXPECT_TRUE(world_->Send(1, peer_, 500, 64));
  EXPECT_TRUE(world_->RunUntil([&] { return receiver().Counts().lane_bytes == 0; }));
  g_refuse = false;
  EXPECT_GT(receiver().Counts().lanes_refused, 0u);
  EXPECT_EQ(receiver().Counts().lanes_granted, 0u);
  world_->ExpectClean();
}

// One that was sent after it is there before.
TEST_F(LanesTest, MessageThatWasSentWaitsForTheOneThatWasWrittenBefore) {
  g_lane = {};
  Make({}, LaneOptions(), SpyingTable());
  ASSERT_TRUE(MakeLane());
  ASSERT_NE(g_lane.data, nullptr);
  const uint64_t before = receiver().program.received;
  ASSERT_TRUE(sender().Send(peer_, 64));
  ASSERT_TRUE(sender().Send(peer_, 1000));
  ASSERT_TRUE(sender().Send(peer_, 64));
  for (int i = 0; i < 200; ++i) world_->simulation->Step();
  auto* const words = reinterpret_cast<uint64_t*>(g_lane.data);
  uint64_t* first = nullptr;
  for (size_t at = 31; at < g_lane.size_bytes / 8; at += 32) {
    if (words[at] == 0) continue;
    if (first == nullptr || lane::StampValue(words[at]) + 1 == lane::StampValue(*first)) {
      first = &words[at];
    }
  }
  ASSERT_NE(first, nullptr);
  const uint64_t stamp = std::exchange(*first, 0);
  for (int i = 0; i < 50; ++i) receiver().Look();
  EXPECT_EQ(receiver().program.received, before);
  EXPECT_EQ(receiver().Counts().lane_held, 1u);
  *first = stamp;
  receiver().Look();
  EXPECT_EQ(receiver().program.received, before + 3);
  world_->ExpectClean();
}

// The stamp of the message that was written last and not taken yet: without it, it has not come.
uint64_t* LastStamp() {
  auto* const words = reinterpret_cast<uint64_t*>(g_lane.data);
  uint64_t* last = nullptr;
  for (size_t at = 31; at < g_lane.size_bytes / 8; at += 32) {
    if (words[at] == 0) continue;
    const auto newer = [&] {
      return static_cast<int32_t>(lane::StampValue(words[at]) - lane::StampValue(*last)) > 0;
    };
    if (last == nullptr || newer()) last = &words[at];
  }
  return last;
}

// A message that cannot be taken stays in the lane, and its peer may be gone.
TEST_F(LanesTest, MessageOutOfTurnIsNoSignOfLife) {
  g_lane = {};
  Options options = LaneOptions();
  options.keepalive_ns = 3'000'000'000;
  Make({}, options, SpyingTable());
  ASSERT_TRUE(MakeLane());
  const uint64_t before = receiver().program.received;
  ASSERT_TRUE(sender().Send(peer_, 64));
  for (int i = 0; i < 200; ++i) world_->simulation->Step();
  uint64_t* const stamp = LastStamp();
  ASSERT_NE(stamp, nullptr);
  std::byte* const message = reinterpret_cast<std::byte*>(stamp) - (peer::kPrefixBytes + 64);
  peer::Prefix prefix;
  ASSERT_TRUE(peer::LoadPrefix(message, peer::kPrefixBytes, &prefix));
  prefix.number = static_cast<uint16_t>(prefix.number + 5);
  peer::StorePrefix(message, prefix);
  sender().hung = true;
  const int64_t since_ns = world_->simulation->NowNs();
  while (receiver().program.downs == 0) {
    ASSERT_LT(world_->simulation->NowNs() - since_ns, 10'000'000'000);
    world_->simulation->RunFor(1'000'000);
    receiver().Look();
  }
  EXPECT_EQ(receiver().program.received, before);
  EXPECT_EQ(receiver().Counts().silent_peers, 1u);
}

// Both sides work at the same time only if answers leave before more is looked at.
TEST_F(LanesTest, WhatComesWhileAMessageIsHandledWaitsForTheNextPass) {
  g_lane = {};
  Make({}, LaneOptions(), SpyingTable());
  ASSERT_TRUE(MakeLane());
  const uint64_t before = receiver().program.received;
  ASSERT_TRUE(sender().Send(peer_, 64));
  ASSERT_TRUE(sender().Send(peer_, 64));
  ASSERT_TRUE(sender().Send(peer_, 64));
  for (int i = 0; i < 200; ++i) world_->simulation->Step();
  uint64_t* const stamp = LastStamp();
  ASSERT_NE(stamp, nullptr);
  const uint64_t kept = std::exchange(*stamp, 0);
  receiver().program.on_message = [&](PeerId) { *stamp = kept; };
  receiver().Look();
  EXPECT_EQ(receiver().program.received, before + 2);
  receiver().program.on_message = nullptr;
  receiver().Look();
  EXPECT_EQ(receiver().program.received, before + 3);
  world_->ExpectClean();
}

TEST_F(LanesTest, AnswerThatPassesWhatWasWrittenBeforeIsNoLeaveToSleep) {
  g_lane = {};
  Make({}, LaneOptions(), SpyingTable());
  ASSERT_TRUE(MakeLane());
  const uint64_t before = receiver().program.received;
  ASSERT_TRUE(sender().Send(peer_, 64));
  for (int i = 0; i < 100; ++i) world_->simulation->Step();
  uint64_t* const stamp = LastStamp();
  ASSERT_NE(stamp, nullptr);
  const uint64_t kept = std::exchange(*stamp, 0);
  ASSERT_TRUE(receiver().Sleep());
  // The answer has come long since.
  EXPECT_FALSE(world_->RunUntil([&] { return receiver().Counts().lanes_watched == 0; }, 300'000));
  ASSERT_TRUE(receiver().Sleep());
  EXPECT_EQ(receiver().sleep_limit_ns, 50'000);
  *stamp = kept;
  receiver().WakeUp();
  EXPECT_TRUE(world_->RunUntil([&] { return receiver().Counts().lanes_watched == 0; }, 300'000));
  EXPECT_EQ(receiver().program.received, before + 1);
}

TEST_F(LanesTest, GoodbyeThatPassesWhatWasWrittenBeforeWaitsForIt) {
  g_lane = {};
  Make({}, LaneOptions(), SpyingTable());
  ASSERT_TRUE(MakeLane());
  const uint64_t before = receiver().program.received;
  ASSERT_TRUE(sender().Send(peer_, 64));
  sender().Disconnect(peer_);
  sender().Look();
  for (int i = 0; i < 30; ++i) world_->simulation->Step();
  uint64_t* const stamp = LastStamp();
  ASSERT_NE(stamp, nullptr);
  const uint64_t kept = std::exchange(*stamp, 0);
  for (int i = 0; i < 40; ++i) receiver().Look();
  EXPECT_EQ(receiver().program.downs, 0u);
  *stamp = kept;
  for (int i = 0; i < 40; ++i) receiver().Look();
  EXPECT_EQ(receiver().program.received, before + 1);
  EXPECT_EQ(receiver().program.downs, 1u);
}

// Random words, some of them stamps that are right, all over one peer's lane.
TEST_F(LanesTest, NonsenseInALaneHarmsItsOwnPeerOnly) {
  base::SeededRandom random(5);
  int failed = 0;
  for (int round = 0; round < 60; ++round) {
    softdc::sim::Options sim_options;
    sim_options.nodes = 3;
    sim_options.seed = static_cast<uint64_t>(round) + 1;
    LaneWorld world(sim_options, LaneOptions(), SpyingTable());
    const PeerId good = world.Connect(2);
    ASSERT_TRUE(world.Send(2, good, 30, 64));
    const PeerId bad = world.Connect(1);
    g_lane = {};
    ASSERT_TRUE(world.Send(1, bad, 30, 64));
    ASSERT_TRUE(world.RunUntil([&] { return g_lane.data != nullptr; }));
    ASSERT_TRUE(world.Send(1, bad, 30, 64));
    auto* const words = reinterpret_cast<uint64_t*>(g_lane.data);
    const size_t count = g_lane.size_bytes / 8;
    const Region lane = g_lane;
    LaneHost& victim = *world.hosts[0];
    const PeerId bad_there = victim.program.ups[1];
    // A peer knows what is expected where: so do we, from a message that is there.
    ASSERT_TRUE(world.hosts[1]->Send(bad, 64));
    size_t place = count;
    for (int i = 0; i < 200 && place == count; ++i) {
      world.simulation->Step();
      for (size_t at = 31; at < count; at += 32) place = words[at] != 0 ? at : place;
    }
    ASSERT_NE(place, count);
    const uint32_t value = lane::StampValue(words[place]);
    const uint64_t taken = victim.Counts().lane_received;
    constexpr size_t kSlots = 18;
    for (int step = 0; step < 300 && victim.program.Of(bad_there).up; ++step) {
      ASSERT_EQ(lane.data, g_lane.data);
      const uint32_t lengths[] = {0, 15, 16, 40, 249, 4096, 0xffffffff};
      const size_t next = victim.Counts().lane_received - taken + random.Below(3);
      words[random.Below(count)] = random.Next64();
      words[(place / 32 + next) % kSlots * 32 + 31] =
          lane::Stamp(value + static_cast<uint32_t>(next), lengths[random.Below(7)]);
      if (random.Below(3) != 0) world.hosts[1]->Send(bad, 64);
      victim.Look();
      world.simulation->Step();
    }
    failed += !victim.program.Of(bad_there).up;
    ASSERT_TRUE(world.Send(2, good, 100, 64)) << "the neighbour";
    EXPECT_EQ(world.hosts[0]->program.Of(world.hosts[0]->program.ups[0]).expected, 130u);
  }
  EXPECT_GT(failed, 50) << "most of it was noticed";
}

}  // namespace lanes_test
}  // namespace sluice::endpoint
