// SPDX-License-Identifier: Apache-2.0
//
// Peers that say nothing, on a clock that stands still unless a test moves it.
#include <algorithm>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/manual_clock.h"
#include "tests/transport/endpoint/raw_peer.h"

namespace sluice::endpoint {
namespace keepalive_test {

using testing_support::ManualClock;

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kKeepaliveNs = 30 * kSecondNs;
constexpr int64_t kRoundNs = kKeepaliveNs / 3;
constexpr int64_t kStepNs = kRoundNs / 64;

Options Keeping(int64_t keepalive_ns = kKeepaliveNs) {
  Options options;
  options.keepalive_ns = keepalive_ns;
  // Longer than any test here: RDMA_CM takes real time to say that a connection is established.
  options.accept_timeout_ns = 600 * kSecondNs;
  return options;
}

// More passes than lie between two looks at the timers, or at descriptors.
void Settle(std::initializer_list<Node*> nodes) {
  constexpr int kPasses = 80;
  for (int i = 0; i < kPasses; ++i) {
    for (Node* node : nodes) node->endpoint->Poll();
  }
}

// What happens within this time, in steps as small as the sweep's.
void Pass(ManualClock& time, int64_t ns, std::initializer_list<Node*> nodes) {
  for (int64_t passed_ns = 0; passed_ns < ns; passed_ns += kStepNs) {
    time.Advance(kStepNs);
    Settle(nodes);
  }
}

// The same for two that are connected: time moves on once each has read what the other has sent.
void PassTogether(ManualClock& time, int64_t ns, Node& a, Node& b) {
  const auto sent = [](Node& node) {
    return node.endpoint->Counts().probes + node.endpoint->Counts().credit_messages;
  };
  for (int64_t passed_ns = 0; passed_ns < ns; passed_ns += kStepNs) {
    time.Advance(kStepNs);
    Settle({&a, &b});
    while (a.endpoint->Counts().control_received != sent(b) ||
           b.endpoint->Counts().control_received != sent(a)) {
      Settle({&a, &b});
    }
  }
}

int CountOf(const RawPeer& raw, peer::Kind kind) {
  return static_cast<int>(
      std::count_if(raw.received.begin(), raw.received.end(), [&](const auto& bytes) {
        peer::Prefix prefix;
        return peer::LoadPrefix(bytes.data(), bytes.size(), &prefix) && prefix.kind == kind;
      }));
}

// A peer made by hand that is up at the endpoint and says nothing.
struct UpRaw {
  UpRaw(Node& server, uint16_t port) {
    const size_t ups = server.recorder.ups.size();
    raw.Connect(port, raw.Hello());
    Drive(server, raw, [&] { return raw.welcomed && raw.up; });
    raw.Send(raw.Proof());
    Drive(server, raw, [&] { return server.recorder.ups.size() > ups; });
    Drive(server, raw, [&] { return CountOf(raw, peer::Kind::kAnswer) == 1; });
    raw.target.key[1] = raw.TakeAnswer().control_key;
    raw.received.clear();
  }

