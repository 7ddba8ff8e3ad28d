// SPDX-License-Identifier: Apache-2.0
//
// Secrets as a user of Channel and Server sets and meets them, over the software NIC.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "examples/echo/echo.sluice.h"
#include "middleware/api/server.h"
#include "transport/base/error.h"

namespace sluice {
namespace authentication_test {

using examples::echo::EchoClient;
using examples::echo::EchoServiceBase;
using examples::echo::SayReply;
using examples::echo::SayRequest;

constexpr char kOld[] = "K9pQ1h0wZ4s7cVfT2mBx8r5u";
constexpr char kNew[] = "tY3nD6kL0aXe9gRj5qWb1oHv";

class Echo final : public EchoServiceBase {
 public:
  absl::Status Say(ServerContext&, const SayRequest& request, SayReply* reply) override {
    reply->set_payload(request.payload());
    return absl::OkStatus();
  }
};

class SecretFile {
 public:
  explicit SecretFile(const std::string& name)
      : path_(testing::TempDir() + "/" + name + "." + std::to_string(getpid())) {}
  ~SecretFile() { unlink(path_.c_str()); }
  void Write(const std::string& text, mode_t mode = 0600) {
    std::ofstream(path_) << text;
    EXPECT_EQ(chmod(path_.c_str(), mode), 0);
  }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

ServerOptions ServerWith(const std::string& file) {
  ServerOptions options;
  options.device = "softdc0";
  options.authentication.secret_file = file;
  return options;
}

ChannelOptions ChannelWith(const std::string& file) {
  ChannelOptions options;
  options.device = "softdc0";
  options.authentication.secret_file = file;
  return options;
}

class AuthenticationTest : public testing::Test {
 protected:
  void Serve() {
    auto server = Server::Create(ServerWith(server_file_.path()));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    ASSERT_TRUE(server_->Register(&echo_).ok());
    auto port = server_->Listen("127.0.0.1:0");
    ASSERT_TRUE(port.ok()) << port.status();
    address_ = "127.0.0.1:" + std::to_string(*port);
  }
  // Connects and calls once.
  absl::Status Try(const ChannelOptions& options) {
    auto channel = Channel::Connect(address_, options);
    if (!channel.ok()) return channel.status();
    EchoClient client(*channel);
    SayRequest request;
    request.set_payload("hello");
    CallContext context(absl::Seconds(30));
    const auto reply = client.Say(context, request);
    return reply.status();
  }

