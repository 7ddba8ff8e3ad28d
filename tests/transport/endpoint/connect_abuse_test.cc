// SPDX-License-Identifier: Apache-2.0
//
// An endpoint that connects, against servers that say wrong things at each step of the handshake.
#include <atomic>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/endpoint/endpoint_pair.h"
#include "tests/transport/endpoint/raw_peer.h"
#include "transport/base/error.h"
#include "transport/peer/refusal.h"

namespace sluice::endpoint {
namespace connect_abuse_test {

absl::Status ConnectTo(RawPeer& raw, const Options& options, const std::function<void()>& step = {},
                       int64_t timeout_ns = kPatienceNs) {
  const auto port = raw.manager->Listen("127.0.0.1", 0);
  EXPECT_TRUE(port.ok()) << port.status();
  Node client(options);
  auto peer = client.endpoint->Connect("127.0.0.1", *port, client.clock.NowNs() + timeout_ns);
  EXPECT_TRUE(peer.ok());
  Drive(client, raw, [&] {
    if (step) step();
    return !client.recorder.downs.empty();
  });
  EXPECT_TRUE(client.recorder.ups.empty());
  return client.recorder.downs[0].why;
}

TEST(EndpointConnect, GarbageInTheAnswer) {
  RawPeer raw;
  raw.answer.assign(100, std::byte{0x5a});
  const absl::Status why = ConnectTo(raw, {});
  EXPECT_EQ(why.code(), absl::StatusCode::kInvalidArgument) << why;
  EXPECT_NE(why.message().find("does not begin with Sluice's magic number"),
            absl::string_view::npos)
      << why;
  EXPECT_NE(why.message().find("check that the program at that port is a Sluice endpoint"),
            absl::string_view::npos);
}

TEST(EndpointConnect, EmptyAnswer) {
  RawPeer raw;
  EXPECT_EQ(ConnectTo(raw, {}).code(), absl::StatusCode::kInvalidArgument);
}

TEST(EndpointConnect, AnotherProtocolVersionInTheAnswer) {
  RawPeer raw;
  raw.change_welcome = [](std::vector<std::byte>& bytes) { bytes[4] = std::byte{1}; };
  const absl::Status why = ConnectTo(raw, {});
  EXPECT_EQ(why.code(), absl::StatusCode::kFailedPrecondition) << why;
  EXPECT_NE(why.message().find("this side speaks version 6, the other side version 1"),
            absl::string_view::npos)
      << why;
  EXPECT_NE(why.message().find("run the same release on both sides"), absl::string_view::npos);
}

// A server that wants a cookie for ever, whatever it is brought.
TEST(EndpointConnect, CookiesAreBroughtBackAFewTimesAndNoMore) {
  RawPeer raw(Shared());
  std::vector<peer::Greeting> heard;
  raw.refuse = [&]() -> std::vector<std::byte> {
    const auto hello = peer::DecodeHello(raw.request);
    EXPECT_TRUE(hello.ok()) << hello.status();
    heard.push_back(*hello);
    return peer::EncodeRefusal(peer::Cookie{static_cast<std::byte>(heard.size())});
  };
  const absl::Status why = ConnectTo(raw, WithSecret());
  EXPECT_EQ(why.code(), absl::StatusCode::kResourceExhausted) << why;
  EXPECT_NE(why.message().find("asked for a cookie time and again"), absl::string_view::npos)
      << why;
  ASSERT_EQ(heard.size(), 4u);
  EXPECT_FALSE(heard[0].has_cookie);
  for (size_t i = 1; i < heard.size(); ++i) {
    ASSERT_TRUE(heard[i].has_cookie);
    EXPECT_EQ(heard[i].cookie(), peer::Cookie{static_cast<std::byte>(i)}) << "the latest";
    EXPECT_NE(heard[i].nonce, heard[i - 1].nonce);
  }
}

// ---- A welcome that is taken back

std::atomic<rdma_cm_id*> g_accepted;   // the server's, once its welcome is out
std::atomic<bool> g_holds, g_is_held;  // the client's calls for an address handle

const verbs::VerbsApi& AcceptingTable() {
  static const verbs::VerbsApi table = [] {
    verbs::VerbsApi api = softdc::Verbs();
    api.cm_accept = [](rdma_cm_id* id, rdma_conn_param* param) {
      const int result = softdc::Verbs().cm_accept(id, param);
      g_accepted = id;
      return result;
    };
    return api;
  }();
  return table;
}

const verbs::VerbsApi& HoldingTable() {
  static const verbs::VerbsApi table = [] {
    verbs::VerbsApi api = softdc::Verbs();
    api.create_ah = [](ibv_pd* pd, ibv_ah_attr* attr) {
      if (g_holds) g_is_held = true;
      g_holds.wait(true);
      return softdc::Verbs().create_ah(pd, attr);
    };
    return api;
  }();
  return table;
}

// The path of the first welcome is being acquired: a second would take its place in the record.
TEST(EndpointConnect, CookieAfterAWelcomeEndsTheAttempt) {
  g_accepted = nullptr;
  g_holds = g_is_held = false;
  RawPeer raw(Shared(), &AcceptingTable());
  int welcomes = 0;
  raw.change_welcome = [&](std::vector<std::byte>&) { ++welcomes; };
  const auto port = raw.manager->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok());
  std::atomic<int> looks{0};
  Options options = WithSecret();
  options.secrets = [&] { return ++looks, std::vector<std::string>{kSecret}; };
  Node client(options, &HoldingTable());
  g_holds = true;
  auto peer = client.endpoint->Connect("127.0.0.1", *port, client.clock.NowNs() + kPatienceNs);
  ASSERT_TRUE(peer.ok());
  Drive(client, raw, [&] { return g_accepted != nullptr && g_is_held; });
  const int looked = looks;
  const auto refusal = peer::EncodeRefusal(peer::Cookie{std::byte{1}});
  EXPECT_EQ(softdc::Verbs().cm_reject(g_accepted, refusal.data(), refusal.size()), 0);
  Drive(client, raw, [&] { return looks != looked || !client.recorder.downs.empty(); });
  g_holds = false;
  g_holds.notify_all();
  Drive(client, raw, [&] { return welcomes == 2 || !client.recorder.downs.empty(); });
  EXPECT_EQ(welcomes, 1);
  ASSERT_EQ(client.recorder.downs.size(), 1u);
  EXPECT_EQ(client.recorder.downs[0].why.code(), absl::StatusCode::kResourceExhausted)
      << client.recorder.downs[0].why;
}

TEST(EndpointConnect, ServerWithoutDcIsNamed) {
  RawPeer raw(Shared());
  raw.without_dc = true;
  raw.change_welcome = [](std::vector<std::byte>&) {};
  const absl::Status why = ConnectTo(raw, WithSecret());
  EXPECT_EQ(why.code(), absl::StatusCode::kFailedPrecondition) << why;
  EXPECT_NE(why.message().find("the server has no DC transport"), absl::string_view::npos) << why;
}

TEST(EndpointConnect, ServerWithoutTheSecretIsNotTrusted) {
  RawPeer open;
  open.change_welcome = [](std::vector<std::byte>&) {};
  const absl::Status without = ConnectTo(open, WithSecret());
  EXPECT_EQ(without.code(), absl::StatusCode::kUnauthenticated) << without;
  EXPECT_NE(without.message().find("it goes without a secret"), absl::string_view::npos) << without;

  RawPeer guessing(Shared(kOther));  // and says that it is the one it was asked with
  guessing.change_welcome = [&](std::vector<std::byte>& bytes) {
    std::copy_n(guessing.request.begin() + 16, 4, bytes.begin() + 16);
  };
  const absl::Status wrong = ConnectTo(guessing, WithSecret());
  EXPECT_EQ(wrong.code(), absl::StatusCode::kUnauthenticated) << wrong;
  EXPECT_NE(wrong.message().find("has not proved the secret"), absl::string_view::npos) << wrong;
}

// All bytes, bits and lengths: handshake_test.
TEST(EndpointConnect, WrongBytesAndTruncationsOfTheWelcomeAreRefused) {
  for (size_t at = 0; at < peer::kWelcomeBytes; at += 7) {
    RawPeer raw(Shared());
    raw.change_welcome = [&](std::vector<std::byte>& bytes) { bytes[at] ^= std::byte{0x40}; };
    EXPECT_FALSE(ConnectTo(raw, WithSecret()).ok()) << at;
  }
  for (size_t length = 0; length < peer::kWelcomeBytes; length += 15) {
    RawPeer raw(Shared());
    raw.change_welcome = [&](std::vector<std::byte>& bytes) { bytes.resize(length); };
    EXPECT_FALSE(ConnectTo(raw, WithSecret()).ok()) << length;
  }
}

TEST(EndpointConnect, ServerThatNeverAnswersTheProofEndsAtTheDeadline) {
  RawPeer raw(Shared());
  raw.change_welcome = [](std::vector<std::byte>&) {};
  const absl::Status why = ConnectTo(raw, WithSecret(), {}, 2'000'000'000);
  EXPECT_EQ(why.code(), absl::StatusCode::kDeadlineExceeded) << why;
  EXPECT_NE(why.message().find("the server has not answered the proof"), absl::string_view::npos)
      << why;
  ASSERT_EQ(raw.received.size(), 1u);
  raw.TakeProof();  // it was a good one
}

// Lets a client prove itself, then says what `answer` makes.
absl::Status AnswerWith(RawPeer& raw, const std::function<std::vector<std::byte>()>& answer) {
  raw.change_welcome = [](std::vector<std::byte>&) {};
  bool said = false;
  return ConnectTo(raw, WithSecret(), [&] {
    if (said || raw.received.empty()) return;
    said = true;
    raw.TakeProof();
    raw.Send(answer());
  });
}

TEST(EndpointConnect, WrongAnswerToTheProofIsUnauthenticated) {
  RawPeer raw(Shared());
  const absl::Status why = AnswerWith(raw, [&] {
    return raw.Sealed(peer::Kind::kAnswer, raw.Terms(), raw.keys.proof);  // not the answer's key
  });
  EXPECT_EQ(why.code(), absl::StatusCode::kUnauthenticated) << why;
}

TEST(EndpointConnect, AbsurdTermsAreRefused) {
  RawPeer raw(Shared());
  const absl::Status why = AnswerWith(raw, [&] {
    peer::Terms terms = raw.Terms();
    terms.credits = 0;
    return raw.Sealed(peer::Kind::kAnswer, terms, raw.keys.answer);
  });
  EXPECT_EQ(why.code(), absl::StatusCode::kInvalidArgument) << why;
  EXPECT_NE(why.message().find("its credits are absurd"), absl::string_view::npos) << why;
}

TEST(EndpointConnect, RefusalInTheAnswerIsSeen) {
  RawPeer raw(Shared());
  const absl::Status why = AnswerWith(raw, [&] {
    return raw.Sealed(peer::Kind::kAnswer, {.refusal = peer::RefusalCode::kFull}, raw.keys.answer);
  });
  EXPECT_EQ(why.code(), absl::StatusCode::kResourceExhausted) << why;
  EXPECT_NE(why.message().find("the server says so in its answer"), absl::string_view::npos) << why;
}

TEST(EndpointConnect, WhatIsNoAnswerIsDroppedAndTheRightOneStillCounts) {
  RawPeer raw(Shared());
  raw.change_welcome = [](std::vector<std::byte>&) {};
  const auto port = raw.manager->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok());
  Node client(WithSecret());
  auto peer = client.endpoint->Connect("127.0.0.1", *port, client.clock.NowNs() + kPatienceNs);
  ASSERT_TRUE(peer.ok());
  Drive(client, raw, [&] { return !raw.received.empty(); });
  raw.TakeProof();
  for (const auto kind : {peer::Kind::kData, peer::Kind::kCredits, peer::Kind::kGoodbye}) {
    raw.Send(raw.Prefix(kind));
  }
  raw.Send(raw.Sealed(peer::Kind::kProof, raw.Terms(), raw.keys.answer));
  Drive(client, raw, [&] { return raw.under_way == 0; });
  EXPECT_TRUE(client.recorder.ups.empty() && client.recorder.downs.empty());
  raw.Send(raw.Sealed(peer::Kind::kAnswer, raw.Terms(), raw.keys.answer));
  Drive(client, raw, [&] { return !client.recorder.ups.empty(); });
  EXPECT_EQ(client.recorder.ups[0].info.max_message_bytes, 4096u);
}

// All peers share this side's queues, which have one path MTU: a device with another one would refuse what is longer than a packet.
TEST(EndpointConnect, ServerWithAnotherPathMtuIsNotUsed) {
  RawPeer raw(Shared());
  const absl::Status why = AnswerWith(raw, [&] {
    peer::Terms terms = raw.Terms();
    terms.mtu = IBV_MTU_512;
    return raw.Sealed(peer::Kind::kAnswer, terms, raw.keys.answer);
  });
  EXPECT_EQ(why.code(), absl::StatusCode::kFailedPrecondition) << why;
  EXPECT_NE(why.message().find("this side's path MTU is 1024 bytes, the other side's 512"),
            absl::string_view::npos)
      << why;
  EXPECT_NE(why.message().find("limits.path_mtu"), absl::string_view::npos) << why;
}

TEST(EndpointConnect, RefusalForAnotherPathMtuNamesBoth) {
  RawPeer raw(Shared());
  const absl::Status why = AnswerWith(raw, [&] {
    return raw.Sealed(peer::Kind::kAnswer,
                      {.credits = 4096, .refusal = peer::RefusalCode::kPathMtu}, raw.keys.answer);
  });
  EXPECT_EQ(why.code(), absl::StatusCode::kFailedPrecondition) << why;
  EXPECT_NE(why.message().find("this side's path MTU is 1024 bytes, the other side's 4096"),
            absl::string_view::npos)
      << why;
}

TEST(EndpointConnect, ReportSaysWhatWasAgreed) {
  RawPeer raw(Shared());
  raw.change_welcome = [](std::vector<std::byte>&) {};
  const auto port = raw.manager->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok());
  Node client(WithSecret());
  auto peer = client.endpoint->Connect("127.0.0.1", *port, client.clock.NowNs() + kPatienceNs);
  ASSERT_TRUE(peer.ok());
  Drive(client, raw, [&] { return !raw.received.empty(); });
  raw.TakeProof();
  raw.Send(raw.Sealed(peer::Kind::kAnswer, raw.Terms(), raw.keys.answer));
  Drive(client, raw, [&] { return !client.recorder.ups.empty(); });
  const auto report = client.endpoint->Report(*peer);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->mtu_bytes, 1024u);
  EXPECT_EQ(report->reads_in_flight, 1u);
  EXPECT_TRUE(report->authenticated);
}

