// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/snapshot.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "examples/echo/echo.sluice.h"
#include "middleware/api/in_process.h"
#include "middleware/observe/trace_events.h"

namespace sluice {
namespace snapshot_test {

using examples::echo::EchoClient;
using examples::echo::SayReply;
using examples::echo::SayRequest;

constexpr char kSay[] = "/sluice.examples.echo.Echo/Say";

// "fail" fails, "wait" waits until it is let go, "look" looks at its own server.
class Service final : public examples::echo::EchoServiceBase {
 public:
  absl::Status Say(ServerContext&, const SayRequest& request, SayReply* reply) override {
    if (request.payload() == "fail") return absl::NotFoundError("as asked");
    if (request.payload() == "look") seen = server->Snapshot(10);
    if (request.payload() == "wait") {
      entered.set_value();
      go.get_future().wait();
    }
    reply->set_payload(request.payload());
    return absl::OkStatus();
  }
  Server* server = nullptr;
  ServerSnapshot seen;
  std::promise<void> entered;
  std::promise<void> go;
};

class SnapshotTest : public ::testing::Test {
 protected:
  void Start(const ServerOptions& options = {}) {
    auto world = InProcess::Start({&service_}, options);
    ASSERT_TRUE(world.ok()) << world.status();
    world_ = *std::move(world);
    service_.server = &world_->server();
    auto channel = world_->NewChannel();
    ASSERT_TRUE(channel.ok()) << channel.status();
    channel_ = *std::move(channel);
  }
  absl::StatusCode Say(const std::string& payload) {
    CallContext context(absl::Seconds(60));
    SayRequest request;
    request.set_payload(payload);
    return EchoClient(channel_).Say(context, request).status().code();
  }

  Service service_;
  std::unique_ptr<InProcess> world_;
  std::shared_ptr<Channel> channel_;
};

TEST_F(SnapshotTest, BothSidesCountTheSameCalls) {
  Start();
  EXPECT_EQ(Say("hello"), absl::StatusCode::kOk);
  EXPECT_EQ(Say("hello"), absl::StatusCode::kOk);
  EXPECT_EQ(Say("fail"), absl::StatusCode::kNotFound);
  const ChannelSnapshot client = channel_->Snapshot();
  const ServerSnapshot server = world_->server().Snapshot(10, absl::Seconds(60));
  EXPECT_TRUE(server.fresh);
  EXPECT_EQ(server.calls.requests, 3u);
  EXPECT_EQ(client.calls.calls_ok, 2u);
  EXPECT_EQ(client.state, call::ConnectionState::kUp);
  ASSERT_EQ(client.methods.size(), 1u);
  ASSERT_EQ(server.methods.size(), 1u);
  for (const observe::MethodSnapshot* method : {&client.methods[0], &server.methods[0]}) {
    EXPECT_EQ(method->method, kSay);
    EXPECT_EQ(method->started, 3u);
    EXPECT_EQ(method->ended[0], 2u);
    EXPECT_EQ(method->ended[static_cast<int>(absl::StatusCode::kNotFound)], 1u);
    EXPECT_EQ(method->in_flight(), 0u);
  }
  EXPECT_EQ(client.methods[0].request_bytes, server.methods[0].request_bytes);
  EXPECT_EQ(client.methods[0].reply_bytes, server.methods[0].reply_bytes);
  ASSERT_EQ(server.peers.size(), 1u);
  EXPECT_EQ(server.peers_in_all, 1u);
  EXPECT_FALSE(server.peers[0].address.empty());
}

TEST_F(SnapshotTest, HandlerThatBlocksDoesNotHoldUpItsReader) {
  Start();
  std::thread caller([this] { EXPECT_EQ(Say("wait"), absl::StatusCode::kOk); });
  service_.entered.get_future().wait();
  const ServerSnapshot during = world_->server().Snapshot(0, absl::ZeroDuration());
  EXPECT_FALSE(during.fresh);
  ASSERT_EQ(during.methods.size(), 1u);
  EXPECT_EQ(during.methods[0].in_flight(), 1u);
  service_.go.set_value();
  caller.join();
  const ServerSnapshot after = world_->server().Snapshot(0, absl::Seconds(60));
  EXPECT_TRUE(after.fresh);
  EXPECT_EQ(after.calls.replies_ok, 1u);
}

TEST_F(SnapshotTest, HandlerLooksAtItsOwnServer) {
  Start();
  EXPECT_EQ(Say("look"), absl::StatusCode::kOk);
  EXPECT_TRUE(service_.seen.fresh);
  EXPECT_EQ(service_.seen.peers.size(), 1u);
  EXPECT_EQ(service_.seen.methods.at(0).in_flight(), 1u);
}

TEST_F(SnapshotTest, OfAServerThatHasEndedIsItsLast) {
  Start();
  EXPECT_EQ(Say("hello"), absl::StatusCode::kOk);
  EXPECT_TRUE(world_->server().Shutdown(absl::Seconds(60)).ok());
  const ServerSnapshot snapshot = world_->server().Snapshot(10, absl::Seconds(60));
  EXPECT_TRUE(snapshot.fresh);
  EXPECT_EQ(snapshot.calls.replies_ok, 1u);
}

TEST_F(SnapshotTest, SlowCallsAreKept) {
  ServerOptions options;
  options.slow_call = absl::Microseconds(1);
  Start(options);
  std::thread caller([&] { EXPECT_EQ(Say("wait"), absl::StatusCode::kOk); });
  service_.entered.get_future().wait();
  // The handler is in the call. A call that returns at once may take less than a microsecond.
  const auto since = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - since < std::chrono::microseconds(10)) {
  }
  service_.go.set_value();
  caller.join();
  // The last one is known when the server has looked at its clock again, as it does before it answers this.
  const ServerSnapshot snapshot = world_->server().Snapshot(10, absl::Seconds(60));
  EXPECT_GE(snapshot.slow_calls_in_all, 1u);
  ASSERT_FALSE(snapshot.slow_calls.empty());
  EXPECT_EQ(snapshot.slow_calls.back().method, kSay);
  EXPECT_GE(snapshot.slow_calls.back().took_ns, 1000);
  EXPECT_FALSE(snapshot.slow_calls.back().peer.empty());
}

TEST_F(SnapshotTest, TraceTellsWhatHappened) {
  Start();
  EXPECT_EQ(Say("fail"), absl::StatusCode::kNotFound);
  std::string client, server;
  for (const base::TraceRecord& record : channel_->Trace()) {
    client += std::string(Name(static_cast<observe::TraceEvent>(record.event))) + ", ";
  }
  (void)world_->server().Snapshot(0, absl::Seconds(60));  // its polling thread is past the reply
  for (const base::TraceRecord& record : world_->server().Trace()) {
    server += std::string(Name(static_cast<observe::TraceEvent>(record.event))) + " " +
              std::to_string(record.code) + ", ";
  }
  EXPECT_EQ(client, "peer up, call ended, ");
  EXPECT_EQ(server, "peer up 0, reply 5, ");
}

}  // namespace snapshot_test
}  // namespace sluice
