// SPDX-License-Identifier: Apache-2.0
//
// An endpoint that listens, against clients that say wrong things at each step of the handshake.
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/manual_clock.h"
#include "tests/transport/endpoint/endpoint_pair.h"
#include "tests/transport/endpoint/raw_peer.h"
#include "transport/base/error.h"
#include "transport/peer/refusal.h"

namespace sluice::endpoint {
namespace handshake_abuse_test {

uint16_t ListenOn(Node& server) {
  const auto port = server.endpoint->Listen("127.0.0.1", 0);
  EXPECT_TRUE(port.ok()) << port.status();
  return port.ok() ? *port : 0;
}

// What the endpoint at `port` answers to a request with these bytes, which it must refuse.
absl::Status AnswerTo(Node& server, uint16_t port, peer::Bytes hello) {
  RawPeer raw;
  raw.Connect(port, hello);
  Drive(server, raw, [&] { return raw.down || raw.up; });
  EXPECT_FALSE(raw.up);
  return peer::DecodeRefusal(raw.reject_data, "server", raw.why);
}

// ---- The first message

TEST(EndpointListen, GarbageInTheHandshakeIsRefusedWithWords) {
  Node server;
  const uint16_t port = ListenOn(server);
  base::SeededRandom random(1);
  for (int i = 0; i < 20; ++i) {
    std::vector<std::byte> bytes(random.Below(peer::kHelloBytes + 1));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Next64());
    const absl::Status why = AnswerTo(server, port, bytes);
    EXPECT_EQ(why.code(), absl::StatusCode::kInvalidArgument) << why;
    EXPECT_NE(why.message().find("not one of Sluice"), absl::string_view::npos) << why;
  }
  EXPECT_TRUE(server.recorder.ups.empty());
  EXPECT_TRUE(server.recorder.downs.empty());
  EXPECT_EQ(server.endpoint->Handshakes().garbage, 20u);
  // And it goes on serving those who speak properly.
  Node client;
  ConnectPair(client, server, port);
  EXPECT_EQ(client.recorder.ups.size(), 1u);
  EXPECT_EQ(server.endpoint->Handshakes().completed, 1u);
}

TEST(EndpointListen, AnotherProtocolVersionIsRefusedNamingBoth) {
  Node server;
  const uint16_t port = ListenOn(server);
  peer::HelloMessage bytes = RawPeer().Hello();
  bytes[4] = std::byte{200};
  const absl::Status why = AnswerTo(server, port, bytes);
  EXPECT_EQ(why.code(), absl::StatusCode::kFailedPrecondition) << why;
  EXPECT_NE(why.message().find("protocol version mismatch"), absl::string_view::npos) << why;
}

TEST(EndpointListen, MissingUnknownAndUselessSecretsAreRefusedEachWithItsWords) {
  Node server(WithSecret()), open;
  const uint16_t port = ListenOn(server), open_port = ListenOn(open);
  const auto expect = [](const absl::Status& why, const char* words) {
    EXPECT_EQ(why.code(), absl::StatusCode::kUnauthenticated) << why;
    EXPECT_NE(why.message().find(words), absl::string_view::npos) << why;
    EXPECT_NE(why.message().find("secret_file"), absl::string_view::npos) << why;
  };
  expect(AnswerTo(server, port, RawPeer().Hello()), "the server demands a secret");
  expect(AnswerTo(server, port, RawPeer(Shared(kOther)).Hello()),
         "does not know the client's secret");
  expect(AnswerTo(open, open_port, RawPeer(Shared()).Hello()), "the server has none");
  EXPECT_EQ(server.endpoint->Handshakes().unauthenticated, 2u);
  EXPECT_EQ(open.endpoint->Handshakes().unauthenticated, 1u);
}

// All bytes and bits: handshake_test.
TEST(EndpointListen, WrongBytesOfTheHelloAreRefused) {
  Node server(WithSecret());
  const uint16_t port = ListenOn(server);
  const peer::HelloMessage good = RawPeer(Shared()).Hello();
  uint64_t asked = 0;
  for (size_t at = 0; at < good.size(); at += 4, ++asked) {
    peer::HelloMessage bytes = good;
    bytes[at] ^= std::byte{0x40};
    EXPECT_FALSE(AnswerTo(server, port, bytes).ok()) << at;
  }
  const HandshakeCounts counts = server.endpoint->Handshakes();
  EXPECT_EQ(counts.garbage + counts.unauthenticated, asked);
  EXPECT_EQ(counts.under_way, 0u);
}

// The server's clock stands still: no token comes back.
TEST(EndpointListen, AddressThatFailsTooOftenMustBringACookieAndItsHoldersOfTheSecretGetIn) {
  testing_support::ManualClock time;
  Options options = WithSecret();
  options.failed_handshakes_per_second = 2;
  Node server(options, &softdc::Verbs(), &time);
  const uint16_t port = ListenOn(server);
  for (int i = 0; i < 2; ++i) {
    const absl::Status why = AnswerTo(server, port, RawPeer(Shared(kOther)).Hello());
    EXPECT_EQ(why.code(), absl::StatusCode::kUnauthenticated) << why;
  }
  RawPeer third(Shared(kOther));
  Knock(server, port, third);
  EXPECT_EQ(server.endpoint->Handshakes().asked_again, 1u);
  EXPECT_EQ(server.endpoint->Handshakes().too_often, 1u) << "with a cookie, and without the secret";
  const absl::Status why = peer::DecodeRefusal(third.reject_data, "server", third.why);
  EXPECT_EQ(why.code(), absl::StatusCode::kResourceExhausted) << why;
  EXPECT_NE(why.message().find("from this address failed recently"), absl::string_view::npos)
      << why;
  Node client(WithSecret());
  ConnectPair(client, server, port);
  EXPECT_EQ(client.recorder.ups.size(), 1u);
  EXPECT_EQ(server.endpoint->Handshakes().asked_again, 2u);
  // Whoever says something of another version is told so, however often.
  peer::HelloMessage old = RawPeer().Hello();
  old[4] = std::byte{3};
  const absl::Status version = AnswerTo(server, port, old);
  EXPECT_EQ(version.code(), absl::StatusCode::kFailedPrecondition) << version;
}

// Everybody at an address can have a cookie: it says nothing about a hello that its maker has not sealed with the secret.
TEST(EndpointListen, CookieInAHelloWithAWrongMacCountsForNothing) {
  std::atomic<int> asked{0};
  Options options = WithSecret();
  options.secrets = [&asked] {
    ++asked;
    return std::vector<std::string>{kSecret};
  };
  Node server(options);
  const uint16_t port = ListenOn(server);
  RawPeer thief(Shared());
  thief.without_dc = true;  // never let in without a cookie
  thief.Connect(port, thief.Hello());
  Drive(server, thief, [&] { return thief.up || thief.down; });
  const auto cookie = peer::CookieIn(thief.reject_data);
  ASSERT_TRUE(cookie.has_value()) << thief.why;
  const int before = asked;
  peer::HelloMessage forged = thief.Hello(cookie);
  forged.back() ^= std::byte{1};
  EXPECT_FALSE(AnswerTo(server, port, forged).ok());
  EXPECT_EQ(server.endpoint->Handshakes().unauthenticated, 0u) << "it got as far as the secrets";
  EXPECT_EQ(server.endpoint->Handshakes().asked_again, 2u);
  EXPECT_EQ(asked, before);
}

// A secret that this side has not read yet may be right: the cookie is enough to look.
TEST(EndpointListen, CookieUnderANewSecretCounts) {
  std::atomic<bool> rotated{false};
  Options options = WithSecret();
  options.secrets = [&rotated] {
    std::vector<std::string> texts = {kSecret};
    if (rotated) texts.push_back(kOther);
    return texts;
  };
  Node server(options);
  const uint16_t port = ListenOn(server);
  rotated = true;
  RawPeer client(Shared(kOther));
  client.without_dc = true;
  Knock(server, port, client);
  // The server then disconnects a client without DC, perhaps before this side knows that it is up.
  EXPECT_TRUE(client.welcomed) << client.why;
}

// The hello goes to the endpoint with the fewest peers: another one each time.
TEST(EndpointListen, RecordedHelloCountsOnceForAllThatShareAListener) {
  Options options = WithSecret();
  options.desk = MakeRequestDesk();
  Node first(options), second(options);
  const uint16_t port = ListenOn(first);
  const auto drive = [&](RawPeer& raw) {
    while (!raw.up && !raw.down) {
      first.endpoint->Poll();
      second.endpoint->Poll();
      raw.Step();
    }
  };
  RawPeer honest(Shared()), thief(Shared());
  honest.without_dc = true;
  honest.Connect(port, honest.Hello());
  drive(honest);
  const auto cookie = peer::CookieIn(honest.reject_data);
  ASSERT_TRUE(cookie.has_value()) << honest.why;
  honest.without_dc = false;
  const peer::HelloMessage hello = honest.Hello(cookie);
  honest.Connect(port, hello);
  drive(honest);
  EXPECT_TRUE(honest.up && honest.welcomed) << honest.why;
  thief.Connect(port, hello);
  drive(thief);
  EXPECT_TRUE(peer::CookieIn(thief.reject_data).has_value()) << "it was let in once more";
  EXPECT_EQ(first.endpoint->Handshakes().under_way + second.endpoint->Handshakes().under_way, 1u);
}

// Handshakes that succeed cost nothing in the end.
TEST(EndpointListen, TokenOfAHandshakeThatSucceedsComesBack) {
  testing_support::ManualClock time;
  Options options = WithSecret();
  options.failed_handshakes_per_second = 1;
  Node server(options, &softdc::Verbs(), &time), client(WithSecret());
  const uint16_t port = ListenOn(server);
  for (int i = 0; i < 3; ++i) ConnectPair(client, server, port);
  EXPECT_EQ(server.endpoint->Handshakes().completed, 3u);
  EXPECT_EQ(server.endpoint->Handshakes().asked_again, 0u);
}

// Half of the places are for those who are there now.
TEST(EndpointListen, RecordedHellosGetHalfOfThePlacesAndAreReplayedOnce) {
  Options options = WithSecret();
  options.max_half_open = 4;
  Node server(options);
  const uint16_t port = ListenOn(server);
  const peer::HelloMessage recorded = RawPeer(Shared()).Hello();
  std::vector<std::unique_ptr<RawPeer>> thieves;
  for (int i = 0; i < 6; ++i) {
    thieves.push_back(std::make_unique<RawPeer>());
    thieves.back()->Connect(port, recorded);
    Drive(server, *thieves.back(), [&] { return thieves.back()->up || thieves.back()->down; });
  }
  EXPECT_EQ(server.endpoint->Handshakes().under_way, 2u);
  EXPECT_EQ(server.endpoint->Handshakes().asked_again, 4u);
  RawPeer honest(Shared());
  const peer::HelloMessage with_cookie = Knock(server, port, honest);
  EXPECT_TRUE(honest.up && honest.welcomed) << honest.why;
  EXPECT_EQ(server.endpoint->Handshakes().under_way, 3u);
  // Said once more: recorded a moment ago, from the same address, or a try that the holder of the secret repeats.
  RawPeer again(Shared());
  again.Connect(port, with_cookie);
  Drive(server, again, [&] { return again.up || again.down; });
  const auto cookie = peer::CookieIn(again.reject_data);
  ASSERT_TRUE(cookie.has_value()) << again.why;
  EXPECT_EQ(server.endpoint->Handshakes().under_way, 3u);
  again.Connect(port, again.Hello(cookie));
  Drive(server, again, [&] { return again.up || again.down; });
  EXPECT_TRUE(again.up && again.welcomed) << again.why;
  EXPECT_EQ(server.endpoint->Handshakes().unauthenticated, 0u);
}

TEST(EndpointListen, RecordedHellosLeaveATenantHalfOfItsFreePlaces) {
  Options options;
  options.failed_handshakes_per_second = 1'000'000;
  options.accept_timeout_ns = 600'000'000'000;
  options.tenants.push_back({.name = "red",
                             .secrets = [] { return std::vector<std::string>{kSecret}; },
                             .srq_size = 64,
                             .max_peers = 2});
  Node server(options);
  const uint16_t port = ListenOn(server);
  const peer::HelloMessage recorded = RawPeer(Shared()).Hello();
  RawPeer first, second;
  first.Connect(port, recorded);
  Drive(server, first, [&] { return first.up || first.down; });
  EXPECT_TRUE(first.up);
  second.Connect(port, recorded);
  Drive(server, second, [&] { return second.up || second.down; });
  EXPECT_TRUE(peer::CookieIn(second.reject_data).has_value()) << second.why;
  RawPeer honest(Shared());
  Knock(server, port, honest);
  EXPECT_TRUE(honest.up && honest.welcomed) << honest.why;
}

// ---- Between welcome and proof

// A raw client that has its welcome and is established.
struct HalfOpen {
  explicit HalfOpen(Node& server, uint16_t port, const peer::Secrets& secrets) : raw(secrets) {
    Knock(server, port, raw);
    EXPECT_TRUE(raw.up && raw.welcomed) << raw.why;
  }
  RawPeer raw;
};

TEST(EndpointListen, ClientWithoutDcGetsAWelcomeAndNothingElse) {
  Node server(WithSecret());
  const uint16_t port = ListenOn(server);
  RawPeer client(Shared());
  client.without_dc = true;
  Knock(server, port, client);
  Drive(server, client, [&] { return client.down; });
  EXPECT_TRUE(client.welcomed) << client.why;  // and so the server is proven
  EXPECT_EQ(server.endpoint->Handshakes().without_dc, 1u);
  EXPECT_EQ(server.endpoint->Handshakes().under_way, 0u);
  EXPECT_TRUE(server.recorder.ups.empty());
  // The secret is asked for all the same.
  RawPeer stranger(Shared(kOther));
  stranger.without_dc = true;
  Knock(server, port, stranger);
  EXPECT_TRUE(stranger.down);
  EXPECT_FALSE(stranger.welcomed);
  EXPECT_EQ(server.endpoint->Handshakes().unauthenticated, 1u);
}

// Each would keep a QP number for half a minute, and a device without reserved ones has a thousand.
TEST(EndpointListen, RecordedHellosWithoutDcTakeNoNumbers) {
  Node server(WithSecret());
  const uint16_t port = ListenOn(server);
  RawPeer recorded(Shared());
  recorded.without_dc = true;
  const peer::HelloMessage hello = recorded.Hello();
  for (int i = 0; i < 40; ++i) EXPECT_FALSE(AnswerTo(server, port, hello).ok());
  EXPECT_EQ(server.endpoint->Handshakes().without_dc, 0u);
  const ConnectionCounts counts = server.endpoint->Connections();
  EXPECT_EQ(counts.numbers_live + counts.numbers_quarantined, 0u);
}

TEST(EndpointListen, RightProofBringsThePeerUpAndTheAnswerGivesTerms) {
  Node server(WithSecret());
  HalfOpen client(server, ListenOn(server), Shared());
  EXPECT_EQ(server.endpoint->Handshakes().under_way, 1u);
  EXPECT_TRUE(server.recorder.ups.empty());
  client.raw.Send(client.raw.Proof());
  Drive(server, client.raw, [&] { return !client.raw.received.empty(); });
  ASSERT_EQ(server.recorder.ups.size(), 1u);
  EXPECT_EQ(server.recorder.ups[0].info.max_message_bytes, 4096u);
  const peer::Terms terms = client.raw.TakeAnswer();
  EXPECT_EQ(terms.credits, Options().credits_per_peer);
  EXPECT_EQ(terms.max_message_bytes, Options().max_message_bytes);
  EXPECT_EQ(server.endpoint->Handshakes().under_way, 0u);
}

// All bytes and bits: terms_test.
TEST(EndpointListen, WrongBytesOfTheProofEndTheConnection) {
  Node server(WithSecret());
  const uint16_t port = ListenOn(server);
  const size_t size = peer::kPrefixBytes + peer::kSealedTermsBytes;
  // With the first eight bytes wrong the message is nobody's, and with the next four it says less
  // than a wrong proof: see the next test.
  for (const size_t at : {size_t{8}, size_t{11}, size_t{16}, size_t{40}, size_t{63}, size - 1}) {
    HalfOpen client(server, port, Shared());
    std::vector<std::byte> proof = client.raw.Proof();
    proof[at] ^= std::byte{0x40};
    client.raw.Send(proof);
    Drive(server, client.raw, [&] { return client.raw.down; });
  }
  EXPECT_TRUE(server.recorder.ups.empty());
  EXPECT_TRUE(server.recorder.downs.empty());
  EXPECT_EQ(server.endpoint->Handshakes().unauthenticated, 6u);
  EXPECT_EQ(server.endpoint->Handshakes().under_way, 0u);
}

TEST(EndpointListen, WhatIsNoProofIsDroppedAndTheRightOneStillCounts) {
  Node server(WithSecret());
  HalfOpen client(server, ListenOn(server), Shared());
  RawPeer& raw = client.raw;
  for (const auto kind : {peer::Kind::kData, peer::Kind::kCredits, peer::Kind::kGoodbye}) {
    raw.Send(raw.Prefix(kind));
  }
  raw.Send(raw.Sealed(peer::Kind::kAnswer, raw.Terms(), raw.keys.answer));
  for (size_t length = 0; length < peer::kPrefixBytes; ++length) {
    std::vector<std::byte> cut = raw.Prefix(peer::Kind::kProof);
    cut.resize(length);
    raw.Send(cut);
  }
  std::vector<std::byte> unknown = raw.Proof();
  unknown[12] = std::byte{77};
  raw.Send(unknown);
  std::vector<std::byte> strange = raw.Proof();
  strange[4] ^= std::byte{1};  // another token
  raw.Send(strange);
  Drive(server, raw, [&] { return raw.under_way == 0; });
  EXPECT_FALSE(raw.failed || raw.down);
  EXPECT_TRUE(server.recorder.ups.empty());
  raw.Send(raw.Proof());
  Drive(server, raw, [&] { return !server.recorder.ups.empty(); });
  // Again, now that it is up: nothing happens.
  raw.Send(raw.Proof());
  Drive(server, raw, [&] { return raw.under_way == 0; });
  EXPECT_EQ(server.recorder.ups.size(), 1u);
  EXPECT_TRUE(server.recorder.downs.empty());
}

TEST(EndpointListen, ShortAndLongProofsEndTheConnection) {
  Node server(WithSecret());
  const uint16_t port = ListenOn(server);
  for (const size_t length : {size_t{16}, size_t{17}, size_t{79}, size_t{81}, size_t{128}}) {
    HalfOpen client(server, port, Shared());
    std::vector<std::byte> proof = client.raw.Proof();
    proof.resize(length);
    client.raw.Send(proof);
    Drive(server, client.raw, [&] { return client.raw.down; });
  }
  EXPECT_TRUE(server.recorder.ups.empty());
}

// Somebody who has recorded a whole handshake, and has no secret.
TEST(EndpointListen, RecordedHelloAndProofAreOfNoUse) {
  Node server(WithSecret());
  const uint16_t port = ListenOn(server);
  RawPeer honest(Shared());
  const peer::HelloMessage hello = honest.Hello();
  honest.Connect(port, hello);
  Drive(server, honest, [&] { return honest.up; });
  const std::vector<std::byte> proof = honest.Proof();
  honest.Send(proof);
  Drive(server, honest, [&] { return !server.recorder.ups.empty(); });

  RawPeer thief;  // can't open the welcome; takes index and token from the air, say
  thief.Connect(port, hello);
  Drive(server, thief, [&] { return thief.up || thief.down; });
  ASSERT_TRUE(thief.up);
  EXPECT_FALSE(thief.welcomed);
  EXPECT_NE(thief.response, honest.response);
  EXPECT_EQ(server.endpoint->Handshakes().under_way, 1u);

  // The secret's own holder can't use an old proof either.
  RawPeer again(Shared());
  again.Connect(port, hello);
  Drive(server, again, [&] { return again.up || again.down; });
  ASSERT_TRUE(again.welcomed);
  std::vector<std::byte> stale = again.Prefix(peer::Kind::kProof);
  stale.insert(stale.end(), proof.begin() + peer::kPrefixBytes, proof.end());
  again.Send(stale);
  Drive(server, again, [&] { return again.down; });
  EXPECT_EQ(server.endpoint->Handshakes().unauthenticated, 1u);
  EXPECT_EQ(server.recorder.ups.size(), 1u);
}

TEST(EndpointListen, ClientsThatHaveNotProvedYetAreBounded) {
  Options options = WithSecret();
  options.max_half_open = 2;
  Node server(options);
  const uint16_t port = ListenOn(server);
  HalfOpen first(server, port, Shared()), second(server, port, Shared());
  RawPeer beyond(Shared());
  Knock(server, port, beyond);
  const absl::Status why = peer::DecodeRefusal(beyond.reject_data, "server", beyond.why);
  EXPECT_EQ(why.code(), absl::StatusCode::kResourceExhausted) << why;
  EXPECT_NE(why.message().find("2 handshakes are in progress"), absl::string_view::npos) << why;
  EXPECT_EQ(server.endpoint->Handshakes().full, 1u);
  first.raw.Send(first.raw.Proof());
  Drive(server, first.raw, [&] { return !server.recorder.ups.empty(); });
  HalfOpen third(server, port, Shared());
  EXPECT_EQ(server.endpoint->Handshakes().under_way, 2u);
}

TEST(EndpointListen, ClientThatProvesNothingIsReaped) {
  Options options = WithSecret();
  testing_support::ManualClock time;
  Node server(options, &softdc::Verbs(), &time);
  RawPeer raw(Shared());
  raw.Connect(ListenOn(server), raw.Hello());
  Drive(server, raw, [&] { return raw.up || raw.down; });
  ASSERT_TRUE(raw.up) << raw.why;
  time.Advance(2 * options.accept_timeout_ns);
  Drive(server, raw, [&] { return raw.down; });
  EXPECT_EQ(server.endpoint->Handshakes().unfinished, 1u);
  EXPECT_EQ(server.endpoint->Handshakes().under_way, 0u);
  EXPECT_TRUE(server.recorder.ups.empty() && server.recorder.downs.empty());
}

// What is answered then is nobody's, and the place of that connection may be another's.
TEST(EndpointListen, RequestThatEndsWhileTheSecretsAreReadLeavesNothing) {
  testing_support::ManualClock time;
  std::atomic<bool> hangs{false};
  std::atomic<int> asked{0};
  Options options = WithSecret();
  options.accept_timeout_ns = 1'000'000'000;
  options.secrets = [&] {
    ++asked;
    hangs.wait(true);
    return std::vector<std::string>{kSecret};
  };
  Node server(options, &softdc::Verbs(), &time);
  const uint16_t port = ListenOn(server);
  const int before = asked;
  hangs = true;
  RawPeer first(Shared()), second(Shared());
  first.Connect(port, first.Hello());
  Drive(server, first, [&] { return asked != before; });
  time.Advance(2 * options.accept_timeout_ns);
  Drive(server, first, [&] { return first.down; });
  EXPECT_FALSE(first.welcomed);
  // Most likely in the place that has become free.
  second.Connect(port, second.Hello());
  for (int i = 0; i < 10'000; ++i) {
    server.endpoint->Poll();
    second.Step();
  }
  hangs = false;
  hangs.notify_all();
  Drive(server, second, [&] { return second.up || second.down; });
  EXPECT_TRUE(second.up && second.welcomed) << second.why;
  EXPECT_EQ(server.endpoint->Handshakes().under_way, 1u);
  EXPECT_FALSE(first.welcomed);
}

TEST(EndpointListen, HalfOpenPeersHoldNoReceiveBuffers) {
  Options options = WithSecret();
  options.srq_size = 16;
  options.credits_per_peer = 16;
  Node server(options);
  const uint16_t port = ListenOn(server);
  std::vector<std::unique_ptr<HalfOpen>> idle;
  for (int i = 0; i < 8; ++i) idle.push_back(std::make_unique<HalfOpen>(server, port, Shared()));
  // Each would have got four: the first that proves gets them all the same.
  idle.back()->raw.Send(idle.back()->raw.Proof());
  Drive(server, idle.back()->raw, [&] { return !server.recorder.ups.empty(); });
}

TEST(EndpointListen, ClientsBeyondTheReceiveBuffersAreAcceptedWithoutAWindow) {
  Options options = WithSecret();
  options.srq_size = 16;
  options.credits_per_peer = 16;
  Node server(options);
  const uint16_t port = ListenOn(server);
  std::vector<std::unique_ptr<HalfOpen>> clients;
  for (int i = 0; i < 5; ++i) clients.push_back(std::make_unique<HalfOpen>(server, port, Shared()));
  for (auto& client : clients) {
    client->raw.Send(client->raw.Proof());
    Drive(server, client->raw, [&] { return !client->raw.received.empty(); });
  }
  EXPECT_EQ(server.recorder.ups.size(), 5u);
  const peer::Terms terms = clients[4]->raw.TakeAnswer();
  EXPECT_EQ(terms.refusal, peer::RefusalCode::kNone);
  EXPECT_EQ(terms.credits, 16u);
  EXPECT_EQ(terms.window, 0u);
  EXPECT_EQ(server.endpoint->Handshakes().full, 0u);
}

}  // namespace handshake_abuse_test
}  // namespace sluice::endpoint
