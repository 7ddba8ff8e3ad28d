// SPDX-License-Identifier: Apache-2.0
//
// Channels of a runtime that share their connections.
#include "middleware/api/channel_engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "middleware/api/state_change.h"
#include "tests/middleware/api/runtime_world.h"

namespace sluice {
namespace channel_engine_test {

using testing_support::ChatClient;
using testing_support::kHang;
using testing_support::Lasting;
using testing_support::Line;
using testing_support::Text;

class ChannelEngineTest : public testing_support::RuntimeWorld {
 protected:
  size_t PeersOf(size_t server) { return servers_[server]->Snapshot(/*details=*/100).peers_in_all; }
  absl::Status StartSay(const std::shared_ptr<Channel>& channel, const std::string& text,
                        Line* reply, absl::AnyInvocable<void(const absl::Status&) &&> done) {
    return ChatClient(channel).StartSay(forever_, Lasting(text), reply, std::move(done));
  }
  // A channel that has tried to connect once, in vain, and rests.
  std::shared_ptr<Channel> ConnectToNobody(const ChannelOptions& options) {
    auto channel = Channel::ConnectIn(runtime_, "nobody:1", options);
    EXPECT_TRUE(channel.ok()) << channel.status();
    EXPECT_EQ((*channel)->WaitForStateChange(ConnectionState::kConnecting, kHang),
              ConnectionState::kIdle);
    return *std::move(channel);
  }
  static ChannelOptions TriesOnce() {
    ChannelOptions options;
    options.connect_in_background = true;
    options.max_reconnect_attempts = 0;
    return options;
  }
  void EndOneOfTwo() {
    auto a = Connect("a:1");
    auto b = Connect("a:1");
    Line replies[2];
    std::optional<absl::Status> of_a, of_b;
    ASSERT_TRUE(StartSay(a, "wait", &replies[0], [&](const absl::Status& s) { of_a = s; }).ok());
    ASSERT_TRUE(StartSay(b, "wait", &replies[1], [&](const absl::Status& s) { of_b = s; }).ok());
    ASSERT_TRUE(Say(b, "both calls are there").ok());
    a.reset();
    ASSERT_TRUE(of_a.has_value());
    EXPECT_TRUE(absl::IsCancelled(*of_a)) << *of_a;
    EXPECT_NE(of_a->message().find("channel closed"), absl::string_view::npos) << *of_a;
    EXPECT_TRUE(chats_[0]->stopped.WaitFor(kHang)) << "the server was not told";
    EXPECT_TRUE(Say(b, "still here").ok());
    EXPECT_FALSE(of_b.has_value());
    EXPECT_EQ(PeersOf(0), 1u);
    auto c = Connect("a:1");
    EXPECT_TRUE(Say(c, "here, too").ok());
    EXPECT_EQ(PeersOf(0), 1u);
    b.reset();
    ASSERT_TRUE(of_b.has_value());
    EXPECT_TRUE(absl::IsCancelled(*of_b)) << *of_b;
    EXPECT_TRUE(Say(c, "and stays").ok());
  }
};

TEST_F(ChannelEngineTest, ChannelsToOneServerHaveOneConnection) {
  Make();
  const auto a = Connect("a:1"), other = Connect("a:1"), b = Connect("b:1");
  EXPECT_TRUE(Say(a, "one").ok());
  EXPECT_TRUE(Say(other, "two").ok());
  EXPECT_TRUE(Say(b, "three").ok());
  EXPECT_EQ(PeersOf(0), 1u);
  EXPECT_EQ(PeersOf(1), 1u);
  EXPECT_EQ(other->counters().dials, 1u);
  EXPECT_EQ(other->counters().calls_ok, 2u);
}

TEST_F(ChannelEngineTest, ChannelsThatDifferOrWantToHaveTheirOwn) {
  Make();
  const auto a = Connect("a:1");
  ChannelOptions alone;
  alone.share_connections = false;
  ChannelOptions patient;
  patient.retry.max_attempts = 7;
  ChannelOptions logs;
  logs.log = std::make_shared<testing_support::LastWord>(std::make_shared<testing_support::Gate>());
  const auto b = Connect("a:1", alone), c = Connect("a:1", patient), d = Connect("a:1", logs),
             e = Connect("a:1,b:1");
  for (const auto& one : {a, b, c, d, e}) {
    EXPECT_TRUE(Say(one, "x").ok());
    EXPECT_EQ(one->counters().calls_ok, 1u);
  }
  EXPECT_EQ(PeersOf(0), 5u);
}

TEST_F(ChannelEngineTest, ChannelEndsItsOwnCallsOnly) {
  Make();
  EndOneOfTwo();
}

TEST_F(ChannelEngineTest, ChannelOfALoopEndsItsOwnCallsOnly) {
  MakeLoop();
  EndOneOfTwo();
}

TEST_F(ChannelEngineTest, EachChannelAddsRoomForItsCalls) {
  Make();
  ChannelOptions two;
  two.max_outstanding_calls = 2;
  std::vector<std::shared_ptr<Channel>> channels = {Connect("a:1", two)};
  EXPECT_TRUE(Say(channels[0], "hello").ok());
  std::vector<std::unique_ptr<Line>> replies;
  const auto start = [&](const std::shared_ptr<Channel>& channel) {
    replies.push_back(std::make_unique<Line>());
    return StartSay(channel, "wait", replies.back().get(), [](const absl::Status&) {});
  };
  for (size_t i = 1; i <= 5; ++i) {
    EXPECT_TRUE(start(channels[0]).ok()) << i;
    EXPECT_TRUE(start(channels[i - 1]).ok()) << i;
    const absl::Status over = start(channels[0]);
    EXPECT_TRUE(absl::IsResourceExhausted(over)) << over;
    channels.push_back(Connect("a:1", two));
  }
  // A channel that leaves makes room, and its successor needs no more.
  channels.erase(channels.begin() + 1);
  channels.push_back(Connect("a:1", two));
  int more = 0;
  while (start(channels[0]).ok()) ++more;
  EXPECT_EQ(PeersOf(0), 1u);
  EXPECT_EQ(more, 2 + 1);  // of the last channel, and of the one that left: it had started one
}

TEST_F(ChannelEngineTest, ChannelsBeyondTheNumbersOfCallsHaveTheirOwn) {
  testing_support::FakeStack stack(&network_, testing_support::FakeNetwork::Options());
  call::ClientGroup group(stack.clock());
  const auto endpoint = stack.CreateEndpoint({}, {}, {}, stack.log(), group.handler());
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  group.Attach(endpoint->get());
  ChannelEngines engines(&stack, &group);
  ChannelTraits traits;
  traits.engine.max_outstanding_calls = 1u << 16;  // of 1 << 20 numbers
  const auto first = engines.Join("a:1", traits);
  EXPECT_EQ(first.channels, 1u);
  for (uint32_t channels = 2; channels <= 16; ++channels) {
    const auto joined = engines.Join("a:1", traits);
    EXPECT_EQ(joined.engine, first.engine);
    EXPECT_EQ(joined.channels, channels);
  }
  const auto next = engines.Join("a:1", traits);
  EXPECT_NE(next.engine, first.engine);
  EXPECT_EQ(next.channels, 1u);
  for (int i = 0; i < 15; ++i) EXPECT_FALSE(engines.Leave("a:1", first.engine.get()));
  EXPECT_TRUE(engines.Leave("a:1", next.engine.get()));
  EXPECT_TRUE(engines.Leave("a:1", first.engine.get()));
  EXPECT_NE(engines.Join("a:1", traits).engine, first.engine);
}

TEST_F(ChannelEngineTest, CallbackOfAChannelThatEndsStartsNothingThere) {
  Make();
  auto a = Connect("a:1");
  const auto b = Connect("a:1");
  Channel* const raw = a.get();
  Line replies[3];
  std::optional<absl::Status> there, elsewhere, ended;
  std::optional<ConnectionState> watched, again, last;
  raw->StartStateChange(ConnectionState::kUp, kHang, [&](ConnectionState now) { watched = now; });
  ASSERT_TRUE(StartSay(a, "wait", &replies[0], [&](const absl::Status&) {
                CallContext context(kHang);
                there = ChatClient(std::shared_ptr<Channel>(std::shared_ptr<Channel>(), raw))
                            .StartSay(context, Lasting("x"), &replies[1],
                                      [](const absl::Status&) { FAIL(); });
                raw->StartStateChange(ConnectionState::kUp, kHang,
                                      [&](ConnectionState now) { again = now; });
                raw->StartStateChange(ConnectionState::kClosed, kHang,
                                      [&](ConnectionState now) { last = now; });
                EXPECT_EQ(last, ConnectionState::kClosed) << "waits on a channel that ends";
                elsewhere = StartSay(b, "y", &replies[2],
                                     [&](const absl::Status& status) { ended = status; });
              }).ok());
  a.reset();
  ASSERT_TRUE(there.has_value());
  EXPECT_TRUE(absl::IsCancelled(*there)) << *there;
  EXPECT_EQ(watched, ConnectionState::kClosed);
  EXPECT_EQ(again, ConnectionState::kClosed);
  ASSERT_TRUE(elsewhere.has_value() && elsewhere->ok());
  EXPECT_TRUE(b->Drive([&] { return ended.has_value(); }, kHang));
  EXPECT_TRUE(ended->ok()) << *ended;
}

TEST_F(ChannelEngineTest, StreamsOfAChannelThatEndsEnd) {
  Make();
  auto a = Connect("a:1");
  const auto b = Connect("a:1");
  auto of_a = std::make_optional(ChatClient(a).Talk(forever_));
  auto of_b = ChatClient(b).Talk(forever_);
  Line line = Text("hello");
  ASSERT_TRUE(of_a->Write(line) && of_a->Read(&line));
  ASSERT_TRUE(of_b.Write(line) && of_b.Read(&line));
  a.reset();
  EXPECT_FALSE(of_a->Read(&line));
  EXPECT_FALSE(of_a->Write(line));
  EXPECT_TRUE(absl::IsCancelled(of_a->Finish()));
  ASSERT_TRUE(of_b.Write(line) && of_b.Read(&line));
  of_a.reset();
  of_b.WritesDone();
  EXPECT_TRUE(of_b.Finish().ok());
}

TEST_F(ChannelEngineTest, ServersOfASharedConnectionStay) {
  Make();
  const auto a = Connect("a:1"), b = Connect("a:1");
  const absl::Status status = a->SetServers({"b:1"});
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_NE(status.message().find("share_connections"), absl::string_view::npos) << status;
  ChannelOptions alone;
  alone.share_connections = false;
  const auto c = Connect("a:1", alone);
  EXPECT_TRUE(c->SetServers({"b:1"}).ok());
  EXPECT_TRUE(Say(a, "x").ok());
  EXPECT_TRUE(Say(b, "x").ok());
}

// The second of them tries at once, and says how that went.
TEST_F(ChannelEngineTest, SecondChannelToAServerThatIsAwayFails) {
  Make();
  const auto a = ConnectToNobody(TriesOnce());
  EXPECT_EQ(a->counters().dials, 1u);
  const auto same = ConnectToNobody(TriesOnce());
  EXPECT_EQ(a->counters().dials, 2u);
  ChannelOptions waits;
  for (int i = 0; i < 2; ++i) {
    const auto b = Channel::ConnectIn(runtime_, "nobody:1", waits);
    EXPECT_TRUE(absl::IsUnavailable(b.status())) << b.status();
  }
  StartServer("nobody:1");
  EXPECT_TRUE(Channel::ConnectIn(runtime_, "nobody:1", waits).ok());
}

TEST_F(ChannelEngineTest, ChannelThatACallbackMakesDialsInTheNextPass) {
  Make();
  const auto a = ConnectToNobody(TriesOnce());
  const auto b = Connect("b:1");
  Line reply;
  std::shared_ptr<Channel> made;
  uint64_t dials = 0;
  testing_support::Gate done;
  ASSERT_TRUE(StartSay(b, "x", &reply, [&](const absl::Status&) {
                made = *Channel::ConnectIn(runtime_, "nobody:1", TriesOnce());
                dials = made->counters().dials;
                done.Open();
              }).ok());
  ASSERT_TRUE(done.WaitFor(kHang));
  EXPECT_EQ(dials, 1u);
  EXPECT_TRUE(made->Drive([&] { return made->counters().dials == 2; }, kHang));
}

TEST_F(ChannelEngineTest, ChannelsEndInEachOrderWithCallsUnderWay) {
  std::array<int, 3> order = {0, 1, 2};
  do {
    Make();
    std::vector<std::shared_ptr<Channel>> channels;
    std::array<Line, 3> replies;
    std::array<int, 3> ended = {};
    for (size_t i = 0; i < 3; ++i) {
      channels.push_back(Connect("a:1"));
      ASSERT_TRUE(StartSay(channels[i], "wait", &replies[i], [&ended, i](const absl::Status& s) {
                    EXPECT_TRUE(absl::IsCancelled(s)) << s;
                    ++ended[i];
                  }).ok());
    }
    for (const int one : order) {
      channels[one].reset();
      EXPECT_EQ(ended[one], 1);
    }
    EXPECT_EQ(ended, (std::array<int, 3>{1, 1, 1}));
    runtime_.reset();
  } while (std::next_permutation(order.begin(), order.end()));
}

// The callback of a call on one of them drops both.
TEST_F(ChannelEngineTest, CallbackDropsTheChannelsThatShare) {
  for (int round = 0; round < 20; ++round) {
    Make();
    auto a = Connect("a:1");
    auto b = Connect("a:1");
    Line replies[2];
    std::optional<absl::Status> of_b;
    testing_support::Gate gone;
    ASSERT_TRUE(StartSay(b, "wait", &replies[0], [&](const absl::Status& s) {
                  of_b = s;
                  gone.Open();
                }).ok());
    ASSERT_TRUE(StartSay(a, "x", &replies[1], [&](const absl::Status&) {
                  round % 2 == 0 ? a.reset() : b.reset();
                  round % 2 == 0 ? b.reset() : a.reset();
                }).ok());
    EXPECT_TRUE(gone.WaitFor(kHang));
    EXPECT_TRUE(absl::IsCancelled(*of_b)) << *of_b;
    runtime_.reset();
  }
}

}  // namespace channel_engine_test
}  // namespace sluice
