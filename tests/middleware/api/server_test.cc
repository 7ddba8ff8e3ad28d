// SPDX-License-Identifier: Apache-2.0
//
// The life of a Server: registration, listening, shutting down.
#include "middleware/api/server.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "examples/echo/echo.sluice.h"
#include "tests/support/executors.h"
#include "tests/support/fake_stack.h"
#include "tests/support/hold.h"

namespace sluice {
namespace server_test {

using examples::echo::EchoClient;
using examples::echo::EchoServiceBase;
using examples::echo::SayReply;
using examples::echo::SayRequest;
using testing_support::FakeNetwork;
using testing_support::FakeStack;
using testing_support::ManualExecutor;

// Answers when the test says so.
class StuckEcho final : public EchoServiceBase {
 public:
  absl::Status Say(ServerContext&, const SayRequest&, SayReply*) override {
    hold.Wait();
    return absl::OkStatus();
  }
  testing_support::Hold hold;
};

class ServerTest : public ::testing::Test {
 protected:
  std::unique_ptr<Server> MakeServer(const ServerOptions& options = {}) {
    auto server = Server::CreateOn(
        std::make_unique<FakeStack>(&network_, FakeNetwork::Options(), &server_end_), options);
    EXPECT_TRUE(server.ok()) << server.status();
    return *std::move(server);
  }
  // `end` gives up waiting for the handler, and the server ends once the handler has returned.
  void EndWhileAHandlerIsStuck(const std::function<absl::Status(Server&)>& end) {
    StuckEcho stuck;
    auto server = MakeServer();
    ASSERT_TRUE(server->Register(&stuck).ok());
    ASSERT_TRUE(server->Listen("h:7000").ok());
    auto channel = Channel::ConnectOn(
        std::make_unique<FakeStack>(&network_, FakeNetwork::Options()), "h:7000");
    ASSERT_TRUE(channel.ok()) << channel.status();
    absl::Status ended;
    std::thread caller([&] {
      CallContext context = CallContext::NoDeadline();
      ended = EchoClient(*channel).Say(context, SayRequest()).status();
    });
    stuck.hold.WaitUntilHolding();
    EXPECT_EQ(end(*server).code(), absl::StatusCode::kDeadlineExceeded);
    stuck.hold.Release();
    EXPECT_TRUE(server->Shutdown(absl::Seconds(60)).ok());
    caller.join();
    // The handler has ended before the server disconnected.
    EXPECT_TRUE(ended.ok() || absl::IsUnavailable(ended)) << ended;
  }
  FakeNetwork network_;
  testing_support::FakeEndpoint* server_end_ = nullptr;  // of the server made last
  EchoServiceBase echo_;                                 // answers UNIMPLEMENTED
};

TEST_F(ServerTest, PortInUseIsToldAndAnotherOneWorks) {
  auto first = MakeServer();
  auto second = MakeServer();
  ASSERT_TRUE(first->Listen("h:7000").ok());
  EXPECT_EQ(second->Listen("h:7000").status().code(), absl::StatusCode::kAlreadyExists);
  const auto port = second->Listen("h:0");
  ASSERT_TRUE(port.ok()) << port.status();
  EXPECT_NE(*port, 0);
}

TEST_F(ServerTest, RegisterTwiceAndRegisterLateAreRefused) {
  auto server = MakeServer();
  ASSERT_TRUE(server->Register(&echo_).ok());
  EXPECT_EQ(server->Register(&echo_).code(), absl::StatusCode::kAlreadyExists);
  ASSERT_TRUE(server->Listen("h:0").ok());
  EXPECT_EQ(server->Register(&echo_).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(server->Listen("h:0").status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ServerTest, BadAddressIsRefusedAndTheServerStaysUsable) {
  auto server = MakeServer();
  EXPECT_EQ(server->Listen("nonsense").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(server->Listen("h:0").ok());
}

TEST_F(ServerTest, BadOptionsAreRefused) {
  ServerOptions options;
  options.spin = absl::Seconds(5);
  const auto server =
      Server::CreateOn(std::make_unique<FakeStack>(&network_, FakeNetwork::Options()), options);
  EXPECT_EQ(server.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ServerTest, ShutdownBeforeListenAndTwice) {
  auto server = MakeServer();
  EXPECT_TRUE(server->Shutdown(absl::ZeroDuration()).ok());
  EXPECT_TRUE(server->Shutdown(absl::ZeroDuration()).ok());
  EXPECT_EQ(server->Listen("h:0").status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ServerTest, DestructorAloneEndsIt) {
  auto server = MakeServer();
  ASSERT_TRUE(server->Listen("h:0").ok());
  server.reset();
}

TEST_F(ServerTest, ShutdownReturnsThoughAHandlerIsStuck) {
  EndWhileAHandlerIsStuck([](Server& server) { return server.Shutdown(absl::Milliseconds(1)); });
}

TEST_F(ServerTest, DrainBeforeListenAndAfterwards) {
  auto server = MakeServer();
  EXPECT_TRUE(server->Drain(absl::ZeroDuration()).ok());
  EXPECT_EQ(server->Listen("h:0").status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ServerTest, IdleServerDrainsWhileItSleeps) {
  auto server = MakeServer();
  ASSERT_TRUE(server->Listen("h:7000").ok());
  auto channel =
      Channel::ConnectOn(std::make_unique<FakeStack>(&network_, FakeNetwork::Options()), "h:7000");
  ASSERT_TRUE(channel.ok()) << channel.status();
  EXPECT_EQ(server->drain_phase(), call::DrainPhase::kServing);
  server_end_->WaitUntilArmed();
  EXPECT_TRUE(server->Drain(absl::Hours(1)).ok());
  EXPECT_EQ(server->drain_phase(), call::DrainPhase::kDrained);
  EXPECT_TRUE(server->Drain(absl::ZeroDuration()).ok()) << "it has ended";
}

TEST_F(ServerTest, IdleServerEndsWhileItSleeps) {
  auto server = MakeServer();
  ASSERT_TRUE(server->Listen("h:7000").ok());
  server_end_->WaitUntilArmed();
  EXPECT_TRUE(server->Shutdown(absl::Hours(1)).ok());
}

// Nothing arrives while it drains: only the time that has come wakes it.
TEST_F(ServerTest, CallsAreCancelledWhenItIsTimeThoughTheServerSleeps) {
  ManualExecutor later;
  ServerOptions options;
  options.spin = absl::ZeroDuration();
  auto server = MakeServer(options);
  ASSERT_TRUE(server->Register(&echo_, {.executor = &later}).ok());
  ASSERT_TRUE(server->Listen("h:7000").ok());
  auto channel =
      Channel::ConnectOn(std::make_unique<FakeStack>(&network_, FakeNetwork::Options()), "h:7000");
  ASSERT_TRUE(channel.ok()) << channel.status();
  absl::Status ended;
  std::thread caller([&] {
    CallContext context = CallContext::NoDeadline();
    ended = EchoClient(*channel).Say(context, SayRequest()).status();
  });
  later.WaitUntilAsked();
  server->BeginDrain(absl::Milliseconds(40));
  caller.join();
  EXPECT_FALSE(ended.ok());
  later.RunOne();
  EXPECT_TRUE(server->Shutdown(absl::Seconds(60)).ok());
}

TEST_F(ServerTest, DrainReturnsThoughAHandlerIsStuck) {
  EndWhileAHandlerIsStuck([](Server& server) { return server.Drain(absl::Milliseconds(1)); });
}

TEST_F(ServerTest, HandlerSeesItsCaller) {
  class Curious final : public EchoServiceBase {
   public:
    absl::Status Say(ServerContext& context, const SayRequest&, SayReply* reply) override {
      const CallContext onward = CallContext::FromServer(context, absl::Seconds(1));
      reply->set_payload(
          context.peer() + " " + context.method() + " " +
          (onward.deadline_ns() == context.deadline_ns() ? "inherits" : "does not inherit"));
      return absl::OkStatus();
    }
  } curious;
  auto server = MakeServer();
  ASSERT_TRUE(server->Register(&curious).ok());
  ASSERT_TRUE(server->Listen("h:7000").ok());
  auto channel =
      Channel::ConnectOn(std::make_unique<FakeStack>(&network_, FakeNetwork::Options()), "h:7000");
  ASSERT_TRUE(channel.ok()) << channel.status();
  CallContext context(absl::Seconds(60));
  const auto reply = EchoClient(*channel).Say(context, SayRequest());
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->payload(), "local-client /sluice.examples.echo.Echo/Say inherits");
}

}  // namespace server_test
}  // namespace sluice
