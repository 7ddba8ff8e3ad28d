// SPDX-License-Identifier: Apache-2.0
//
// Peers that hold the secret, finish the handshake, and then send more than they were granted; and correct peers whose
// requests fail, which are never taken for such.
#include <cstring>
#include <functional>
#include <string>

#include "gtest/gtest.h"
#include "tests/transport/endpoint/lane_world.h"
#include "tests/transport/endpoint/offender.h"
#include "transport/peer/credits.h"

namespace sluice::endpoint {
namespace credit_check_test {

using softdc::sim::Simulation;

// Of messages with a number, only the next one is new.
struct InOrder : Recorder {
  bool OnMessage(PeerId peer, std::span<const std::byte> bytes) override {
    uint32_t number = 0;
    std::memcpy(&number, bytes.data(), sizeof(number));
    ++heard;
    if (number != taken) return false;
    ++taken;
    if (on_taken) on_taken(peer);
    return true;
  }
  std::function<void(PeerId)> on_taken;
  uint32_t heard = 0;
  uint32_t taken = 0;
};

class Offender : public OffenderTest {
 protected:
  void Connect(uint32_t credits) {
    StartServer(WithWindow(credits), &saw_);
    ConnectOffender(raw_);
    ASSERT_EQ(terms_.credits, credits);
  }
  void SendData(uint32_t first, uint32_t count) { OffenderTest::SendData(raw_, first, count); }
  void SendControl(peer::Kind kind, uint32_t count) {
    OffenderTest::SendControl(raw_, kind, count);
  }
  void ExpectEnded(const std::string& cause) {
    ASSERT_EQ(saw_.downs.size(), 1u);
    const absl::Status why = saw_.downs[0].why;
    EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable) << why;
    EXPECT_NE(why.message().find("the peer sent more than it was granted"), std::string::npos)
        << why;
    EXPECT_NE(why.message().find(cause), std::string::npos) << why;
    EXPECT_NE(why.message().find("127.0.0.1"), std::string::npos) << why;
    EXPECT_EQ(server_->endpoint->Counts().over_credit, 1u);
  }

