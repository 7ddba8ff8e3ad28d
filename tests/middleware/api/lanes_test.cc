// SPDX-License-Identifier: Apache-2.0
//
// The lane_* limits of a Channel and a Server, over the software NIC: they reach the endpoint.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "examples/echo/echo.sluice.h"
#include "examples/echo/echo_service.h"
#include "middleware/api/server.h"

namespace sluice {
namespace lanes_test {

using examples::echo::EchoClient;
using examples::echo::SayReply;
using examples::echo::SayRequest;

class LanesTest : public testing::Test {
 protected:
  void Open(const EndpointLimits& limits) {
    ServerOptions server_options;
    server_options.device = "softdc0";
    server_options.limits = limits;
    auto server = Server::Create(server_options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    ASSERT_TRUE(server_->Register(&echo_).ok());
    auto port = server_->Listen("127.0.0.1:0");
    ASSERT_TRUE(port.ok()) << port.status();
    ChannelOptions channel_options;
    channel_options.device = "softdc0";
    channel_options.limits = limits;
    auto channel = Channel::Connect("127.0.0.1:" + std::to_string(*port), channel_options);
    ASSERT_TRUE(channel.ok()) << channel.status();
    channel_ = *channel;
  }

  void Call() {
    SayRequest request;
    SayReply reply;
    request.set_payload("64 bytes or so");
    CallContext context(absl::Seconds(30));
    const absl::Status status = EchoClient(channel_).Say(context, request, &reply);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(reply.payload(), request.payload());
  }

  // Calls until the client has a lane through which replies come.
  bool CallUntilReplyThroughLane() {
    const absl::Time give_up = absl::Now() + absl::Seconds(60);
    while (absl::Now() < give_up && !HasFatalFailure()) {
      Call();
      if (channel_->endpoint_counters().lane_received != 0) return true;
    }
    return false;
  }

  examples::echo::EchoService echo_;
  std::unique_ptr<Server> server_;
  std::shared_ptr<Channel> channel_;
};

TEST_F(LanesTest, WhoIsBusyAfterOneMessageSoonHasALaneOfTheSizeThatWasAskedFor) {
  EndpointLimits limits;
  limits.lane_after_messages = 1;
  limits.lane_memory_bytes = 1 << 20;
  limits.lane_slots = 16;
  limits.lane_slot_bytes = 512;
  Open(limits);
  ASSERT_TRUE(CallUntilReplyThroughLane());
  const endpoint::Counters client = channel_->endpoint_counters();
  EXPECT_EQ(client.lanes, 1u);
  EXPECT_EQ(client.lane_bytes, 16u * 512u);
  // The server has one for the client as well, once its memory is registered on another thread.
  const absl::Time give_up = absl::Now() + absl::Seconds(60);
  while (server_->endpoint_counters().lanes_granted == 0 && absl::Now() < give_up) {
    std::this_thread::yield();
  }
  EXPECT_EQ(server_->endpoint_counters().lanes_granted, 1u);
  ASSERT_TRUE(server_->Shutdown(absl::Seconds(5)).ok());
  EXPECT_GT(server_->endpoint_counters().lane_sent, 0u);
}

TEST_F(LanesTest, OffGrantsNone) {
  EndpointLimits limits;
  limits.lanes = Lanes::kOff;
  limits.lane_after_messages = 1;
  Open(limits);
  for (int i = 0; i < 500 && !HasFatalFailure(); ++i) Call();
  const endpoint::Counters client = channel_->endpoint_counters();
  EXPECT_EQ(client.lanes_granted, 0u);
  EXPECT_EQ(client.lane_bytes, 0u);
  EXPECT_EQ(client.lane_sent, 0u);
  ASSERT_TRUE(server_->Shutdown(absl::Seconds(5)).ok());
  EXPECT_EQ(server_->endpoint_counters().lanes_granted, 0u);
}

TEST_F(LanesTest, NoMemoryGrantsNone) {
  EndpointLimits limits;
  limits.lane_memory_bytes = 0;
  limits.lane_after_messages = 1;
  Open(limits);
  for (int i = 0; i < 500 && !HasFatalFailure(); ++i) Call();
  EXPECT_EQ(channel_->endpoint_counters().lanes_granted, 0u);
}

}  // namespace lanes_test
}  // namespace sluice
