// SPDX-License-Identifier: Apache-2.0
//
// Two endpoints in one process on the software NIC.
#include <poll.h>

#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "tests/transport/endpoint/endpoint_pair.h"
#include "transport/base/error.h"
#include "transport/endpoint/buffer_sizes.h"

namespace sluice::endpoint {
namespace endpoint_test {

TEST(EndpointConnect, BothSidesComeUpAndKnowEachOther) {
  Node server, client;
  const auto port = server.endpoint->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok()) << port.status();
  const PeerId peer = ConnectPair(client, server, *port);
  ASSERT_EQ(client.recorder.ups.size(), 1u);
  ASSERT_EQ(server.recorder.ups.size(), 1u);
  EXPECT_EQ(client.recorder.ups[0].id, peer);
  EXPECT_EQ(client.recorder.ups[0].info.address, "127.0.0.1:" + std::to_string(*port));
  EXPECT_FALSE(client.recorder.ups[0].info.inbound);
  EXPECT_TRUE(server.recorder.ups[0].info.inbound);
  EXPECT_EQ(server.recorder.ups[0].info.max_message_bytes, Options().max_message_bytes);
}

TEST(EndpointSend, ManyMessagesEachWayArriveOnceAndInOrder) {
  Node server, client;
  const auto port = server.endpoint->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok());
  const PeerId peer = ConnectPair(client, server, *port);
  const PeerId back = server.recorder.ups[0].id;
  ExchangeMany(client, peer, server, back);
  EXPECT_TRUE(client.recorder.downs.empty());
}

TEST(EndpointSend, EveryLengthUpToTheLimitArrivesWhole) {
  Options options;
  options.max_message_bytes = 3'000;
  Node server(options), client(options);
  const auto port = server.endpoint->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok());
  const PeerId peer = ConnectPair(client, server, *port);
  for (uint32_t length : {0u, 1u, 15u, 16u, 63u, 64u, 65u, 1'023u, 1'024u, 2'999u, 3'000u}) {
    const std::string text(length, static_cast<char>('a' + length % 26));
    ASSERT_TRUE(client.Send(peer, text).ok()) << length;
    PollUntil({&client, &server}, [&] { return !server.recorder.messages.empty(); });
    EXPECT_EQ(server.recorder.messages.back(), text);
    server.recorder.messages.clear();
  }
}

TEST(EndpointReserve, CreditsRunOutAndComeBack) {
  Options options;
  options.credits_per_peer = 8;
  Node server(options), client(options);
  const auto port = server.endpoint->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok());
  const PeerId peer = ConnectPair(client, server, *port);
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(client.Send(peer, "x").ok());
  client.endpoint->Flush();
  const absl::Status exhausted = client.Send(peer, "one too many");
  EXPECT_EQ(exhausted.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(exhausted.message().find("no credit"), absl::string_view::npos) << exhausted;

  PollUntil({&client, &server}, [&] { return !client.recorder.writable.empty(); });
  EXPECT_EQ(client.recorder.writable[0], peer);
  EXPECT_TRUE(client.Send(peer, "again").ok());
  PollUntil({&client, &server}, [&] { return server.recorder.messages.size() == 9; });
  EXPECT_EQ(server.recorder.messages.back(), "again");
}

TEST(EndpointReserve, CancelGivesCreditAndBufferBack) {
  Options options;
  options.credits_per_peer = 4;
  Node server(options), client(options);
  const auto port = server.endpoint->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok());
  const PeerId peer = ConnectPair(client, server, *port);
  for (int i = 0; i < 10'000; ++i) {
    auto buffer = client.endpoint->Reserve(peer, 10);
    ASSERT_TRUE(buffer.ok()) << i << buffer.status();
    client.endpoint->Cancel(peer, *buffer);
  }
}

