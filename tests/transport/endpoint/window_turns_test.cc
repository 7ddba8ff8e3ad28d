// SPDX-License-Identifier: Apache-2.0
//
// Whose window is recalled, how long others wait for it, and what becomes of a peer that keeps it.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/endpoint/window_crowd.h"

namespace sluice::endpoint {
namespace window_turns_test {

using softdc::sim::Simulation;

constexpr int64_t kSecondNs = 1'000'000'000;

void ExpectKept(const std::vector<absl::Status>& downs, size_t count) {
  EXPECT_EQ(downs.size(), count);
  for (const absl::Status& why : downs) {
    EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable);
    EXPECT_NE(why.message().find("the peer does not return its receive buffers"),
              absl::string_view::npos)
        << why;
  }
}

// 16 buffers are four windows of four. `kept` of them are with host 1, which does not look; four peers of host 2 share the rest.
class SlowHolders {
 public:
  explicit SlowHolders(uint32_t kept, Options options = ServerOptions(16, 4))
      : crowd(Nodes(3), options, ClientOptions(), 0), kept_(kept) {
    Connect(1, kept);
    Connect(2, 4);
    crowd.away = crowd.hosts[1].get();
  }
  // Those at host 2 talk all the time, so that somebody always waits, until that or for so long.
  bool Talk(int64_t ns, const std::function<bool()>& until = [] { return false; }) {
    const int64_t end_ns = crowd.simulation->NowNs() + ns;
    while (crowd.simulation->NowNs() < end_ns) {
      for (size_t i = 0; i < 4; ++i) crowd.Say(kept_ + i, 8);
      said += 4 * 8;
      if (!crowd.RunUntil([&] { return until() || crowd.talker().received >= said; })) return false;
      if (until()) return true;
      crowd.Pass(kSecondNs / 50);
    }
    return true;
  }

  Crowd crowd;
  uint64_t said = 0;

 private:
  void Connect(uint32_t host, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) crowd.Connect(host);
    ASSERT_TRUE(crowd.RunUntil(
        [&] { return crowd.talker().ups.size() == crowd.members.size() && crowd.AllUp(); }));
  }

  const uint32_t kept_;
};

TEST(WindowTurns, APeerThatIsBusyForLongKeepsItsWindowWhileOthersGoOn) {
  SlowHolders world(2);
  ASSERT_TRUE(world.Talk(5 * kSecondNs));
  EXPECT_EQ(world.crowd.talker().received, world.said);
  EXPECT_TRUE(world.crowd.talker().downs.empty()) << world.crowd.talker().downs[0];
  // It is back, and goes on.
  world.crowd.away = nullptr;
  for (size_t i = 0; i < 2; ++i) world.crowd.Say(i, 10);
  ASSERT_TRUE(world.crowd.RunUntilReceived(world.said + 20));
  world.crowd.ExpectClean();
}

TEST(WindowTurns, APeerThatKeepsItsWindowIsDisconnectedInTheTimeOfKeepalive) {
  Options options = ServerOptions(16, 4);
  options.keepalive_ns = 0;  // the same as 30 s here
  SlowHolders world(2, options);
  const Talker& talker = world.crowd.talker();
  const int64_t before_ns = world.crowd.simulation->NowNs();
  ASSERT_TRUE(world.Talk(60 * kSecondNs, [&] { return talker.downs.size() == 2; }));
  EXPECT_GE(world.crowd.simulation->NowNs() - before_ns, 30 * kSecondNs);
  ExpectKept(talker.downs, 2);
  world.crowd.away = nullptr;
}

// Three of four windows: less than half of the buffers is left for the others.
TEST(WindowTurns, APeerIsDisconnectedSoonerIfItsLikeKeepMostBuffers) {
  Options options = ServerOptions(16, 4);
  options.keepalive_ns = 0;
  SlowHolders world(3, options);
  const Talker& talker = world.crowd.talker();
  const int64_t before_ns = world.crowd.simulation->NowNs();
  ASSERT_TRUE(world.Talk(60 * kSecondNs, [&] { return !talker.downs.empty(); }));
  const int64_t took_ns = world.crowd.simulation->NowNs() - before_ns;
  EXPECT_GE(took_ns, 10 * kSecondNs);
  EXPECT_LT(took_ns, 15 * kSecondNs);
  // The others keep less than half.
  ASSERT_TRUE(world.Talk(10 * kSecondNs));
  ExpectKept(talker.downs, 1);
  world.crowd.away = nullptr;
}

