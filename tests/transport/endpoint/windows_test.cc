// SPDX-License-Identifier: Apache-2.0
//
// More peers than there are windows: each gets one in its turn, nothing is lost or doubled, and whoever breaks the rules is
// disconnected.
#include "transport/endpoint/windows.h"

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/endpoint/offender.h"
#include "tests/transport/endpoint/window_crowd.h"
#include "transport/base/random.h"
#include "transport/peer/window_words.h"

namespace sluice::endpoint {
namespace windows_test {

using softdc::sim::Simulation;

// 16 buffers are four windows of four.
TEST(Windows, APeerWithoutAWindowAsksForOneAndAnIdleOneIsRecalled) {
  Crowd crowd(Nodes(2), ServerOptions(16, 4), ClientOptions(), 6);
  EXPECT_EQ(crowd.Server().windows_recalled, 0u);
  EXPECT_EQ(crowd.Server().windows_granted, 0u);
  crowd.Say(5, 3);
  ASSERT_TRUE(crowd.RunUntilReceived(3));
  EXPECT_EQ(crowd.Server().windows_recalled, 1u);
  EXPECT_EQ(crowd.Server().windows_granted, 1u);
  EXPECT_EQ(crowd.Server().windows_waiting, 0u);
  // It keeps it.
  crowd.Say(5, 3);
  ASSERT_TRUE(crowd.RunUntilReceived(6));
  EXPECT_EQ(crowd.Server().windows_recalled, 1u);
  crowd.ExpectClean();
}

TEST(Windows, AreOfTheHandshakeWhileBuffersLastAndNobodySaysAWordAboutThem) {
  Crowd crowd(Nodes(2), ServerOptions(64, 4), ClientOptions(), 16);
  for (size_t i = 0; i < 16; ++i) crowd.Say(i, 40);
  ASSERT_TRUE(crowd.RunUntilReceived(16 * 40));
  const Counters counters = crowd.Server();
  EXPECT_EQ(counters.windows_recalled + counters.windows_granted, 0u);
  EXPECT_EQ(crowd.hosts[1]->endpoint.endpoint().Counts().windows_asked, 0u);
  crowd.ExpectClean();
}

TEST(Windows, ABusyCrowdIsServedInTurnsAndNobodyStarves) {
  constexpr uint32_t kPeers = 60, kMessages = 40;
  Crowd crowd(Nodes(4), ServerOptions(16, 4), ClientOptions(), kPeers);
  for (size_t i = 0; i < kPeers; ++i) crowd.Say(i, kMessages);
  ASSERT_TRUE(crowd.RunUntilReceived(uint64_t{kPeers} * kMessages / 2));
  // Half of all messages have come: of each peer some.
  for (const auto& [index, line] : crowd.talker().lines) EXPECT_GE(line.expected, 4u) << index;
  ASSERT_TRUE(crowd.RunUntilReceived(uint64_t{kPeers} * kMessages));
  for (const auto& [index, line] : crowd.talker().lines) EXPECT_EQ(line.expected, kMessages);
  EXPECT_EQ(crowd.talker().doubles, 0u);
  EXPECT_GT(crowd.Server().windows_recalled, kPeers);
  EXPECT_EQ(crowd.Server().receive_errors, 0u);
  crowd.ExpectClean();
}

// Requests of either side fail, and are carried out or not.
TEST(Windows, NothingIsLostWhateverFails) {
  uint64_t resends = 0;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    constexpr uint32_t kPeers = 12, kMessages = 30;
    Crowd crowd(Nodes(3, seed), ServerOptions(16, 4), ClientOptions(), kPeers);
    base::SeededRandom random(seed);
    uint64_t sum = 0;
    for (int round = 0; round < 10; ++round) {
      const auto host = static_cast<uint32_t>(1 + random.Below(2));
      const bool outward = random.Below(2) == 0;
      crowd.simulation->FailNext({.node = outward ? 0 : host,
                                  .peer = outward ? host : 0,
                                  .skip = static_cast<uint32_t>(random.Below(20)),
                                  .carried_out = random.Below(2) == 0});
      for (size_t i = 0; i < kPeers; ++i) crowd.Say(i, kMessages);
      sum += kPeers * kMessages;
      ASSERT_TRUE(crowd.RunUntilReceived(sum)) << round << crowd.Downs();
    }
    for (const auto& [index, line] : crowd.talker().lines) EXPECT_EQ(line.expected, 10 * kMessages);
    for (auto& host : crowd.hosts) resends += host->endpoint.endpoint().Counts().resends;
    crowd.ExpectClean();
  }
  EXPECT_GT(resends, 20u);
}

TEST(Windows, APeerThatLeavesLeavesItsBuffersAndItsPlaceInTheLine) {
  Crowd crowd(Nodes(3), ServerOptions(16, 4), ClientOptions(), 12);
  for (size_t i = 0; i < 12; ++i) crowd.Say(i, 20);
  // Some with a window, some that wait.
  for (size_t i = 0; i < 12; i += 2) {
    const Simulation::As as(*crowd.simulation, crowd.members[i].host);
    crowd.hosts[crowd.members[i].host]->endpoint.endpoint().Disconnect(crowd.members[i].id);
  }
  ASSERT_TRUE(crowd.RunUntil([&] {
    size_t whole = 0;
    for (const auto& [index, line] : crowd.talker().lines) whole += line.expected == 20 ? 1 : 0;
    return crowd.talker().downs.size() == 6 && whole == 6;
  }));
  EXPECT_EQ(crowd.Server().windows_waiting, 0u);
}

// A reserved message may still be sent under its window.
TEST(Windows, IsReturnedAfterWhatWasReserved) {
  Crowd crowd(Nodes(2), ServerOptions(16, 4), ClientOptions(), 5);
  Endpoint& client = crowd.hosts[1]->endpoint.endpoint();
  std::vector<SendBuffer> reserved;
  for (size_t i = 0; i < 4; ++i) {
    const Simulation::As as(*crowd.simulation, 1);
    auto buffer = client.Reserve(crowd.members[i].id, 64);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    reserved.push_back(*buffer);
  }
  crowd.Say(4, 1);
  ASSERT_TRUE(crowd.RunUntil([&] { return crowd.Server().windows_recalled == 1; }));
  const int64_t end_ns = crowd.simulation->NowNs() + 10'000'000;
  crowd.simulation->After(10'000'000, [] {});
  ASSERT_TRUE(crowd.RunUntil([&] { return crowd.simulation->NowNs() >= end_ns; }));
  EXPECT_EQ(crowd.talker().received, 0u);
  for (size_t i = 0; i < 4; ++i) {
    const Simulation::As as(*crowd.simulation, 1);
    client.Cancel(crowd.members[i].id, reserved[i]);
  }
  ASSERT_TRUE(crowd.RunUntilReceived(1));
  crowd.ExpectClean();
}

// A thousand peers, 64 buffers, half of the peers silent: everything arrives once.
TEST(Windows, AThousandPeersShareSixtyFourBuffers) {
  constexpr uint32_t kPeers = 1'000, kMessages = 4;
  Crowd crowd(Nodes(26, 7), ServerOptions(64, 8), ClientOptions(), kPeers);
  for (size_t i = 0; i < kPeers; i += 2) crowd.Say(i, kMessages);
  ASSERT_TRUE(crowd.RunUntilReceived(uint64_t{kPeers / 2} * kMessages));
  size_t whole = 0;
  for (const auto& [index, line] : crowd.talker().lines) {
    whole += line.expected == kMessages ? 1 : 0;
  }
  EXPECT_EQ(whole, kPeers / 2);
  EXPECT_EQ(crowd.talker().doubles, 0u);
  crowd.ExpectClean();
}

TEST(Windows, TheSameSeedRunsTheSameWay) {
  std::vector<int64_t> ends_ns;
  for (int run = 0; run < 2; ++run) {
    Crowd crowd(Nodes(3, 7), ServerOptions(16, 4), ClientOptions(), 20);
    for (size_t i = 0; i < 20; ++i) crowd.Say(i, 10);
    ASSERT_TRUE(crowd.RunUntilReceived(200));
    ends_ns.push_back(crowd.simulation->NowNs());
  }
  EXPECT_EQ(ends_ns[0], ends_ns[1]);
}

// ---- Peers that break the rules

class WindowOffender : public OffenderTest {
 protected:
  void Connect(uint32_t others) {
    Options options = WithWindow(4);
    options.srq_size = 16;
    StartServer(options, &saw_);
    for (uint32_t i = 0; i < others; ++i) {
      others_.push_back(std::make_unique<RawPeer>(Shared()));
      ConnectOffender(*others_.back());
    }
    ConnectOffender(raw_);
  }
  void Say(peer::Kind kind, peer::WindowWord word) {
    Post(raw_, kind, word);
    Look();
  }
  // The server does not look.
  static void Post(RawPeer& raw, peer::Kind kind, peer::WindowWord word) {
    std::vector<std::byte> bytes = raw.Prefix(kind);
    const auto body = peer::EncodeWindowWord(word);
    bytes.insert(bytes.end(), body.begin(), body.end());
    raw.Send(bytes);
    while (raw.under_way != 0) raw.Step();
  }
  void ExpectEnded(const std::string& cause) {
    ASSERT_EQ(saw_.downs.size(), 1u);
    const absl::Status why = saw_.downs[0].why;
    EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable) << why;
    EXPECT_NE(why.message().find("the peer broke the rules of windows"), std::string::npos) << why;
    EXPECT_NE(why.message().find(cause), std::string::npos) << why;
  }