  RawPeer raw;
};

uint16_t ListenOn(Node& server) { return *server.endpoint->Listen("127.0.0.1", 0); }

TEST(Keepalive, IdlePairStaysUpForOneQuestionARoundAtMost) {
  ManualClock time;
  Node server(Keeping(), &softdc::Verbs(), &time), client(Keeping(), &softdc::Verbs(), &time);
  const PeerId peer = ConnectPair(client, server, ListenOn(server));
  constexpr int kRounds = 40;
  PassTogether(time, kRounds * kRoundNs, client, server);
  EXPECT_TRUE(server.recorder.downs.empty() && client.recorder.downs.empty());
  const uint64_t probes = client.endpoint->Counts().probes + server.endpoint->Counts().probes;
  const uint64_t answers =
      client.endpoint->Counts().credit_messages + server.endpoint->Counts().credit_messages;
  EXPECT_EQ(answers, probes);
  EXPECT_LE(probes, static_cast<uint64_t>(kRounds) + 2);
  EXPECT_GE(probes, static_cast<uint64_t>(kRounds) / 2 - 2);
  ASSERT_TRUE(client.Send(peer, "still here").ok());
  PollUntil({&client, &server}, [&] { return !server.recorder.messages.empty(); });
}

TEST(Keepalive, PeerThatSpeaksIsNotAsked) {
  ManualClock time;
  Node server(Keeping(), &softdc::Verbs(), &time), client(Keeping(), &softdc::Verbs(), &time);
  const PeerId peer = ConnectPair(client, server, ListenOn(server));
  for (int i = 1; i <= 50; ++i) {
    const size_t wanted = server.recorder.messages.size() + 1;
    PollUntil({&client, &server}, [&] { return client.Send(peer, "news").ok(); });
    PollUntil({&client, &server}, [&] { return server.recorder.messages.size() >= wanted; });
    PassTogether(time, kRoundNs / 2, client, server);
  }
  EXPECT_EQ(server.endpoint->Counts().probes, 0u);
  EXPECT_TRUE(server.recorder.downs.empty() && client.recorder.downs.empty());
}

TEST(Keepalive, PeerThatNeverAnswersIsEndedInTimeAndNotBefore) {
  ManualClock time;
  Node server(Keeping(), &softdc::Verbs(), &time);
  UpRaw silent(server, ListenOn(server));
  const uint64_t credits = server.endpoint->Counts().credit_messages;
  silent.raw.Send(silent.raw.Prefix(peer::Kind::kProbe));  // its last word
  Drive(server, silent.raw, [&] { return server.endpoint->Counts().credit_messages > credits; });
  const int64_t heard_ns = time.NowNs();
  while (server.recorder.downs.empty()) {
    ASSERT_LT(time.NowNs() - heard_ns, 2 * kKeepaliveNs);
    Pass(time, kStepNs, {&server});
    silent.raw.Step();
  }
  EXPECT_GE(time.NowNs() - heard_ns, 2 * kRoundNs - 2 * kStepNs);
  EXPECT_LE(time.NowNs() - heard_ns, kKeepaliveNs + 2 * kStepNs);
  const absl::Status& why = server.recorder.downs[0].why;
  EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable) << why;
  EXPECT_NE(why.message().find("did not answer a keepalive probe"), absl::string_view::npos) << why;
  EXPECT_NE(why.message().find("(peer 127.0.0.1:"), absl::string_view::npos) << why;
  EXPECT_EQ(server.endpoint->Counts().probes, 1u);
  EXPECT_EQ(server.endpoint->Counts().silent_peers, 1u);
  Drive(server, silent.raw, [&] { return silent.raw.down; });  // and is told, should it live
}

TEST(Keepalive, PeerThatAnswersEachQuestionStays) {
  ManualClock time;
  Node server(Keeping(), &softdc::Verbs(), &time);
  UpRaw dull(server, ListenOn(server));
  int answered = 0;
  for (int i = 0; i < 20 * 64; ++i) {
    Pass(time, kStepNs, {&server});
    if (static_cast<int>(server.endpoint->Counts().probes) == answered) continue;
    ++answered;
    while (CountOf(dull.raw, peer::Kind::kProbe) != answered) dull.raw.Step();
    dull.raw.Send(dull.raw.Prefix(peer::Kind::kCredits));
    Drive(server, dull.raw, [&] { return dull.raw.under_way == 0; });
  }
  EXPECT_GE(answered, 9);
  EXPECT_TRUE(server.recorder.downs.empty());
}

TEST(Keepalive, AnswerThatWasNotReadYetCounts) {
  ManualClock time;
  Node server(Keeping(), &softdc::Verbs(), &time);
  UpRaw other(server, ListenOn(server));
  while (server.endpoint->Counts().probes == 0) Pass(time, kStepNs, {&server});
  // It answers, while this side is away for long.
  other.raw.Send(other.raw.Prefix(peer::Kind::kCredits));
  while (other.raw.under_way != 0) other.raw.Step();
  time.Advance(5 * kKeepaliveNs);
  Settle({&server});
  EXPECT_TRUE(server.recorder.downs.empty());
}

TEST(Keepalive, ProbeIsAnsweredAlsoWhereNobodyIsAsked) {
  ManualClock time;
  Node server(Keeping(0), &softdc::Verbs(), &time);
  UpRaw other(server, ListenOn(server));
  do Settle({&server});
  while (!server.endpoint->PrepareToSleep() || server.endpoint->SleepLimitNs() != -1);
  for (int i = 1; i <= 5; ++i) {
    other.raw.Send(other.raw.Prefix(peer::Kind::kProbe));
    Drive(server, other.raw, [&] { return CountOf(other.raw, peer::Kind::kCredits) == i; });
  }
  Pass(time, 10 * kKeepaliveNs, {&server});
  EXPECT_TRUE(server.recorder.downs.empty());
  EXPECT_EQ(server.endpoint->Counts().probes, 0u);
}

TEST(Keepalive, PeerWhoseQueueIsGoneFailsWithTheQuestion) {
  ManualClock time;
  Options options = Keeping();
  options.dead_peer_ns = 50'000'000;
  Node server(options, &softdc::Verbs(), &time);
  UpRaw lost(server, ListenOn(server));
  lost.raw.control.reset();  // RDMA_CM says nothing
  while (server.endpoint->Counts().probes == 0) Pass(time, kStepNs, {&server});
  PollUntil({&server}, [&] { return !server.recorder.downs.empty(); });
  EXPECT_EQ(server.recorder.downs[0].why.code(), absl::StatusCode::kUnavailable)
      << server.recorder.downs[0].why;
  EXPECT_EQ(server.endpoint->Counts().silent_peers, 0u);
}

TEST(Keepalive, ConnectionThatOnlyOneSideRemembersEndsThereTooAndIsMadeAgain) {
  ManualClock server_time, client_time;
  verbs::VerbsApi api = softdc::Verbs();
  api.cm_disconnect = [](rdma_cm_id*) { return 0; };  // is lost on its way
  Node server(Keeping(), &api, &server_time);
  Node client(Keeping(), &softdc::Verbs(), &client_time);
  const uint16_t port = ListenOn(server);
  const PeerId peer = ConnectPair(client, server, port);
  Pass(server_time, kKeepaliveNs, {&server});  // the client is away
  ASSERT_EQ(server.recorder.downs.size(), 1u);
  // It comes back, and does not know.
  ASSERT_TRUE(client.Send(peer, "hello?").ok());
  while (server.endpoint->Counts().dropped_unknown == 0) Settle({&client, &server});
  EXPECT_TRUE(client.recorder.downs.empty());
  EXPECT_TRUE(server.recorder.messages.empty());
  Pass(client_time, kKeepaliveNs + kRoundNs, {&client, &server});
  ASSERT_EQ(client.recorder.downs.size(), 1u);
  EXPECT_NE(client.recorder.downs[0].why.message().find("its goodbye was lost"),
            absl::string_view::npos)
      << client.recorder.downs[0].why;
  const PeerId again = ConnectPair(client, server, port);
  EXPECT_NE(again, peer);
  ASSERT_TRUE(client.Send(again, "hello!").ok());
  PollUntil({&client, &server}, [&] { return !server.recorder.messages.empty(); });
  EXPECT_EQ(server.recorder.messages[0], "hello!");
}

TEST(Keepalive, NobodyIsLookedAtOnceTheLastPeerHasGone) {
  ManualClock time;
  Node server(Keeping(), &softdc::Verbs(), &time);
  {
    UpRaw other(server, ListenOn(server));
    EXPECT_GT(server.endpoint->SleepLimitNs(), -1);
    other.raw.Send(other.raw.Prefix(peer::Kind::kGoodbye));
    Drive(server, other.raw, [&] { return !server.recorder.downs.empty(); });
    Drive(server, other.raw, [&] { return other.raw.down; });
  }
  // The connection's own timers, too, come to their end.
  Pass(time, 10 * kKeepaliveNs, {&server});
  EXPECT_EQ(server.endpoint->SleepLimitNs(), -1);
}

}  // namespace keepalive_test
}  // namespace sluice::endpoint
