// SPDX-License-Identifier: Apache-2.0
//
// docs/errors.md, "Setting up" and "Connecting": on the software NIC.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "middleware/api/channel.h"
#include "middleware/api/config.h"
#include "middleware/api/fork_count.h"
#include "middleware/api/messenger.h"
#include "middleware/api/runtime.h"
#include "middleware/api/server.h"
#include "tests/errors/catalogue.h"
#include "tests/middleware/api/chat.sluice.h"

namespace sluice {
namespace {

using testing_support::ExpectCatalogued;

template <typename Options>
Options OnSoftdc() {
  Options options;
  options.device = "softdc0";
  return options;
}

std::unique_ptr<Server> MakeServer(const ServerOptions& options = OnSoftdc<ServerOptions>()) {
  auto server = Server::Create(options);
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

Authentication Secret(const std::string& secret) {
  Authentication authentication;
  authentication.secret_source = [secret] { return std::vector<std::string>{secret}; };
  return authentication;
}

TEST(SetupErrors, AddressThatIsNone) {
  ExpectCatalogued("address", Channel::Connect("7471").status());
}

TEST(SetupErrors, OptionOutOfItsRange) {
  auto options = OnSoftdc<ServerOptions>();
  options.limits.credits_per_peer = 0;
  ExpectCatalogued("option", Server::Create(options).status());
}

TEST(SetupErrors, PathThatThePortDoesNotHave) {
  auto options = OnSoftdc<ServerOptions>();
  options.path.gid_index = 200;
  ExpectCatalogued("gid-index", Server::Create(options).status());
  options.path = {.pkey = 0x8001};
  ExpectCatalogued("partition", Server::Create(options).status());
}

TEST(SetupErrors, DeviceThatIsNotThere) {
  ServerOptions options;
  options.device = "mlx5_99";
  ExpectCatalogued("device-name", Server::Create(options).status());
}

TEST(SetupErrors, FilesOfSecrets) {
  auto options = OnSoftdc<ServerOptions>();
  options.authentication.secret_file = testing::TempDir() + "/readable_secret";
  std::ofstream(options.authentication.secret_file) << "0123456789abcdef0123456789abcdef\n";
  ASSERT_EQ(chmod(options.authentication.secret_file.c_str(), 0644), 0);
  ExpectCatalogued("secret-rights", Server::Create(options).status());
  options.authentication.secret_file = "/no/such/file";
  ExpectCatalogued("secret-missing", Server::Create(options).status());
}

TEST(SetupErrors, SecretOfTwoTenants) {
  auto options = OnSoftdc<ServerOptions>();
  options.tenants = {{.name = "one"}, {.name = "two"}};
  for (Tenant& tenant : options.tenants) {
    tenant.authentication = Secret("0123456789abcdef0123456789abcdef");
  }
  ExpectCatalogued("tenant-secret", Server::Create(options).status());
}

TEST(SetupErrors, PortThatIsTaken) {
  auto first = MakeServer();
  auto second = MakeServer();
  const auto port = first->Listen("127.0.0.1:0");
  ASSERT_TRUE(port.ok()) << port.status();
  ExpectCatalogued("port-in-use", second->Listen("127.0.0.1:" + std::to_string(*port)).status());
}

TEST(SetupErrors, ServiceRegisteredTwiceAndLate) {
  tests::chat::ChatServiceBase chat;
  auto server = MakeServer();
  ASSERT_TRUE(server->Register(&chat).ok());
  ExpectCatalogued("registered-twice", server->Register(&chat));
  ASSERT_TRUE(server->Listen("127.0.0.1:0").ok());
  ExpectCatalogued("registered-late", server->Register(&chat));
}

TEST(SetupErrors, ServerOfTheParent) {
  ExpectCatalogued("forked", internal::Creator::Refuse("server", "listen"));
}

TEST(SetupErrors, ServersOfASharedConnection) {
  RuntimeOptions on_softdc;
  on_softdc.device = "softdc0";
  ChannelOptions options;
  const auto runtime = Runtime::Create(on_softdc);
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  options.runtime = *runtime;
  options.connect_in_background = true;
  const auto channel = Channel::Connect("127.0.0.1:9", options);
  ASSERT_TRUE(channel.ok()) << channel.status();
  ExpectCatalogued("servers-shared", (*channel)->SetServers({"127.0.0.1:10"}));
}

TEST(SetupErrors, FilesThatSayNothing) {
  ExpectCatalogued("servers-file",
                   Channel::Connect("file:" + testing::TempDir() + "/no_such_servers",
                                    OnSoftdc<ChannelOptions>())
                       .status());
  Config config;
  ExpectCatalogued("config-value", config.Set("server.slow_call", "soon", Config::Source::kFlag));
  ExpectCatalogued("config-name", config.Set("server.slow_cal", "1s", Config::Source::kFlag));
  ExpectCatalogued("config-file", config.ReadText("server {", "sluice.textproto"));
}

TEST(ConnectErrors, NobodyListens) {
  ExpectCatalogued("nobody-listens",
                   Channel::Connect("127.0.0.1:9", OnSoftdc<ChannelOptions>()).status());
}

TEST(ConnectErrors, ServerThatDoesNotReact) {
  MessengerOptions options;
  options.device = "softdc0";
  auto nobody_polls = Messenger::Create(options);
  ASSERT_TRUE(nobody_polls.ok()) << nobody_polls.status();
  const auto port = (*nobody_polls)->Listen("127.0.0.1:0");
  ASSERT_TRUE(port.ok()) << port.status();
  auto client = OnSoftdc<ChannelOptions>();
  client.connect_timeout = absl::Milliseconds(20);
  ExpectCatalogued("connect-timeout",
                   Channel::Connect("127.0.0.1:" + std::to_string(*port), client).status());
}

TEST(ConnectErrors, SecretsThatDiffer) {
  auto options = OnSoftdc<ServerOptions>();
  options.authentication = Secret("the server's secret");
  auto server = MakeServer(options);
  const auto port = server->Listen("127.0.0.1:0");
  ASSERT_TRUE(port.ok()) << port.status();
  auto client = OnSoftdc<ChannelOptions>();
  client.authentication = Secret("not the server's secret");
  ExpectCatalogued("unauthenticated",
                   Channel::Connect("127.0.0.1:" + std::to_string(*port), client).status());
}

TEST(ConnectErrors, AllPlacesOfTheTenantAreTaken) {
  auto options = OnSoftdc<ServerOptions>();
  options.tenants.push_back(
      {.name = "one", .authentication = Secret("the tenant's secret"), .max_peers = 2});
  auto server = MakeServer(options);
  const auto port = server->Listen("127.0.0.1:0");
  ASSERT_TRUE(port.ok()) << port.status();
  auto client = OnSoftdc<ChannelOptions>();
  client.authentication = Secret("the tenant's secret");
  std::vector<std::shared_ptr<Channel>> channels;
  absl::Status last;
  while (last.ok() && channels.size() < 16) {
    auto channel = Channel::Connect("127.0.0.1:" + std::to_string(*port), client);
    last = channel.status();
    if (channel.ok()) channels.push_back(*std::move(channel));
  }
  EXPECT_EQ(channels.size(), 2u);
  ExpectCatalogued("full", last);
  EXPECT_NE(last.message().find("max_peers"), absl::string_view::npos)
      << "the option's name: " << last;
}

TEST(ConnectErrors, AllQueuePairsOfAServerWithoutDcAreTaken) {
  auto options = OnSoftdc<ServerOptions>();
  options.device = "softdc0/rc";
  options.limits.max_rc_queue_pairs = 1;
  auto server = MakeServer(options);
  const auto port = server->Listen("127.0.0.1:0");
  ASSERT_TRUE(port.ok()) << port.status();
  auto client = OnSoftdc<ChannelOptions>();
  client.device = "softdc0/rc";
  const std::string address = "127.0.0.1:" + std::to_string(*port);
  const auto first = Channel::Connect(address, client);
  ASSERT_TRUE(first.ok()) << first.status();
  const absl::Status second = Channel::Connect(address, client).status();
  ExpectCatalogued("full-rc", second);
  EXPECT_NE(second.message().find("max_rc_queue_pairs"), absl::string_view::npos) << second;
}

}  // namespace
}  // namespace sluice