  Recorder saw_;
  std::vector<std::unique_ptr<RawPeer>> others_;
  RawPeer raw_{Shared()};
};

TEST_F(WindowOffender, IsAcceptedWithoutAWindowAndMayAsk) {
  Connect(4);
  EXPECT_EQ(terms_.credits, 4u);
  EXPECT_EQ(terms_.window, 0u);
  Say(peer::Kind::kWindowAsk, {.number = 1, .count = 0});
  EXPECT_EQ(server_->endpoint->Counts().windows_waiting, 1u);
  EXPECT_EQ(server_->endpoint->Counts().windows_recalled, 1u);
  EXPECT_TRUE(saw_.downs.empty());
}

TEST_F(WindowOffender, IsEndedWhenItSendsWithoutAWindow) {
  Connect(4);
  SendData(raw_, 0, 1);
  Look();
  ASSERT_EQ(saw_.downs.size(), 1u);
  EXPECT_NE(saw_.downs[0].why.message().find("it has sent 1 messages, and was granted 0"),
            std::string::npos)
      << saw_.downs[0].why;
}

TEST_F(WindowOffender, IsEndedWhenItAsksForAWindowThatIsNotTheNext) {
  Connect(0);
  Say(peer::Kind::kWindowAsk, {.number = 2, .count = 0});
  ExpectEnded("it asks for window 2, and has had 0");
}