TEST(EndpointReserve, MessageOverTheLimitSaysBothSizes) {
  Options small;
  small.max_message_bytes = 1'000;
  Node server(small), client;
  const auto port = server.endpoint->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok());
  const PeerId peer = ConnectPair(client, server, *port);
  EXPECT_EQ(client.recorder.ups[0].info.max_message_bytes, 1'000u);
  EXPECT_TRUE(client.endpoint->Reserve(peer, 1'000).ok());
  const absl::Status status = client.endpoint->Reserve(peer, 1'001).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()),
            "message of 1001 bytes is over the limit of 1000 bytes (peer 127.0.0.1:" +
                std::to_string(*port) +
                "): the peer's max_message_bytes, which is lower than this side's; send less, or "
                "raise max_message_bytes on both sides");
}

TEST(EndpointReserve, UnknownPeerIsUnavailable) {
  Node client;
  EXPECT_EQ(client.endpoint->Reserve({7, 3}, 1).status().code(), absl::StatusCode::kUnavailable);
}

// Waits for the one OnPeerDown of a connect that must fail.
absl::Status ConnectError(Node& client, const std::string& host, uint16_t port,
                          std::initializer_list<Node*> nodes, int64_t timeout_ns = 20'000'000'000) {
  auto peer = client.endpoint->Connect(host, port, client.clock.NowNs() + timeout_ns);
  if (!peer.ok()) return peer.status();
  PollUntil(nodes, [&] { return !client.recorder.downs.empty(); });
  EXPECT_EQ(client.recorder.downs[0].id, *peer);
  EXPECT_TRUE(client.recorder.ups.empty());
  return client.recorder.downs[0].why;
}

int (*device_post)(ibv_srq*, ibv_recv_wr*, ibv_recv_wr**) = nullptr;
uint32_t control_posts = 0;

int CountControl(ibv_srq* srq, ibv_recv_wr* first, ibv_recv_wr** bad) {
  for (const ibv_recv_wr* work = first; work != nullptr; work = work->next) {
    if (work->sg_list->length == kControlBufferBytes) ++control_posts;
  }
  return device_post(srq, first, bad);
}

TEST(EndpointConnect, ControlBuffersArePostedWhenAPeerComes) {
  Node server;
  const auto port = server.endpoint->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok()) << port.status();
  Node client;
  client.endpoint.reset();
  ibv_context_ops& ops = client.device->context()->ops;
  device_post = std::exchange(ops.post_srq_recv, CountControl);
  client.endpoint = *CreateEndpoint(Options(), *client.device, client.clock, client.random,
                                    client.commands, &client.recorder);
  EXPECT_EQ(control_posts, 0u);
  ASSERT_TRUE(client.endpoint->Connect("127.0.0.1", *port, client.clock.NowNs() + 1).ok());
  EXPECT_GE(control_posts, kControlBuffersPerPeer);
  EXPECT_LE(control_posts, 60u);
  client.endpoint.reset();
  ops.post_srq_recv = device_post;
}

TEST(EndpointConnect, HostNameThatDoesNotExist) {
  Node client;
  const absl::Status why = ConnectError(client, "no-such-host.invalid", 1, {&client});
  EXPECT_TRUE(why.code() == absl::StatusCode::kNotFound ||
              why.code() == absl::StatusCode::kUnavailable)
      << why;
  const auto detail = base::DetailOf(why);
  ASSERT_TRUE(detail.has_value()) << why;
  EXPECT_EQ(detail->peer(), "no-such-host.invalid:1");
  EXPECT_FALSE(detail->cause().empty());
  EXPECT_FALSE(detail->remedy().empty());
  EXPECT_TRUE(detail->retry_safe());
}

TEST(EndpointConnect, AddressOfAnotherHost) {
  Node client;
  const absl::Status why = ConnectError(client, "192.0.2.1", 1, {&client});  // RFC 5737: nobody's
  EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable) << why;
  const auto detail = base::DetailOf(why);
  ASSERT_TRUE(detail.has_value());
  EXPECT_EQ(detail->peer(), "192.0.2.1:1");
  EXPECT_NE(why.message().find("can't be reached by RDMA"), absl::string_view::npos) << why;
}

TEST(EndpointConnect, PortWhereNobodyListens) {
  Node server, client;
  const auto port = server.endpoint->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok());
  const uint16_t closed = static_cast<uint16_t>(*port == 65'535 ? *port - 1 : *port + 1);
  const absl::Status why = ConnectError(client, "127.0.0.1", closed, {&client, &server});
  EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(std::string(why.message()),
            "connection refused (peer 127.0.0.1:" + std::to_string(closed) +
                "): no process listens on that port; start the server, or check the port");
}

