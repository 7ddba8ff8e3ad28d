// SPDX-License-Identifier: Apache-2.0
//
// An endpoint that has nothing to do sleeps on one descriptor, without timers, and wakes for each
// thing that happens.
#include <poll.h>

#include <thread>

#include "gtest/gtest.h"
#include "tests/transport/endpoint/endpoint_pair.h"

namespace sluice::endpoint {
namespace sleep_test {

bool Readable(int fd, int timeout_ms) {
  pollfd sleeper = {fd, POLLIN, 0};
  return poll(&sleeper, 1, timeout_ms) == 1;
}

// Nobody asks whether the others live.
Options Quiet() {
  Options options;
  options.keepalive_ns = 0;
  return options;
}

// Until both may sleep: connections leave some work behind.
void Settle(std::initializer_list<Node*> nodes) {
  bool quiet = false;
  while (!quiet) {
    quiet = true;
    for (Node* node : nodes) {
      while (node->endpoint->Poll() != 0) quiet = false;
      if (!node->endpoint->PrepareToSleep() || Readable(node->endpoint->fd(), 0)) quiet = false;
    }
  }
}

TEST(EndpointSleep, IdleConnectedPairHasNoTimerAndNoEvent) {
  Node server(Quiet()), client(Quiet());
  const auto port = server.endpoint->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok());
  const PeerId peer = ConnectPair(client, server, *port);
  ASSERT_TRUE(client.Send(peer, "one").ok());
  PollUntil({&client, &server}, [&] { return !server.recorder.messages.empty(); });
  // Nobody asked for a completion of that message, or of the last one of the handshake: a while later something is sent that does.
  do {
    Settle({&client, &server});
  } while (client.endpoint->SleepLimitNs() != -1 || server.endpoint->SleepLimitNs() != -1);
}

TEST(EndpointSleep, MessageWakesAndSleepingAgainTakesNoPolls) {
  Node server, client;
  const auto port = server.endpoint->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok());
  const PeerId peer = ConnectPair(client, server, *port);
  for (size_t i = 1; i <= 200; ++i) {
    Settle({&client, &server});
    PollUntil({&client, &server}, [&] { return client.Send(peer, "wake").ok(); });
    client.endpoint->Flush();
    while (server.recorder.messages.size() < i) {
      ASSERT_TRUE(Readable(server.endpoint->fd(), -1));
      while (server.endpoint->Poll() != 0) {
      }
      if (!server.endpoint->PrepareToSleep()) server.endpoint->Poll();
    }
  }
}

TEST(EndpointSleep, HandlerIsNotCalledWhilePreparing) {
  Node server, client;
  const auto port = server.endpoint->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok());
  const PeerId peer = ConnectPair(client, server, *port);
  Settle({&client, &server});
  ASSERT_TRUE(client.Send(peer, "early").ok());
  client.endpoint->Flush();
  while (server.endpoint->PrepareToSleep()) {
  }
  EXPECT_TRUE(server.recorder.messages.empty());
  EXPECT_GT(server.endpoint->Poll(), 0);
  EXPECT_EQ(server.recorder.messages.size(), 1u);
}

TEST(EndpointWake, FromAnotherThread) {
  Node node;
  Settle({&node});
  std::thread waker([&] { node.endpoint->Wake(); });
  EXPECT_TRUE(Readable(node.endpoint->fd(), -1));
  waker.join();
  node.endpoint->Poll();
  Settle({&node});
  EXPECT_FALSE(Readable(node.endpoint->fd(), 0));
}

TEST(EndpointSleep, ConnectHasATimerUntilItEnds) {
  Node server(Quiet()), client(Quiet());
  const auto port = server.endpoint->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok());
  auto peer = client.endpoint->Connect("127.0.0.1", *port, client.clock.NowNs() + 3'000'000'000);
  ASSERT_TRUE(peer.ok());
  const int64_t limit_ns = client.endpoint->SleepLimitNs();
  EXPECT_GE(limit_ns, 0);
  EXPECT_LE(limit_ns, 3'000'000'000 + 16'384);
  PollUntil({&client, &server}, [&] { return !client.recorder.ups.empty(); });
  // A completion that is due is watched for as long as it does not come.
  PollUntil({&client, &server}, [&] { return client.endpoint->SleepLimitNs() == -1; });
  EXPECT_EQ(client.endpoint->SleepLimitNs(), -1);
}

}  // namespace sleep_test
}  // namespace sluice::endpoint
