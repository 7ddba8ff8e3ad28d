// SPDX-License-Identifier: Apache-2.0
//
// A host with two NICs, where routes lead over the one that the endpoint does not use.
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/transport/endpoint/endpoint_pair.h"

namespace sluice::endpoint {
namespace second_device_test {

using ::testing::HasSubstr;

TEST(SecondDevice, ConnectGoesOverTheDeviceOfTheEndpoint) {
  Node server, client;
  const auto port = server.endpoint->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok()) << port.status();
  const PeerId peer = ConnectPair(client, server, *port);
  ASSERT_TRUE(client.recorder.downs.empty());
  ASSERT_TRUE(client.Send(peer, "hello").ok());
  PollUntil({&client, &server}, [&] { return !server.recorder.messages.empty(); });
}

// Both devices are of one network.
TEST(SecondDevice, ClientOnTheOtherDeviceIsServed) {
  Node server;
  const auto port = server.endpoint->Listen("*", 0);
  ASSERT_TRUE(port.ok()) << port.status();
  auto device = device::Device::Open("softdc1", {&softdc::Verbs()});
  ASSERT_TRUE(device.ok()) << device.status();
  base::RealClock clock;
  base::SystemRandom random;
  poller::ThreadCommands commands;
  Recorder recorder;
  auto client = CreateEndpoint({}, **device, clock, random, commands, &recorder);
  ASSERT_TRUE(client.ok()) << client.status();
  ASSERT_TRUE((*client)->Connect("127.0.0.1", *port, clock.NowNs() + 600'000'000'000).ok());
  while (recorder.downs.empty() && (recorder.ups.empty() || server.recorder.ups.empty())) {
    (*client)->Poll();
    server.endpoint->Poll();
  }
  ASSERT_TRUE(recorder.downs.empty()) << recorder.downs[0].why;
  EXPECT_EQ(server.recorder.ups[0].info.address.substr(0, 10), "127.1.0.1:");
  ASSERT_TRUE(server.Send(server.recorder.ups[0].id, "hello").ok());
  while (recorder.messages.empty() && server.recorder.downs.empty()) {
    (*client)->Poll();
    server.endpoint->Poll();
  }
  EXPECT_TRUE(server.recorder.downs.empty()) << server.recorder.downs[0].why;
}

TEST(SecondDevice, RequestOverTheOtherDeviceIsRefusedAtOnceByItsName) {
  Node server, client;
  const auto port = server.endpoint->Listen("*", 0);
  ASSERT_TRUE(port.ok()) << port.status();
  // softdc1 has that address.
  TryConnect(client, server, *port, "127.1.0.1");
  ASSERT_FALSE(client.recorder.downs.empty());
  const absl::Status why = client.recorder.downs[0].why;
  EXPECT_EQ(why.code(), absl::StatusCode::kFailedPrecondition) << why;
  EXPECT_THAT(std::string(why.message()),
              HasSubstr("the request came over softdc1:1, the server uses softdc0:1"));
  EXPECT_THAT(std::string(why.message()), HasSubstr("--device"));
}

}  // namespace second_device_test
}  // namespace sluice::endpoint
