// SPDX-License-Identifier: Apache-2.0
//
// Send rings, on simulated hosts: messages of a pass leave by one WRITE, keep their order and their bytes beside messages that
// are sent, after errors and when their lane ends; and a buffer that was reserved in a ring may be committed whatever became of it.
#include <cstring>
#include <optional>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/endpoint/lane_world.h"

namespace sluice::endpoint {
namespace send_rings_test {

using softdc::InOrder;
using softdc::sim::Simulation;

class SendRingsTest : public testing::Test {
 protected:
  void Make(Options options = LaneOptions(), uint32_t nodes = 2) {
    softdc::sim::Options sim_options;
    sim_options.nodes = nodes;
    world_.emplace(sim_options, options);
    peer_ = world_->Connect(1);
  }
  void MakeLane(uint32_t from = 1) {
    const uint64_t before = host(from).Counts().lane_sent;
    ASSERT_TRUE(world_->RunUntil([&] {
      host(from).Send(from == 1 ? peer_ : others_[from], 64);
      return host(from).Counts().lane_sent > before;
    }));
    ASSERT_TRUE(world_->RunUntil([&] { return AllCame(); }));
  }
  // Several in one pass: one doorbell.
  uint32_t Burst(uint32_t count, const std::vector<uint32_t>& sizes) {
    const Simulation::As as(*world_->simulation, 1);
    uint32_t sent = 0;
    while (sent < count && host(1).program.Send(peer_, sizes[sent % sizes.size()])) ++sent;
    host(1).endpoint().Flush();
    return sent;
  }
  bool AllCame() {
    uint64_t sent = 0;
    for (size_t i = 1; i < world_->hosts.size(); ++i) {
      for (const Program::Peer& peer : host(i).program.peers) sent += peer.sent;
    }
    return host(0).program.received == sent;
  }
  LaneHost& host(size_t i) { return *world_->hosts[i]; }

  std::optional<LaneWorld> world_;
  PeerId peer_;
  std::vector<PeerId> others_;
};

TEST_F(SendRingsTest, MessagesOfAPassAreOneRequest) {
  Make();
  MakeLane();
  const uint64_t wire = world_->simulation->counters().sent;
  const uint64_t written = host(1).Counts().lane_sent;
  // Until the lane's last slot is passed, which a WRITE can't do.
  uint32_t bursts = 0;
  for (uint32_t left = 60; left != 0; ++bursts) {
    const uint32_t sent = Burst(std::min(left, 6u), {48, 8, 200, 100});
    ASSERT_NE(sent, 0u);
    left -= sent;
    ASSERT_TRUE(world_->RunUntil([&] { return AllCame(); }));
  }
  EXPECT_EQ(host(1).Counts().lane_sent - written, 60u);
  const uint64_t laps = 60 / 16 + 1;
  EXPECT_LE(world_->simulation->counters().sent - wire, 2 * bursts + laps)
      << "a WRITE for each burst, and a report from the other side";
  world_->ExpectClean();
}

TEST_F(SendRingsTest, MessagesThatDoNotFitKeepTheirPlace) {
  Make();
  MakeLane();
  for (int round = 0; round < 300; ++round) {
    Burst(7, {64, 1000, 8, 8, 900, 232, 16});
    ASSERT_TRUE(world_->RunUntil([&] { return AllCame(); }));
  }
  EXPECT_GT(host(1).Counts().lane_sent, 500u);
  world_->ExpectClean();
}

TEST_F(SendRingsTest, FailedRequestIsSentAgainMessageByMessage) {
  for (const int64_t late_ns : {0, 1'000, 60'000, 5'000'000}) {
    for (const uint32_t skip : {0u, 1u, 3u}) {
      Make();
      MakeLane();
      world_->simulation->FailNext(
          {.node = 1, .opcode = IBV_WR_RDMA_WRITE, .skip = skip, .lands_late_ns = late_ns});
      for (int round = 0; round < 400; ++round) {
        Burst(6, {64, 8, 200});
        ASSERT_TRUE(world_->RunUntil([&] { return AllCame(); })) << late_ns << ' ' << skip;
      }
      EXPECT_EQ(host(0).Counts().lanes_lost, 1u);
      EXPECT_GE(host(1).Counts().reposts, 2u) << "of one request";
      EXPECT_GT(host(1).Counts().lane_sent, 1000u) << "a new lane, and a ring for it";
      world_->ExpectClean();
    }
  }
}

// ---- Reserved, and then

TEST_F(SendRingsTest, ShorterThanReserved) {
  Make();
  MakeLane();
  for (uint32_t bytes = 8; bytes < 200; bytes += 3) {
    const Simulation::As as(*world_->simulation, 1);
    Program& program = host(1).program;
    auto buffer = host(1).endpoint().Reserve(peer_, 200);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    Program::Fill(buffer->data, bytes, program.Of(peer_).sent++);
    program.Of(peer_).kept.push_back(buffer->slot);
    host(1).endpoint().Commit(peer_, *buffer, bytes, false);
    ASSERT_TRUE(world_->RunUntil([&] { return AllCame(); })) << bytes;
  }
  EXPECT_GT(host(1).Counts().lane_sent, 60u);
  world_->ExpectClean();
}

class Reserved : public SendRingsTest {
 protected:
  void Reserve() {
    const Simulation::As as(*world_->simulation, 1);
    auto buffer = host(1).endpoint().Reserve(peer_, 64);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    buffer_ = *buffer;
  }
  void Commit() {
    const Simulation::As as(*world_->simulation, 1);
    Program& program = host(1).program;
    Program::Fill(buffer_.data, 64, program.Of(peer_).sent++);
    program.Of(peer_).kept.push_back(buffer_.slot);
    host(1).endpoint().Commit(peer_, buffer_, 64, false);
    host(1).endpoint().Flush();
  }
  // In the order of Commit().
  void SendOthers(uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      ASSERT_TRUE(world_->RunUntil([&] { return host(1).Send(peer_, 80); }));
      ASSERT_TRUE(world_->RunUntil([&] { return AllCame(); }));
    }
  }