  SecretFile server_file_{"server_secrets"};
  SecretFile client_file_{"client_secrets"};
  Echo echo_;
  std::unique_ptr<Server> server_;
  std::string address_;
};

TEST_F(AuthenticationTest, SameSecretLetsCallsThrough) {
  server_file_.Write(kOld);
  client_file_.Write(std::string("# of this cluster\n") + kOld + "\n");
  Serve();
  const absl::Status status = Try(ChannelWith(client_file_.path()));
  EXPECT_TRUE(status.ok()) << status;
  ChannelOptions from_function = ChannelWith("");
  from_function.authentication.secret_source = [] { return std::vector<std::string>{kOld}; };
  EXPECT_TRUE(Try(from_function).ok());
}

TEST_F(AuthenticationTest, WrongAndMissingSecretsAreUnauthenticatedWithATextThatTeaches) {
  server_file_.Write(kOld);
  client_file_.Write(kNew);
  Serve();
  const absl::Status wrong = Try(ChannelWith(client_file_.path()));
  EXPECT_EQ(wrong.code(), absl::StatusCode::kUnauthenticated);
  const absl::Status missing = Try(ChannelWith(""));
  EXPECT_EQ(missing.code(), absl::StatusCode::kUnauthenticated);
  for (const absl::Status& status : {wrong, missing}) {
    const std::string text(status.message());
    EXPECT_NE(text.find(address_), std::string::npos) << text;
    EXPECT_NE(text.find("give both sides the same secret (secret_file)"), std::string::npos)
        << text;
    EXPECT_EQ(text.find(kOld), std::string::npos) << "a secret is never said";
    EXPECT_EQ(text.find(kNew), std::string::npos);
    EXPECT_EQ(base::DetailOf(status)->operation(), "handshake");
  }
  EXPECT_TRUE(server_->Shutdown(absl::Seconds(30)).ok());
  EXPECT_EQ(server_->handshakes().unauthenticated, 2u);
  EXPECT_EQ(server_->handshakes().completed, 0u);
}

// Says whose call it is.
class WhoseCall final : public EchoServiceBase {
 public:
  absl::Status Say(ServerContext& context, const SayRequest&, SayReply* reply) override {
    reply->set_payload(context.tenant());
    return absl::OkStatus();
  }
};

TEST_F(AuthenticationTest, SecretSaysWhoseACallIs) {
  ServerOptions options = ServerWith("");
  options.tenants = {{.name = "old"}, {.name = "new"}};
  options.tenants[0].authentication.secret_source = [] { return std::vector<std::string>{kOld}; };
  options.tenants[1].authentication.secret_file = server_file_.path();
  server_file_.Write(kNew);
  auto server = Server::Create(options);
  ASSERT_TRUE(server.ok()) << server.status();
  WhoseCall service;
  ASSERT_TRUE((*server)->Register(&service).ok());
  auto port = (*server)->Listen("127.0.0.1:0");
  ASSERT_TRUE(port.ok()) << port.status();
  for (const auto& [secret, tenant] : {std::pair(kOld, "old"), std::pair(kNew, "new")}) {
    client_file_.Write(secret);
    auto channel =
        Channel::Connect("127.0.0.1:" + std::to_string(*port), ChannelWith(client_file_.path()));
    ASSERT_TRUE(channel.ok()) << channel.status();
    CallContext context(absl::Seconds(30));
    const auto reply = EchoClient(*channel).Say(context, SayRequest());
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->payload(), tenant);
  }
}

TEST(ServerOptionsTenants, WithoutSecretsOrBesideCommonOnesAreRefused) {
  ServerOptions options;
  options.tenants = {{.name = "one"}};
  EXPECT_EQ(options.Validate().code(), absl::StatusCode::kInvalidArgument);
  options.tenants[0].authentication.secret_file = "/a/file";
  EXPECT_TRUE(options.Validate().ok());
  options.authentication.secret_file = "/another/file";
  EXPECT_EQ(options.Validate().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(AuthenticationTest, SecretIsChangedWithoutARestart) {
  server_file_.Write(kOld);
  client_file_.Write(kOld);
  Serve();
  EXPECT_TRUE(Try(ChannelWith(client_file_.path())).ok());
  server_file_.Write(std::string(kOld) + "\n" + kNew);
  EXPECT_TRUE(Try(ChannelWith(client_file_.path())).ok());
  client_file_.Write(std::string(kNew) + "\n" + kOld);
  EXPECT_TRUE(Try(ChannelWith(client_file_.path())).ok());
  server_file_.Write(kNew);
  EXPECT_TRUE(Try(ChannelWith(client_file_.path())).ok());
  client_file_.Write(kOld);
  EXPECT_EQ(Try(ChannelWith(client_file_.path())).code(), absl::StatusCode::kUnauthenticated);
}

TEST_F(AuthenticationTest, FileThatOthersCanReadIsRefusedWhenTheObjectIsMade) {
  server_file_.Write(kOld, 0644);
  const absl::Status server = Server::Create(ServerWith(server_file_.path())).status();
  EXPECT_EQ(server.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_NE(std::string(server.message()).find("chmod 600 " + server_file_.path()),
            std::string::npos)
      << server;
  const absl::Status channel =
      Channel::Connect("127.0.0.1:9", ChannelWith(server_file_.path())).status();
  EXPECT_EQ(channel.code(), absl::StatusCode::kPermissionDenied) << channel;
  EXPECT_EQ(Server::Create(ServerWith("/no/such/file")).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace authentication_test
}  // namespace sluice