TEST_F(WindowOffender, IsEndedWhenItReturnsAWindowThatItDoesNotHave) {
  Connect(0);
  Say(peer::Kind::kWindowReturn, {.number = 1, .count = 0});
  ExpectEnded("it returns window 1, which it does not have");
}

TEST_F(WindowOffender, IsEndedWhenItSaysThatItHasSentMoreThanItMay) {
  Connect(0);
  Say(peer::Kind::kWindowReturn, {.number = 0, .count = 5});
  ExpectEnded("it says that it has sent 5 messages: 0 have come, and its window is 4");
}

TEST_F(WindowOffender, IsEndedWhenItSendsMoreThanItSaidWhenItReturnedItsWindow) {
  Connect(0);
  SendData(raw_, 0, 2);
  Say(peer::Kind::kWindowReturn, {.number = 0, .count = 2});
  EXPECT_TRUE(saw_.downs.empty());
  SendData(raw_, 2, 1);
  Look();
  ASSERT_EQ(saw_.downs.size(), 1u);
  EXPECT_NE(saw_.downs[0].why.message().find("it has sent 3 messages, and was granted 2"),
            std::string::npos)
      << saw_.downs[0].why;
}

// It knows the keys, and may go on.
TEST_F(WindowOffender, HasItsKeysReplacedWhenItGoesOnInAWindowThatItHasReturned) {
  Connect(0);
  Post(raw_, peer::Kind::kWindowReturn, {.number = 0, .count = 2});
  SendData(raw_, 0, 4);
  Look();
  ASSERT_EQ(saw_.downs.size(), 1u);
  EXPECT_NE(saw_.downs[0].why.message().find("the peer sent more than it was granted"),
            std::string::npos)
      << saw_.downs[0].why;
  EXPECT_NE(saw_.downs[0].why.message().find("returned its window after 2"), std::string::npos)
      << saw_.downs[0].why;
  EXPECT_EQ(server_->endpoint->Counts().over_credit, 1u);
  while (server_->endpoint->Counts().targets_renewed == 0) server_->endpoint->Poll();  // a command
}