// Fifteen of sixteen windows are with a host that does not answer; it is recalled one, one, two, four and eight of them.
TEST(WindowTurns, HoldersThatDoNotAnswerDoNotHoldUpThoseWhoWait) {
  Options options = ServerOptions(64, 4);
  Crowd crowd(Nodes(3), options, ClientOptions(), 0);
  for (int i = 0; i < 15; ++i) crowd.Connect(1);
  ASSERT_TRUE(crowd.RunUntil([&] { return crowd.talker().ups.size() == 15 && crowd.AllUp(); }));
  for (int i = 0; i < 2; ++i) crowd.Connect(2);
  ASSERT_TRUE(crowd.RunUntil([&] { return crowd.talker().ups.size() == 17 && crowd.AllUp(); }));
  crowd.away = crowd.hosts[1].get();
  const int64_t before_ns = crowd.simulation->NowNs();
  crowd.Say(16, 1);
  ASSERT_TRUE(crowd.RunUntilReceived(1));
  EXPECT_LT(crowd.simulation->NowNs() - before_ns, options.dead_peer_ns);
  EXPECT_TRUE(crowd.talker().downs.empty());
  crowd.away = nullptr;
}

TEST(WindowTurns, MoreAsksThanControlBuffersEndNobody) {
  softdc::sim::Options sim = Nodes(3);
  sim.dials_by_node[0] = sim.dials;
  sim.dials_by_node[0].limits.max_srq_wr = 64;
  constexpr uint32_t kPeers = 120;
  Crowd crowd(sim, ServerOptions(16, 4), ClientOptions(), kPeers);
  crowd.away = crowd.hosts[0].get();
  for (size_t i = 0; i < kPeers; ++i) crowd.Say(i, 2);
  crowd.Pass(kSecondNs);
  EXPECT_GT(crowd.Client(1).requests_failed + crowd.Client(2).requests_failed, 3 * kPeers);
  crowd.away = nullptr;
  ASSERT_TRUE(crowd.RunUntilReceived(2 * kPeers));
  crowd.ExpectClean();
}

