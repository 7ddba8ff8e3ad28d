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
    crowd.ConnectAll(1, kept);
    crowd.ConnectAll(2, 4);
    crowd.away = crowd.hosts[1].get();
    Talk(8);
    begin_ns_ = crowd.simulation->NowNs();
  }
  void Talk(uint32_t messages) {
    for (size_t i = 0; i < 4; ++i) crowd.Say(kept_ + i, messages);
    said += 4 * messages;
  }
  int64_t since_ns() const { return crowd.simulation->NowNs() - begin_ns_; }

  Crowd crowd;
  uint64_t said = 0;

 private:
  const uint32_t kept_;
  int64_t begin_ns_ = 0;
};

TEST(WindowTurns, APeerThatIsBusyForLongKeepsItsWindowWhileOthersGoOn) {
  SlowHolders world(2);
  ASSERT_TRUE(world.crowd.RunUntilReceived(world.said));
  EXPECT_LT(world.since_ns(), kSecondNs / 10);
  for (int i = 0; i < 10; ++i) {
    world.Talk(8);
    ASSERT_TRUE(world.crowd.RunUntilReceived(world.said));
    world.crowd.Pass(kSecondNs / 2);
  }
  EXPECT_GE(world.since_ns(), 5 * kSecondNs);
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
  world.crowd.Pass(29 * kSecondNs);
  const Talker& talker = world.crowd.talker();
  EXPECT_TRUE(talker.downs.empty());
  world.crowd.Pass(2 * kSecondNs);
  EXPECT_TRUE(talker.downs.empty());  // nobody waits
  world.Talk(100'000);
  ASSERT_TRUE(world.crowd.RunUntil([&] { return talker.downs.size() == 2; }));
  ExpectKept(talker.downs, 2);
  world.crowd.away = nullptr;
}

// All four windows: nobody else is served until it is over, and then all are but those that more than half of the buffers is with.
TEST(WindowTurns, APeerIsDisconnectedSoonerIfItsLikeKeepMostBuffers) {
  Options options = ServerOptions(16, 4);
  options.keepalive_ns = 0;
  SlowHolders world(4, options);
  const Talker& talker = world.crowd.talker();
  world.crowd.Pass(9 * kSecondNs);
  EXPECT_TRUE(talker.downs.empty());
  EXPECT_EQ(talker.received, 0u);
  ASSERT_TRUE(world.crowd.RunUntilReceived(world.said));
  EXPECT_LT(world.since_ns(), 11 * kSecondNs);
  world.crowd.Pass(10 * kSecondNs);
  ExpectKept(talker.downs, 2);
  world.crowd.away = nullptr;
}

// Fifteen of sixteen windows are with a host that does not answer; it is recalled one, one, two, four and eight of them.
TEST(WindowTurns, HoldersThatDoNotAnswerDoNotHoldUpThoseWhoWait) {
  Options options = ServerOptions(64, 4);
  Crowd crowd(Nodes(3), options, ClientOptions(), 0);
  crowd.ConnectAll(1, 15);
  crowd.ConnectAll(2, 2);
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
  constexpr uint32_t kPeers = 100;
  Crowd crowd(sim, ServerOptions(16, 4), ClientOptions(), 0);
  crowd.ConnectAll(1, kPeers / 2);
  crowd.ConnectAll(2, kPeers / 2);
  crowd.away = crowd.hosts[0].get();
  for (size_t i = 0; i < kPeers; ++i) crowd.Say(i, 2);
  crowd.Pass(kSecondNs / 5);
  EXPECT_GT(crowd.Client(1).requests_failed + crowd.Client(2).requests_failed, kPeers);
  crowd.away = nullptr;
  ASSERT_TRUE(crowd.RunUntilReceived(2 * kPeers));
  crowd.ExpectClean();
}

// As many recalls as there are control slots.
TEST(WindowTurns, RecallsLeaveControlSlotsForAGoodbye) {
  constexpr uint32_t kWindows = 256;
  Crowd crowd(Nodes(4), ServerOptions(4 * kWindows, 4), ClientOptions(), 0);
  crowd.ConnectAll(1, kWindows);
  crowd.ConnectAll(2, kWindows);
  crowd.ConnectAll(3, 1);
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
  crowd.ConnectAll(1, 75);
  crowd.ConnectAll(2, 75);
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
  crowd.ConnectAll(1, 8);
  crowd.ConnectAll(2, 20);  // they take what is left
  crowd.ConnectAll(1, 2);
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