// Terms that name a data DCT which does not exist: the first message finds out.
TEST(EndpointSend, PeerThatNamesADctNobodyHas) {
  RawPeer raw(Shared());
  raw.change_welcome = [](std::vector<std::byte>&) {};
  const auto port = raw.manager->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok());
  Options options = WithSecret();
  options.dead_peer_ns = 50'000'000;
  Node client(options);
  auto peer = client.endpoint->Connect("127.0.0.1", *port, client.clock.NowNs() + kPatienceNs);
  ASSERT_TRUE(peer.ok());
  Drive(client, raw, [&] { return !raw.received.empty(); });
  raw.TakeProof();
  peer::Terms terms = raw.Terms();
  terms.data_dctn = 5;
  raw.Send(raw.Sealed(peer::Kind::kAnswer, terms, raw.keys.answer));
  Drive(client, raw, [&] { return !client.recorder.ups.empty(); });
  ASSERT_TRUE(client.Send(*peer, "anybody there?").ok());
  Drive(client, raw, [&] { return !client.recorder.downs.empty(); });
  const absl::Status& why = client.recorder.downs[0].why;
  EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable) << why;
  EXPECT_NE(why.message().find("IBV_WC_RETRY_EXC_ERR"), absl::string_view::npos) << why;
  EXPECT_NE(why.message().find("DCTN 0x5"), absl::string_view::npos) << why;
  EXPECT_NE(why.message().find("(peer 127.0.0.1:"), absl::string_view::npos) << why;
}

}  // namespace connect_abuse_test
}  // namespace sluice::endpoint
