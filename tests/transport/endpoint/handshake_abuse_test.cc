// SPDX-License-Identifier: Apache-2.0
//
// An endpoint against the other side of a connection that says wrong things in its handshake.
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/cm/raw_connector.h"
#include "tests/transport/endpoint/endpoint_pair.h"
#include "transport/base/error.h"
#include "transport/peer/handshake.h"

namespace sluice::endpoint {
namespace {

using cm::RawConnector;

constexpr int64_t kPatienceNs = 20'000'000'000;

void Drive(Node& node, RawConnector& raw, const std::function<bool()>& done) {
  while (!done()) {
    node.endpoint->Poll();
    raw.Poll();
  }
}

peer::Hello PlausibleHello() {
  return {.epoch = 1,
          .data_dctn = 5,
          .control_dctn = 6,
          .data_key = 7,
          .control_key = 8,
          .max_message_bytes = 4096,
          .peer_index = 0,
          .token = 9,
          .credits = 16};
}

// What the endpoint at `port` answers to a request with these bytes.
absl::Status AnswerTo(Node& server, uint16_t port, std::span<const std::byte> hello) {
  RawConnector raw;
  auto id = raw.manager->Connect("127.0.0.1", port, raw.clock.NowNs() + kPatienceNs, hello);
  EXPECT_TRUE(id.ok());
  Drive(server, raw, [&] { return raw.down || raw.up; });
  EXPECT_FALSE(raw.up);
  return peer::DecodeRefusal(raw.reject_data, "server", raw.why);
}

TEST(EndpointListen, GarbageInTheHandshakeIsRefusedWithWords) {
  Node server;
  const auto port = server.endpoint->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok());
  base::SeededRandom random(1);
  for (int i = 0; i < 20; ++i) {
    std::vector<std::byte> bytes(random.Below(peer::kHelloBytes + 1));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Next64());
    const absl::Status why = AnswerTo(server, *port, bytes);
    EXPECT_EQ(why.code(), absl::StatusCode::kInvalidArgument) << why;
    EXPECT_NE(why.message().find("not one of Sluice"), absl::string_view::npos) << why;
  }
  EXPECT_TRUE(server.recorder.ups.empty());
  // And it goes on serving those who speak properly.
  Node client;
  ConnectPair(client, server, *port);
  EXPECT_EQ(client.recorder.ups.size(), 1u);
}

TEST(EndpointListen, AnotherProtocolVersionIsRefusedNamingBoth) {
  Node server;
  const auto port = server.endpoint->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok());
  auto bytes = peer::Encode(PlausibleHello(), peer::HandshakeKind::kHello);
  bytes[4] = std::byte{200};
  const absl::Status why = AnswerTo(server, *port, bytes);
  EXPECT_EQ(why.code(), absl::StatusCode::kFailedPrecondition) << why;
  EXPECT_NE(why.message().find("protocol version mismatch"), absl::string_view::npos) << why;
}

// The same from the other end: an endpoint that connects to something which answers wrong things.
absl::Status ConnectTo(std::span<const std::byte> answer) {
  RawConnector raw;
  raw.answer.assign(answer.begin(), answer.end());
  const auto port = raw.manager->Listen("127.0.0.1", 0);
  EXPECT_TRUE(port.ok()) << port.status();
  Node client;
  auto peer = client.endpoint->Connect("127.0.0.1", *port, client.clock.NowNs() + kPatienceNs);
  EXPECT_TRUE(peer.ok());
  Drive(client, raw, [&] { return !client.recorder.downs.empty(); });
  EXPECT_TRUE(client.recorder.ups.empty());
  return client.recorder.downs[0].why;
}

TEST(EndpointConnect, GarbageInTheAnswer) {
  std::vector<std::byte> garbage(100, std::byte{0x5a});
  const absl::Status why = ConnectTo(garbage);
  EXPECT_EQ(why.code(), absl::StatusCode::kInvalidArgument) << why;
  EXPECT_NE(why.message().find("does not begin with Sluice's magic number"),
            absl::string_view::npos)
      << why;
  EXPECT_NE(why.message().find("check that the program at that port is a Sluice endpoint"),
            absl::string_view::npos);
}

TEST(EndpointConnect, EmptyAnswer) {
  EXPECT_EQ(ConnectTo({}).code(), absl::StatusCode::kInvalidArgument);
}

TEST(EndpointConnect, AnotherProtocolVersionInTheAnswer) {
  auto bytes = peer::Encode(PlausibleHello(), peer::HandshakeKind::kWelcome);
  bytes[4] = std::byte{2};
  const absl::Status why = ConnectTo(bytes);
  EXPECT_EQ(why.code(), absl::StatusCode::kFailedPrecondition) << why;
  EXPECT_NE(why.message().find("this side speaks version 1, the other side version 2"),
            absl::string_view::npos)
      << why;
  EXPECT_NE(why.message().find("run the same release on both sides"), absl::string_view::npos);
}

// A well-formed welcome whose DCT does not exist: the first message finds out.
TEST(EndpointSend, PeerThatNamesADctNobodyHas) {
  RawConnector raw;
  const auto welcome = peer::Encode(PlausibleHello(), peer::HandshakeKind::kWelcome);
  raw.answer.assign(welcome.begin(), welcome.end());
  const auto port = raw.manager->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok());
  Options options;
  options.dead_peer_ns = 50'000'000;
  Node client(options);
  auto peer = client.endpoint->Connect("127.0.0.1", *port, client.clock.NowNs() + kPatienceNs);
  ASSERT_TRUE(peer.ok());
  Drive(client, raw, [&] { return !client.recorder.ups.empty(); });
  ASSERT_TRUE(client.Send(*peer, "anybody there?").ok());
  Drive(client, raw, [&] { return !client.recorder.downs.empty(); });
  const absl::Status& why = client.recorder.downs[0].why;
  EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable) << why;
  EXPECT_NE(why.message().find("IBV_WC_RETRY_EXC_ERR"), absl::string_view::npos) << why;
  EXPECT_NE(why.message().find("DCTN 0x5"), absl::string_view::npos) << why;
  EXPECT_NE(why.message().find("(peer 127.0.0.1:"), absl::string_view::npos) << why;
}

}  // namespace
}  // namespace sluice::endpoint