// Its sender keeps the messages until then, and may wait for long.
TEST_F(WindowOffender, HearsWhileItWaitsThatItsMessagesHaveArrived) {
  Connect(3);
  RawPeer before(Shared());
  ConnectOffender(before);
  Post(before, peer::Kind::kWindowAsk, {.number = 1, .count = 0});
  Look();
  SendData(raw_, 0, 1);
  raw_.received.clear();
  Say(peer::Kind::kWindowAsk, {.number = 1, .count = 1});
  EXPECT_EQ(server_->endpoint->Counts().windows_granted, 1u);
  EXPECT_EQ(server_->endpoint->Counts().windows_waiting, 1u);
  raw_.Step();
  uint32_t granted = 0;
  for (const auto& bytes : raw_.received) {
    peer::Prefix prefix;
    ASSERT_TRUE(peer::LoadPrefix(bytes.data(), static_cast<uint32_t>(bytes.size()), &prefix));
    granted = std::max(granted, prefix.granted);
  }
  EXPECT_EQ(granted, 5u);  // one was taken, and the nominal window
}

TEST_F(WindowOffender, IsEndedWhenItGrantsOrRecallsWhatWasNotAskedFor) {
  Connect(0);
  Say(peer::Kind::kWindowGrant, {.number = 1, .count = 4});
  ExpectEnded("it grants window 1 of 4 messages; window 0 was asked for");
}

TEST_F(WindowOffender, IsEndedWhenItRecallsWhatItHasNotGranted) {
  Connect(0);
  Say(peer::Kind::kWindowRecall, {.number = 1, .count = 0});
  ExpectEnded("it recalls window 1, and has granted 0");
}

TEST_F(WindowOffender, MayReturnAndAskAndSayEverythingTwice) {
  Connect(0);
  SendData(raw_, 0, 2);
  for (int i = 0; i < 2; ++i) Say(peer::Kind::kWindowReturn, {.number = 0, .count = 2});
  for (int i = 0; i < 2; ++i) Say(peer::Kind::kWindowAsk, {.number = 1, .count = 2});
  Say(peer::Kind::kWindowReturn, {.number = 0, .count = 2});  // late
  SendData(raw_, 2, 2);
  Look();
  EXPECT_TRUE(saw_.downs.empty()) << saw_.downs[0].why;
  EXPECT_EQ(saw_.messages.size(), 4u);
  EXPECT_EQ(server_->endpoint->Counts().windows_granted, 1u);
}

}  // namespace windows_test
}  // namespace sluice::endpoint