  SendBuffer buffer_;
};

TEST_F(Reserved, OthersGoBeforeIt) {
  Make();
  MakeLane();
  Reserve();
  const uint64_t written = host(1).Counts().lane_sent;
  SendOthers(100);
  EXPECT_EQ(host(1).Counts().lane_sent, written) << "its cell is the next";
  Commit();
  ASSERT_TRUE(world_->RunUntil([&] { return AllCame(); }));
  EXPECT_EQ(host(1).Counts().lane_sent, written + 1);
  SendOthers(100);
  EXPECT_EQ(host(1).Counts().lane_sent, written + 101);
  world_->ExpectClean();
}

// Others that are sent while a cell is reserved take what was left of the lane's room, so the message of the cell is sent too.
TEST_F(Reserved, OthersTakeTheRoomOfTheLane) {
  Options options = LaneOptions();
  options.lane_slots = 8;  // fewer than the credits
  const auto make = [&] {
    Make(options);
    MakeLane();
    host(0).hung = true;  // acknowledges nothing from now on
  };
  const auto written = [&] { return host(1).Counts().lane_sent; };
  make();
  uint32_t room = 0;  // the same in each such world
  for (uint64_t before = written(); host(1).Send(peer_, 64) && written() == before + 1; ++room) {
    before = written();
  }
  ASSERT_GE(room, 2u);
  ASSERT_LT(room, 8u);
  make();
  const uint64_t before = written();
  for (uint32_t i = 0; i + 1 < room; ++i) ASSERT_TRUE(host(1).Send(peer_, 64));
  Reserve();
  ASSERT_TRUE(host(1).Send(peer_, 64));
  EXPECT_EQ(written(), before + room - 1) << "its cell is the next";
  Commit();
  EXPECT_EQ(written(), before + room - 1) << "it was sent";
  host(0).hung = false;
  ASSERT_TRUE(world_->RunUntil([&] { return AllCame(); }));
  SendOthers(20);
  world_->ExpectClean();
}

TEST_F(Reserved, CancelledMakesRoomForTheNext) {
  Make();
  MakeLane();
  for (int i = 0; i < 50; ++i) {
    Reserve();
    {
      const Simulation::As as(*world_->simulation, 1);
      host(1).endpoint().Cancel(peer_, buffer_);
    }
    const uint64_t written = host(1).Counts().lane_sent;
    SendOthers(1);
    EXPECT_EQ(host(1).Counts().lane_sent, written + 1);
  }
  world_->ExpectClean();
}

TEST_F(Reserved, LaneIsLostMeanwhile) {
  Make();
  MakeLane();
  world_->simulation->FailNext({.node = 1, .opcode = IBV_WR_RDMA_WRITE, .lands_late_ns = 1'000});
  ASSERT_TRUE(host(1).Send(peer_, 64));
  Reserve();
  ASSERT_TRUE(world_->RunUntil([&] { return host(0).Counts().lanes_lost == 1; }));
  ASSERT_TRUE(world_->RunUntil([&] { return AllCame(); }));
  const uint64_t written = host(1).Counts().lane_sent;
  Commit();
  ASSERT_TRUE(world_->RunUntil([&] { return AllCame(); }));
  EXPECT_EQ(host(1).Counts().lane_sent, written) << "it was sent";
  // A new lane, and again a ring for it.
  ASSERT_TRUE(world_->RunUntil([&] {
    host(1).Send(peer_, 64);
    return host(1).Counts().lane_sent > written + 100;
  }));
  ASSERT_TRUE(world_->RunUntil([&] { return AllCame(); }));
  world_->ExpectClean();
}

TEST_F(Reserved, PeerHasGoneMeanwhile) {
  for (const bool commit : {true, false}) {
    Make();
    MakeLane();
    Reserve();
    host(0).Disconnect(host(0).program.ups[0]);
    ASSERT_TRUE(world_->RunUntil([&] { return host(1).program.downs == 1; }));
    {
      const Simulation::As as(*world_->simulation, 1);
      if (commit) {
        host(1).endpoint().Commit(peer_, buffer_, 64, false);
      } else {
        host(1).endpoint().Cancel(peer_, buffer_);
      }
    }
    // The ring is there for the next one.
    peer_ = world_->Connect(1);
    host(1).program.downs = host(0).program.downs = 0;
    host(0).program.received = 0;
    const uint64_t written = host(1).Counts().lane_sent;
    ASSERT_TRUE(world_->RunUntil([&] {
      host(1).Send(peer_, 64);
      return host(1).Counts().lane_sent > written + 100;
    }));
    world_->ExpectClean();
  }
}

// ---- Found by reading

// A grant in the lane of a peer that is leaving.
TEST_F(SendRingsTest, NothingIsAcknowledgedAfterTheEndOfThePeer) {
  Make();
  MakeLane();
  const PeerId back = host(0).program.ups[0];
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(host(0).Send(back, 64));
  // Host 1 takes them; its next messages say so.
  ASSERT_TRUE(world_->RunUntil([&] { return host(1).program.received == 3; }));
  ASSERT_FALSE(host(0).program.Of(back).kept.empty());
  ASSERT_EQ(Burst(4, {64}), 4u);
  host(0).Disconnect(back);
  host(0).Look();
  ASSERT_EQ(host(0).program.downs, 1u);
  for (int i = 0; i < 200 && world_->simulation->Step(); ++i) host(0).Look();
  EXPECT_EQ(host(0).program.late_acknowledgements, 0u);
}

TEST_F(SendRingsTest, SixteenMessagesLeaveBeforeTheEndOfThePass) {
  Options options = LaneOptions();
  options.srq_size = 2048;
  options.credits_per_peer = 100;
  options.send_buffers = 512;
  options.dci_depth = 512;
  Make(options);
  MakeLane();
  {
    const Simulation::As as(*world_->simulation, 1);
    for (int i = 0; i < 40; ++i) ASSERT_TRUE(host(1).program.Send(peer_, 64));
  }
  // No Flush(): the pass is long.
  const uint64_t received = host(0).program.received;
  for (int i = 0; i < 200; ++i) {
    world_->simulation->Step();
    host(0).Look();
  }
  EXPECT_GE(host(0).program.received, received + 32);
  {
    const Simulation::As as(*world_->simulation, 1);
    host(1).endpoint().Flush();
  }
  ASSERT_TRUE(world_->RunUntil([&] { return AllCame(); }));
}

// Completions of a DCI are withheld by a peer that is silent: others leave that DCI, and go on writing their lanes.
TEST_F(SendRingsTest, SilentNeighbourHoldsNobodyUp) {
  for (const int extra : {0, 1}) {
    softdc::sim::Options sim_options;
    sim_options.nodes = 3;
    Options options = LaneOptions();
    options.send_buffers = 512;
    options.dead_peer_ns = 1'000'000'000;
    world_.emplace(sim_options, options);
    world_->Connect(1);
    world_->Connect(2);
    LaneHost& me = host(0);
    const PeerId silent = me.program.ups[0];
    const PeerId good = me.program.ups[1];
    host(2).program.on_message = [&](PeerId id) { host(2).program.Send(id, 64); };
    const auto over = [&] {
      return host(2).program.received == me.program.Of(good).sent &&
             me.program.Of(good).kept.empty();
    };
    for (int i = 0; i < 40; ++i) {
      me.Send(silent, 64);
      ASSERT_TRUE(me.Send(good, 64));
      ASSERT_TRUE(world_->RunUntil(over));
    }
    const uint64_t written = me.Counts().lane_sent;
    world_->simulation->CutLink(0, 1);
    me.Send(silent, 64);
    for (int i = 0; i < extra; ++i) {
      ASSERT_TRUE(me.Send(good, 64));
      ASSERT_TRUE(world_->RunUntil(over));
    }
    for (int round = 0; round < 60; ++round) {
      const int64_t before_ns = world_->simulation->NowNs();
      ASSERT_TRUE(me.Send(good, 64));
      {
        const Simulation::As as(*world_->simulation, 0);
        ASSERT_TRUE(me.program.Send(good, 64));  // of the next pass, before it looks
      }
      ASSERT_TRUE(world_->RunUntil(over));
      ASSERT_LT(world_->simulation->NowNs() - before_ns, 1'000'000) << extra << ' ' << round;
    }
    EXPECT_GT(me.Counts().lane_sent - written, 100u);
    host(2).program.on_message = nullptr;
    world_.reset();
  }
}

TEST_F(SendRingsTest, CellIsNobodyElsesWhileItsMessageIsNotAcknowledged) {
  softdc::sim::Options sim_options;
  sim_options.nodes = 3;
  world_.emplace(sim_options, LaneOptions());
  world_->Connect(1);
  world_->Connect(2);
  LaneHost& me = host(0);
  const PeerId one = me.program.ups[0];
  const PeerId two = me.program.ups[1];
  const auto came = [&] { return host(1).program.received == me.program.Of(one).sent; };
  ASSERT_TRUE(world_->RunUntil([&] {
    me.Send(one, 64);
    return me.Counts().lane_sent > 0;
  }));
  ASSERT_TRUE(world_->RunUntil(came));
  SendBuffer buffer;
  {
    const Simulation::As as(*world_->simulation, 0);
    world_->simulation->FailNext({.node = 0, .opcode = IBV_WR_RDMA_WRITE, .lands_late_ns = 1'000});
    ASSERT_TRUE(me.program.Send(one, 64));
    auto reserved = me.endpoint().Reserve(one, 64);
    ASSERT_TRUE(reserved.ok());
    buffer = *reserved;
    me.endpoint().Flush();
  }
  ASSERT_TRUE(world_->RunUntil([&] { return host(1).Counts().lanes_lost == 1 && came(); }));
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(world_->RunUntil([&] { return me.Send(one, 900); }));  // in no lane
    ASSERT_TRUE(world_->RunUntil(came));
  }
  {
    const Simulation::As as(*world_->simulation, 0);
    Program::Fill(buffer.data, 64, me.program.Of(one).sent++);
    me.program.Of(one).kept.push_back(buffer.slot);
    me.endpoint().Commit(one, buffer, 64, false);
    me.endpoint().Flush();
  }
  host(1).hung = true;
  const uint64_t written = me.Counts().lane_sent;
  ASSERT_TRUE(world_->RunUntil([&] {
    if (me.Send(two, 48)) {
      EXPECT_NE(me.program.Of(two).kept.back(), buffer.slot);
    }
    return me.Counts().lane_sent > written + 300 || HasFailure();
  }));
  host(1).hung = false;
  ASSERT_TRUE(world_->RunUntil(came));
  world_->ExpectClean();
}

// ---- More lanes than rings

TEST_F(SendRingsTest, WhoFindsNoRingWritesFromSendBuffers) {
  constexpr uint32_t kPeers = 20;
  Options options = LaneOptions();
  options.max_peers = kPeers;
  options.send_buffers = 512;
  options.credits_per_peer = 8;
  options.srq_size = 512;
  softdc::sim::Options sim_options;
  sim_options.nodes = kPeers + 1;
  world_.emplace(sim_options, options);
  for (uint32_t from = 1; from <= kPeers; ++from) world_->Connect(from);
  // Host 0 writes into the lanes of all others.
  Program& program = host(0).program;
  ASSERT_EQ(program.ups.size(), kPeers);
  std::vector<uint32_t> left(kPeers, 500);
  const auto received = [&] {
    uint64_t sum = 0;
    for (uint32_t i = 1; i <= kPeers; ++i) sum += host(i).program.received;
    return sum;
  };
  ASSERT_TRUE(world_->RunUntil([&] {
    const Simulation::As as(*world_->simulation, 0);
    for (uint32_t i = 0; i < kPeers; ++i) {
      for (int n = 0; n < 3 && left[i] != 0 && program.Send(program.ups[i], 64); ++n) --left[i];
    }
    return received() == 500 * kPeers;
  }));
  uint32_t lanes = 0;
  for (uint32_t i = 1; i <= kPeers; ++i) lanes += host(i).Counts().lane_received > 100;
  EXPECT_EQ(lanes, kPeers);
  world_->ExpectClean();
}

}  // namespace send_rings_test
}  // namespace sluice::endpoint