// One peer is busy. Another one says a word, for which the busy one's window is recalled.
TEST(WindowTurns, ABusyPeersWindowGrowsAgainToTheNominalOne) {
  constexpr uint32_t kCredits = 8;
  Crowd crowd(Nodes(3), ServerOptions(16, kCredits), ClientOptions(), 5);
  const PeerId busy = crowd.members[0].id;
  crowd.Say(4, 1);
  crowd.Say(0, 100'000);
  const Talker::Line& line = crowd.hosts[1]->talker.lines[busy.index];
  uint32_t most = 0;
  EXPECT_TRUE(crowd.RunUntil([&] {
    most = std::max(most, line.sent - line.acknowledged);
    return most == kCredits || line.to_send == 0;
  }));
  EXPECT_EQ(most, kCredits);
  ASSERT_TRUE(crowd.RunUntilReceived(100'001));
  crowd.ExpectClean();
}

// More recalls than there are control slots.
TEST(WindowTurns, RecallsLeaveControlSlotsForAGoodbye) {
  constexpr uint32_t kWindows = 300;
  Crowd crowd(Nodes(4), ServerOptions(4 * kWindows, 4), ClientOptions(), 0);
  const auto connect = [&](uint32_t host, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) crowd.Connect(host);
    ASSERT_TRUE(crowd.RunUntil(
        [&] { return crowd.talker().ups.size() == crowd.members.size() && crowd.AllUp(); }));
  };
  connect(1, kWindows);
  connect(2, kWindows);
  connect(3, 1);
  const PeerId leaves = crowd.talker().ups.back();
  crowd.away = crowd.hosts[0].get();
  for (size_t i = kWindows; i < 2 * kWindows; ++i) crowd.Say(i, 1);
  crowd.Pass(1'000'000);
  crowd.hosts[0]->endpoint.Poll();
  ASSERT_EQ(crowd.Server().windows_recalled, kWindows);
  {
    const Simulation::As as(*crowd.simulation, 0);
    crowd.hosts[0]->endpoint.endpoint().Disconnect(leaves);
  }
  crowd.away = nullptr;
  ASSERT_TRUE(crowd.RunUntil([&] { return !crowd.hosts[3]->talker.downs.empty(); }));
  EXPECT_NE(crowd.hosts[3]->talker.downs[0].message().find("peer closed the connection"),
            absl::string_view::npos)
      << crowd.hosts[3]->talker.downs[0];
  ASSERT_TRUE(crowd.RunUntilReceived(kWindows));
}

// All of the first hundred leave the line, which is more than half of it.
TEST(WindowTurns, ThoseWhoLeaveTheLineLeaveTheOthersTheirPlaces) {
  Options options = ServerOptions(16, 4);
  Crowd crowd(Nodes(3), options, ClientOptions(), 4);
  std::vector<std::pair<PeerId, SendBuffer>> reserved;
  for (size_t i = 0; i < 4; ++i) {  // nobody returns a window
    const Crowd::Member& member = crowd.members[i];
    const Simulation::As as(*crowd.simulation, member.host);
    auto buffer = crowd.hosts[member.host]->endpoint.endpoint().Reserve(member.id, 64);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    reserved.push_back({member.id, *buffer});
  }
  for (uint32_t i = 0; i < 150; ++i) crowd.Connect(1 + i % 2);
  ASSERT_TRUE(crowd.RunUntil([&] { return crowd.talker().ups.size() == 154 && crowd.AllUp(); }));
  for (size_t i = 4; i < 154; ++i) crowd.Say(i, 2);
  ASSERT_TRUE(crowd.RunUntil([&] { return crowd.Server().windows_waiting == 150; }));
  for (size_t i = 4; i < 104; ++i) {
    const Simulation::As as(*crowd.simulation, crowd.members[i].host);
    crowd.hosts[crowd.members[i].host]->endpoint.endpoint().Disconnect(crowd.members[i].id);
  }
  ASSERT_TRUE(crowd.RunUntil([&] { return crowd.Server().windows_waiting == 50; }));
  EXPECT_EQ(crowd.talker().received, 0u);
  for (size_t i = 0; i < 4; ++i) {
    const Simulation::As as(*crowd.simulation, crowd.members[i].host);
    crowd.hosts[crowd.members[i].host]->endpoint.endpoint().Cancel(reserved[i].first,
                                                                  reserved[i].second);
  }
  ASSERT_TRUE(crowd.RunUntilReceived(100));
  EXPECT_EQ(crowd.Server().windows_waiting, 0u);
}

// Member 2 has been silent for longest. The newcomer, at host 6, has not said anything yet.
TEST(WindowTurns, ANewPeerIsNotTheIdlestOne) {
  Crowd crowd(Nodes(7), ServerOptions(16, 4), ClientOptions(), 4);
  for (size_t i = 0; i < 4; ++i) crowd.Say(i, 1);
  ASSERT_TRUE(crowd.RunUntilReceived(4));
  uint64_t said = 4;
  for (int round = 0; round < 200; ++round) {
    for (const size_t member : {0, 1}) {
      crowd.Say(member, 1);
      ASSERT_TRUE(crowd.RunUntilReceived(++said));
    }
  }
  {
    const Simulation::As as(*crowd.simulation, crowd.members[3].host);
    crowd.hosts[crowd.members[3].host]->endpoint.endpoint().Disconnect(crowd.members[3].id);
  }
  ASSERT_TRUE(crowd.RunUntil([&] { return crowd.talker().downs.size() == 1; }));
  crowd.Connect(6);
  crowd.Connect(5);
  ASSERT_TRUE(crowd.RunUntil([&] { return crowd.talker().ups.size() == 6 && crowd.AllUp(); }));
  crowd.Say(5, 1);
  ASSERT_TRUE(crowd.RunUntilReceived(++said));
  EXPECT_EQ(crowd.Server().windows_recalled, 1u);
  crowd.Say(4, 1);
  ASSERT_TRUE(crowd.RunUntilReceived(++said));
  EXPECT_EQ(crowd.Client(6).windows_asked, 0u);
  EXPECT_EQ(crowd.Server().windows_recalled, 1u);
}

// All of its send buffers are reserved. Two of its peers wait for one, and have no window.
TEST(WindowTurns, WithoutASendBufferNoWindowIsAskedFor) {
  Crowd crowd(Nodes(3), ServerOptions(128, 16), ClientOptions(), 0);
  const auto connect = [&](uint32_t host, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) crowd.Connect(host);
    ASSERT_TRUE(crowd.RunUntil(
        [&] { return crowd.talker().ups.size() == crowd.members.size() && crowd.AllUp(); }));
  };
  connect(1, 8);
  connect(2, 20);  // they take what is left
  connect(1, 2);
  Endpoint& client = crowd.hosts[1]->endpoint.endpoint();
  std::vector<std::pair<PeerId, SendBuffer>> reserved;
  for (size_t i = 0; i < 8; ++i) {
    const Simulation::As as(*crowd.simulation, 1);
    for (;;) {
      auto buffer = client.Reserve(crowd.members[i].id, 64);
      if (!buffer.ok()) break;
      reserved.push_back({crowd.members[i].id, *buffer});
    }
  }
  ASSERT_EQ(reserved.size(), ClientOptions().send_buffers);
  crowd.Say(28, 1);
  crowd.Say(29, 1);
  crowd.Pass(kSecondNs / 10);
  EXPECT_EQ(crowd.Client(1).windows_asked, 0u);
  EXPECT_EQ(crowd.Server().windows_granted, 0u);
  {
    const Simulation::As as(*crowd.simulation, 1);
    for (const auto& [peer, buffer] : reserved) client.Cancel(peer, buffer);
  }
  ASSERT_TRUE(crowd.RunUntilReceived(2));
  EXPECT_LE(crowd.Client(1).windows_asked, 10u);
}

}  // namespace window_turns_test
}  // namespace sluice::endpoint