  InOrder saw_;
  RawPeer raw_{Shared()};
};

TEST_F(Offender, MayUseItsWindow) {
  Connect(8);
  SendData(0, 8);
  Look();
  SendData(8, 8);
  Look();
  EXPECT_EQ(saw_.taken, 16u);
  EXPECT_TRUE(saw_.downs.empty());
}

TEST_F(Offender, IsEndedAtTheFirstMessageItWasNotGranted) {
  Connect(8);
  SendData(0, 20);
  Look();
  EXPECT_EQ(saw_.taken, 9u);
  ExpectEnded("it has sent 9 messages, and was granted 8");
}

// The grants that follow from the first messages are written while the others lie there: it can't have known them.
TEST_F(Offender, IsNotCoveredByGrantsThatAreWrittenWhileItsMessagesLieThere) {
  Connect(40);
  saw_.on_taken = [&](PeerId peer) {
    const auto buffer = server_->endpoint->Reserve(peer, 1);
    if (buffer.ok()) server_->endpoint->Commit(peer, *buffer, 1, true);
  };
  SendData(0, 60);
  Look();
  EXPECT_EQ(saw_.taken, 41u);
  ExpectEnded("it has sent 41 messages, and was granted 40");
}

TEST_F(Offender, MayRepeatItsWindowAsOftenAsRequestsFailInARow) {
  Connect(4);
  for (uint32_t copy = 0; copy < peer::ReceiveCredits::kMaxCopies; ++copy) SendData(0, 4);
  Look();
  EXPECT_EQ(saw_.heard, 32u);
  EXPECT_EQ(saw_.taken, 4u);
  EXPECT_TRUE(saw_.downs.empty());
}

TEST_F(Offender, IsEndedWhenItRepeatsWithoutEnd) {
  Connect(4);
  for (uint32_t copy = 0; copy <= peer::ReceiveCredits::kMaxCopies; ++copy) SendData(0, 4);
  Look();
  EXPECT_EQ(saw_.heard, 32u);
  ExpectEnded("more than 32 messages were here at one time; its window is 4");
}

// Nobody says any more which of them are new.
TEST_F(Offender, IsNotTakenForOneBecauseOfCopiesThatComeWhileTheServerCloses) {
  Connect(8);
  SendData(0, 8);
  Look();
  ASSERT_EQ(saw_.taken, 8u);
  for (int copy = 0; copy < 3; ++copy) SendData(0, 8);
  server_->endpoint->Close();
  EXPECT_EQ(server_->endpoint->Counts().messages_received, 32u);
  EXPECT_EQ(server_->endpoint->Counts().over_credit, 0u);
}

TEST_F(Offender, MayAskNowAndThen) {
  Connect(8);
  SendControl(peer::Kind::kProbe, peer::ReceiveCredits::MostControl(16));
  Look();
  EXPECT_TRUE(saw_.downs.empty());
}

TEST_F(Offender, IsEndedWhenItFloodsTheControlQueue) {
  Connect(8);
  const uint32_t most =
      peer::ReceiveCredits::MostControl(16);  // the window in the raw peer's terms
  SendControl(peer::Kind::kProbe, most + 1);
  Look();
  ExpectEnded("more than " + std::to_string(most) + " control messages were here at one time");
}

// Streams are reset and whole queues recovered, requests run and are reported failed, or run late, while the receiver is
// away; with lanes and without. Copies come, and are never too many.
TEST(CorrectPeers, AreNeverTakenForOffendersWhateverFails) {
  uint64_t doubles = 0;
  uint64_t through_lanes = 0;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    base::SeededRandom random(seed);
    Options options = LaneOptions();
    options.credits_per_peer = seed % 3 == 0 ? 4 : 16;
    options.use_streams = seed % 4 != 1;
    if (seed % 2 == 0) options.lane_memory_bytes = 0;
    LaneWorld world({.seed = seed, .nodes = 2}, options);
    const PeerId peer = world.Connect(1);
    Simulation& simulation = *world.simulation;
    for (int round = 0; round < 6; ++round) {
      const bool away = random.Below(2) == 0;
      // The third error in a row ends a peer that nobody hears.
      for (uint64_t rules = random.Below(3); rules > 0; --rules) {
        const bool carried_out = random.Below(2) == 0;
        simulation.FailNext(
            {.node = 1,
             .peer = 0,
             .skip = static_cast<uint32_t>(random.Below(12)),
             .carried_out = carried_out,
             .lands_late_ns = carried_out ? static_cast<int64_t>(random.Below(2) * 50'000) : 0});
      }
      const int64_t end_ns = simulation.NowNs() + 3'000'000;
      int64_t tick_ns = 0;
      do {
        while (random.Below(8) != 0 && world.hosts[1]->Send(peer, 64)) continue;
        world.hosts[1]->Look(/*thorough=*/true);
        if (!away) world.hosts[0]->Look(/*thorough=*/true);
        if (tick_ns <= simulation.NowNs()) {
          tick_ns = simulation.NowNs() + 50'000;
          simulation.After(50'000, [] {});
        }
      } while (simulation.Step() && simulation.NowNs() < end_ns);
      // All rules used, and acknowledged: reports follow from messages.
      Program::Peer& sender = world.hosts[1]->program.Of(peer);
      const uint32_t sent = sender.sent;
      ASSERT_TRUE(world.RunUntil(
          [&] {
            const bool over =
                !simulation.HasRule(1, 0) && static_cast<int32_t>(sender.acknowledged - sent) >= 0;
            if (!over) world.hosts[1]->Send(peer, 64);
            return over && world.hosts[0]->program.received == sender.sent;
          },
          5'000'000'000, /*thorough=*/true))
          << round;
    }
    world.ExpectClean();
    EXPECT_EQ(world.hosts[0]->program.received, world.hosts[1]->program.Of(peer).sent);
    for (auto& host : world.hosts) EXPECT_EQ(host->Counts().over_credit, 0u);
    doubles += world.hosts[0]->program.doubles;
    through_lanes += world.hosts[0]->Counts().lane_received;
  }
  EXPECT_GT(doubles, 8u);
  EXPECT_GT(through_lanes, 20u);
}

}  // namespace credit_check_test
}  // namespace sluice::endpoint
