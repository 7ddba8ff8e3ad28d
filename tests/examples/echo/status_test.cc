// SPDX-License-Identifier: Apache-2.0
//
// What goes wrong for users, through the public API on softdc: each a status that says what
// happened, to whom, why likely, and what to do.
#include <gmock/gmock.h>
#include <signal.h>

#include "examples/echo/echo_service.h"
#include "middleware/api/server.h"
#include "tests/examples/echo/echo_fixture.h"
#include "transport/base/error.h"

namespace sluice::examples::echo {
namespace status_test {

using ::testing::AnyOf;
using ::testing::HasSubstr;

// All four parts are there, for people and for programs.
void ExpectTeaches(const absl::Status& status, const std::string& whom) {
  const auto detail = base::DetailOf(status);
  ASSERT_TRUE(detail.has_value()) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(whom));
  EXPECT_FALSE(detail->layer().empty()) << status;
  EXPECT_FALSE(detail->operation().empty()) << status;
  EXPECT_FALSE(detail->cause().empty()) << status;
  EXPECT_FALSE(detail->remedy().empty()) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(detail->cause()));
  EXPECT_THAT(std::string(status.message()), HasSubstr(detail->remedy()));
}

ServerOptions SoftServer() {
  ServerOptions options;
  options.device = "softdc0";
  return options;
}

TEST_F(EchoTest, ConnectToAHostWithoutAName) {
  const auto channel = Channel::Connect("no-such-host.invalid:7471", Options());
  ASSERT_FALSE(channel.ok());
  EXPECT_THAT(channel.status().code(),
              AnyOf(absl::StatusCode::kUnavailable, absl::StatusCode::kNotFound));
  ExpectTeaches(channel.status(), "no-such-host.invalid:7471");
}

TEST_F(EchoTest, ConnectToAHostThatIsElsewhere) {
  // RFC 5737: an address that is nobody's.
  const auto channel = Channel::Connect("198.51.100.7:7471", Options());
  ASSERT_FALSE(channel.ok());
  EXPECT_EQ(channel.status().code(), absl::StatusCode::kUnavailable);
  ExpectTeaches(channel.status(), "198.51.100.7:7471");
}

TEST_F(EchoTest, ConnectToAPortWhereNobodyListens) {
  StartServer();
  server_.reset();
  const auto channel = Channel::Connect(address_, Options());
  ASSERT_FALSE(channel.ok());
  EXPECT_EQ(channel.status().code(), absl::StatusCode::kUnavailable);
  ExpectTeaches(channel.status(), address_);
}

TEST_F(EchoTest, ListenAtAPortInUse) {
  StartServer();
  auto server = Server::Create(SoftServer());
  ASSERT_TRUE(server.ok()) << server.status();
  const auto port = (*server)->Listen(address_);
  ASSERT_FALSE(port.ok());
  EXPECT_THAT(port.status().code(),
              AnyOf(absl::StatusCode::kAlreadyExists, absl::StatusCode::kUnavailable,
                    absl::StatusCode::kFailedPrecondition));
  ExpectTeaches(port.status(), address_);
}

TEST_F(EchoTest, ListenAtAnAddressOfAnotherHost) {
  auto server = Server::Create(SoftServer());
  ASSERT_TRUE(server.ok()) << server.status();
  const auto port = (*server)->Listen("198.51.100.7:0");
  ASSERT_FALSE(port.ok());
  ExpectTeaches(port.status(), "198.51.100.7");
}

TEST_F(EchoTest, CallOfAnUnknownMethod) {
  StartServer();
  auto channel = MustConnect();
  static constexpr Method kShout("/sluice.examples.echo.Echo/Shout");
  CallContext context(kLong);
  SayReply reply;
  const absl::Status status = channel->Call(kShout, context, SayRequest(), &reply);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  ExpectTeaches(status, address_);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/sluice.examples.echo.Echo/Shout"));
  EXPECT_TRUE(Say(channel, "still there").ok());
}

// The lower limit of both ends holds.
ChannelOptions WithLimit(ChannelOptions options) {
  options.limits.max_large_message_bytes = 20'003;
  return options;
}

TEST_F(EchoTest, RequestOverTheLimit) {
  StartServer();
  auto channel = MustConnect(WithLimit(Options()));
  const absl::Status status = Say(channel, std::string(20'000, 'x'));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  ExpectTeaches(status, address_);
  // The message's size, and the limit without the header.
  EXPECT_THAT(std::string(status.message()), HasSubstr("20004"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("20003"));
  EXPECT_TRUE(Say(channel, "still there").ok());
}

class LongWinded final : public EchoServiceBase {
 public:
  absl::Status Say(ServerContext&, const SayRequest&, SayReply* reply) override {
    reply->set_payload(std::string(20'000, 'y'));
    return absl::OkStatus();
  }
};

TEST_F(EchoTest, ReplyOverTheLimit) {
  LongWinded service;
  auto server = Server::Create(SoftServer());
  ASSERT_TRUE(server.ok()) << server.status();
  ASSERT_TRUE((*server)->Register(&service).ok());
  const auto port = (*server)->Listen("127.0.0.1:0");
  ASSERT_TRUE(port.ok()) << port.status();
  address_ = absl::StrCat("127.0.0.1:", *port);
  auto channel = MustConnect(WithLimit(Options()));
  CallContext context(kLong);
  const auto reply = EchoClient(channel).Say(context, SayRequest());
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kResourceExhausted);
  ExpectTeaches(reply.status(), "peer " + address_);
  EXPECT_THAT(std::string(reply.status().message()), HasSubstr("20004"));
  EXPECT_THAT(std::string(reply.status().message()), HasSubstr("20003"));
}

TEST_F(EchoTest, UnknownDevice) {
  ChannelOptions options;
  options.device = "mlx5_77";
  const auto channel = Channel::Connect("127.0.0.1:7471", options);
  ASSERT_FALSE(channel.ok());
  EXPECT_EQ(channel.status().code(), absl::StatusCode::kNotFound);
  ExpectTeaches(channel.status(), "mlx5_77");
  EXPECT_THAT(std::string(channel.status().message()), HasSubstr("softdc0"));
}

TEST_F(EchoTest, CallPastItsDeadline) {
  StartServer();
  auto channel = MustConnect();
  server_->Signal(SIGSTOP);
  const absl::Status status = Say(channel, "anybody?", absl::Milliseconds(50));
  server_->Signal(SIGCONT);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  ExpectTeaches(status, address_);
}

}  // namespace status_test
}  // namespace sluice::examples::echo