TEST(EndpointListen, PortInUse) {
  Node first, second;
  const auto port = first.endpoint->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok());
  const absl::Status status = second.endpoint->Listen("127.0.0.1", *port).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists) << status;
  EXPECT_NE(status.message().find("port is in use"), absl::string_view::npos);
  EXPECT_EQ(base::DetailOf(status)->peer(), "127.0.0.1:" + std::to_string(*port));
}

TEST(EndpointConnect, ServerThatIsFullSaysSo) {
  Options one;
  one.max_peers = 1;
  Node server(one), first, second;
  const auto port = server.endpoint->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok());
  ConnectPair(first, server, *port);
  const absl::Status why = ConnectError(second, "127.0.0.1", *port, {&second, &server});
  EXPECT_EQ(why.code(), absl::StatusCode::kResourceExhausted) << why;
  EXPECT_NE(why.message().find("all 1 places for peers are taken"), absl::string_view::npos) << why;
}

TEST(EndpointConnect, SilentServerEndsAtTheDeadline) {
  Node server, client;
  const auto port = server.endpoint->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok());
  // The server never polls.
  const absl::Status why =
      ConnectError(client, "127.0.0.1", *port, {&client}, /*timeout_ns=*/200'000'000);
  EXPECT_EQ(why.code(), absl::StatusCode::kDeadlineExceeded) << why;
  EXPECT_NE(why.message().find("connecting"), absl::string_view::npos) << why;
}

TEST(EndpointDisconnect, BothHandlersAreToldAndTheSecondConnectionWorks) {
  Node server, client;
  const auto port = server.endpoint->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok());
  for (size_t round = 1; round <= 3; ++round) {
    const PeerId peer = ConnectPair(client, server, *port);
    ASSERT_TRUE(client.Send(peer, "last words").ok());
    client.endpoint->Disconnect(peer);
    PollUntil({&client, &server}, [&] {
      return client.recorder.downs.size() == round && server.recorder.downs.size() == round;
    });
    EXPECT_EQ(client.recorder.downs.back().why.code(), absl::StatusCode::kCancelled);
    EXPECT_EQ(server.recorder.downs.back().why.code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(server.recorder.messages.size(), round);  // said before goodbye, delivered before it
    EXPECT_EQ(client.endpoint->Reserve(peer, 1).status().code(), absl::StatusCode::kUnavailable);
  }
}

TEST(EndpointClose, TheOtherSideHearsGoodbye) {
  Node server;
  const auto port = server.endpoint->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok());
  {
    Node client;
    ConnectPair(client, server, *port);
  }
  PollUntil({&server}, [&] { return !server.recorder.downs.empty(); });
  EXPECT_EQ(server.recorder.downs[0].why.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(server.recorder.downs[0].why.message().find("the peer disconnected"),
            absl::string_view::npos)
      << server.recorder.downs[0].why;
}

// The first pass that looks at the descriptors clears a Wake().
TEST(EndpointPoll, SecondPassAfterACommandHasLookedAtTheDescriptors) {
  Node node;
  while (node.endpoint->Poll() != 0) {
  }
  bool ended = false;
  node.commands.Submit([] {}, [&] { ended = true; });
  pollfd command = {node.commands.fd(), POLLIN, 0};
  ASSERT_EQ(poll(&command, 1, -1), 1);
  node.endpoint->Wake();
  node.endpoint->Poll();
  ASSERT_TRUE(ended);
  node.endpoint->Poll();
  pollfd sleeper = {node.endpoint->fd(), POLLIN, 0};
  EXPECT_EQ(poll(&sleeper, 1, 0), 0);
}

TEST(EndpointOptions, EachRangeIsChecked) {
  Options options;
  options.dci_count = 0;
  const absl::Status status = options.Validate();
  EXPECT_EQ(std::string(status.message()),
            "option dci_count is 0: it must be from 1 to 63; choose a value in that range");
  options = {};
  options.credits_per_peer = options.srq_size + 1;
  EXPECT_FALSE(options.Validate().ok());
  options = {};
  options.max_rc_queue_pairs = 65'536;
  EXPECT_FALSE(options.Validate().ok());
  EXPECT_TRUE(Options().Validate().ok());
}

}  // namespace endpoint_test
}  // namespace sluice::endpoint
