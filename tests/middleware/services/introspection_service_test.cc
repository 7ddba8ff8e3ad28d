// SPDX-License-Identifier: Apache-2.0
#include "middleware/services/introspection_service.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "examples/echo/echo_service.h"
#include "middleware/api/in_process.h"
#include "middleware/services/counter_table.h"
#include "transport/verbs/capabilities.h"

namespace sluice {
namespace introspection_service_test {

using introspection::v1::IntrospectionClient;
using introspection::v1::LookReply;
using introspection::v1::LookRequest;
using introspection::v1::TraceRequest;

// The service needs its server, which InProcess makes: it looks at another one.
class IntrospectionServiceTest : public ::testing::Test {
 protected:
  void Start(const ServerOptions& options = {}) {
    auto looked_at = InProcess::Start({&echo_}, options);
    ASSERT_TRUE(looked_at.ok()) << looked_at.status();
    looked_at_ = *std::move(looked_at);
    service_ =
        std::make_unique<IntrospectionService>(&looked_at_->server(), options, absl::Seconds(60));
    auto world = InProcess::Start({service_.get()}, options);
    ASSERT_TRUE(world.ok()) << world.status();
    world_ = *std::move(world);
    channel_ = *world_->NewChannel();
    caller_ = *looked_at_->NewChannel();
  }
  ~IntrospectionServiceTest() override {
    channel_.reset();
    caller_.reset();
    world_.reset();
  }
  void CallEcho(int times) {
    for (int i = 0; i < times; ++i) {
      CallContext context(absl::Seconds(60));
      ASSERT_TRUE(examples::echo::EchoClient(caller_).Say(context, {}).ok());
    }
  }
  LookReply Look(uint32_t max_peers = 0) {
    CallContext context(absl::Seconds(60));
    LookRequest request;
    request.set_max_peers(max_peers);
    auto reply = IntrospectionClient(channel_).Look(context, request);
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.value_or(LookReply());
  }
  static uint64_t Count(const LookReply& reply, const std::string& name) {
    for (const auto& count : reply.counts()) {
      if (count.name() == name) return count.value();
    }
    ADD_FAILURE() << "no count " << name;
    return 0;
  }

  examples::echo::EchoService echo_;
  std::unique_ptr<InProcess> looked_at_;
  std::unique_ptr<IntrospectionService> service_;
  std::unique_ptr<InProcess> world_;
  std::shared_ptr<Channel> channel_;
  std::shared_ptr<Channel> caller_;
};

TEST_F(IntrospectionServiceTest, TellsOfMethodsPeersLimitsAndCapabilities) {
  Start();
  CallEcho(3);
  const LookReply reply = Look();
  ASSERT_EQ(reply.methods_size(), 1);
  EXPECT_EQ(reply.methods(0).name(), "/sluice.examples.echo.Echo/Say");
  EXPECT_EQ(reply.methods(0).started(), 3u);
  EXPECT_EQ(reply.methods(0).in_flight(), 0u);
  ASSERT_EQ(reply.methods(0).ended_size(), 1);
  EXPECT_EQ(reply.methods(0).ended(0).code(), "OK");
  EXPECT_GT(reply.methods(0).latencies_size(), 0);
  ASSERT_EQ(reply.peers_size(), 1);
  EXPECT_FALSE(reply.peers(0).address().empty());
  EXPECT_EQ(Count(reply, "peers"), 1u);
  EXPECT_EQ(Count(reply, "requests"), 3u);
  EXPECT_EQ(reply.capabilities_size(), verbs::kFeatureCount);
  EXPECT_FALSE(reply.device().empty());
  EXPECT_FALSE(reply.shortened());
  std::set<std::string> limits;
  for (const auto& limit : reply.limits()) limits.insert(limit.name());
  EXPECT_TRUE(limits.contains("max_concurrent_calls"));
}

TEST_F(IntrospectionServiceTest, TellsOfWhatElseIsCounted) {
  auto world = InProcess::Start({&echo_});
  ASSERT_TRUE(world.ok()) << world.status();
  IntrospectionService service(&(*world)->server(), {});
  bulk::PortCounters counters;
  counters.transfers = 7;
  service.Add([&] { return ReadCounters(counters); });
  auto asked = InProcess::Start({&service});
  ASSERT_TRUE(asked.ok()) << asked.status();
  CallContext context(absl::Seconds(60));
  const auto told = IntrospectionClient(*(*asked)->NewChannel()).Look(context, {});
  ASSERT_TRUE(told.ok()) << told.status();
  EXPECT_EQ(Count(*told, "bulk_transfers"), 7u);
  EXPECT_EQ(Count(*told, "requests"), 0u);
}

TEST_F(IntrospectionServiceTest, WhatDoesNotFitAMessageIsLeftOut) {
  ServerOptions options;
  options.limits.max_message_bytes = 1024;
  Start(options);
  CallEcho(1);
  const LookReply reply = Look();
  EXPECT_TRUE(reply.shortened());
  ASSERT_EQ(reply.methods_size(), 1);
  EXPECT_EQ(reply.methods(0).started(), 1u);
}

TEST_F(IntrospectionServiceTest, TellsOfWhatHappenedLast) {
  Start();
  CallEcho(5);
  CallContext context(absl::Seconds(60));
  TraceRequest request;
  request.set_max_records(2);
  const auto reply = IntrospectionClient(channel_).Trace(context, request);
  ASSERT_TRUE(reply.ok()) << reply.status();
  ASSERT_EQ(reply->entries_size(), 2);
  EXPECT_EQ(reply->entries(1).event(), "reply");
  EXPECT_EQ(reply->entries(1).method(), "/sluice.examples.echo.Echo/Say");
  EXPECT_EQ(reply->entries(1).code(), "OK");
  EXPECT_LE(reply->entries(1).time_ns(), reply->time_ns());
}

// A server on the software NIC, with two tenants and the callers of each.
class TenantsIntrospectionTest : public ::testing::Test {
 protected:
  void Start(const std::vector<std::string>& see_all = {}) {
    ServerOptions options;
    options.device = "softdc0";
    options.tenants = {{.name = "red"}, {.name = "blue"}};
    for (Tenant& tenant : options.tenants) {
      tenant.authentication.secret_source = SecretOf(tenant.name);
    }
    options.slow_call = absl::Microseconds(1);  // every call is
    auto server = Server::Create(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    service_ = std::make_unique<IntrospectionService>(server_.get(), options, absl::Seconds(60));
    for (const std::string& tenant : see_all) service_->ShowAllTo(tenant);
    ASSERT_TRUE(server_->Register(service_.get()).ok());
    ASSERT_TRUE(server_->Register(&echo_).ok());
    const auto port = server_->Listen("127.0.0.1:0");
    ASSERT_TRUE(port.ok()) << port.status();
    for (const std::string tenant : {"red", "blue", "blue"}) {
      ChannelOptions channel;
      channel.device = "softdc0";
      channel.authentication.secret_source = SecretOf(tenant);
      auto connected = Channel::Connect("127.0.0.1:" + std::to_string(*port), channel);
      ASSERT_TRUE(connected.ok()) << connected.status();
      channels_.push_back(*std::move(connected));
      CallContext context(absl::Seconds(60));
      ASSERT_TRUE(examples::echo::EchoClient(channels_.back()).Say(context, {}).ok());
    }
  }
  ~TenantsIntrospectionTest() override {
    channels_.clear();
    server_.reset();
  }
  static std::function<absl::StatusOr<std::vector<std::string>>()> SecretOf(
      const std::string& tenant) {
    return [tenant] { return std::vector<std::string>{"the secret of tenant " + tenant}; };
  }
  LookReply Look(size_t channel, uint32_t max_peers = 0) {
    CallContext context(absl::Seconds(60));
    LookRequest request;
    request.set_max_peers(max_peers);
    auto reply = IntrospectionClient(channels_[channel]).Look(context, request);
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.value_or(LookReply());
  }
  absl::Status Trace(size_t channel) {
    CallContext context(absl::Seconds(60));
    return IntrospectionClient(channels_[channel]).Trace(context, TraceRequest()).status();
  }
  static constexpr size_t kRed = 0, kBlue = 1;

  examples::echo::EchoService echo_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<IntrospectionService> service_;
  std::vector<std::shared_ptr<Channel>> channels_;  // one of red, two of blue
};

TEST_F(TenantsIntrospectionTest, ACallerSeesPeersAndCallsOfItsOwnTenantOnly) {
  Start();
  const LookReply red = Look(kRed), blue = Look(kBlue);
  EXPECT_EQ(red.only_tenant(), "red");
  ASSERT_EQ(red.peers_size(), 1);
  EXPECT_EQ(red.peers(0).tenant(), "red");
  EXPECT_EQ(red.peers_in_all(), 1u);
  ASSERT_GE(red.slow_calls_size(), 1);
  for (const auto& call : red.slow_calls()) EXPECT_EQ(call.peer(), red.peers(0).address());
  EXPECT_EQ(red.slow_calls_in_all(), static_cast<uint64_t>(red.slow_calls_size()));
  ASSERT_EQ(blue.peers_size(), 2);
  for (const auto& peer : blue.peers()) EXPECT_EQ(peer.tenant(), "blue");
  EXPECT_EQ(blue.peers_in_all(), 2u);
  // What is counted for all tenants together tells about the others too.
  EXPECT_EQ(red.counts_size(), 0);
  EXPECT_EQ(red.methods_size(), 0);
  EXPECT_EQ(red.queues_size(), 0);
  EXPECT_EQ(red.pollers_size(), 0);
  EXPECT_GT(red.limits_size(), 0);
  EXPECT_FALSE(red.device().empty());
}

// The cut is of what is shown: slow calls of others do not push out the caller's own.
TEST_F(TenantsIntrospectionTest, ABusyTenantHidesNoSlowCallsOfOthers) {
  Start();
  for (int i = 0; i < 200; ++i) {
    CallContext context(absl::Seconds(60));
    ASSERT_TRUE(examples::echo::EchoClient(channels_[kBlue]).Say(context, {}).ok());
  }
  const LookReply red = Look(kRed);
  ASSERT_GE(red.slow_calls_size(), 1);
  EXPECT_EQ(red.slow_calls(0).method(), "/sluice.examples.echo.Echo/Say");
  EXPECT_LE(Look(kBlue).slow_calls_size(), 32);
}

TEST_F(TenantsIntrospectionTest, SnapshotOfATenantHasNothingOfOthers) {
  Start();
  const ServerSnapshot red = server_->Snapshot(10, absl::Seconds(60), "red");
  ASSERT_EQ(red.peers.size(), 1u);
  EXPECT_EQ(red.peers[0].tenant, "red");
  EXPECT_EQ(red.peers_in_all, 1u);
  EXPECT_GE(red.slow_calls.size(), 1u);
  const ServerSnapshot nobody = server_->Snapshot(10, absl::Seconds(60), "");
  EXPECT_TRUE(nobody.peers.empty());
  EXPECT_TRUE(nobody.slow_calls.empty());
  EXPECT_EQ(server_->Snapshot(10, absl::Seconds(60)).peers.size(), 3u);
}

// The limit is of what is shown: peers of others do not take the places of the caller's own.
TEST_F(TenantsIntrospectionTest, MaxPeersCountsPeersOfTheCallersTenant) {
  Start();
  EXPECT_EQ(Look(kBlue, 1).peers_size(), 1);
  EXPECT_EQ(Look(kBlue, 2).peers_size(), 2);
  EXPECT_EQ(Look(kBlue, 1).peers_in_all(), 2u);
}

TEST_F(TenantsIntrospectionTest, TheTraceIsRefused) {
  Start();
  const absl::Status refused = Trace(kRed);
  EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_NE(refused.message().find("the trace is not shown to this tenant"),
            absl::string_view::npos)
      << refused;
}

TEST_F(TenantsIntrospectionTest, ATenantThatSeesAllSeesAll) {
  Start({"red"});
  const LookReply red = Look(kRed);
  EXPECT_EQ(red.only_tenant(), "");
  EXPECT_EQ(red.peers_size(), 3);
  EXPECT_EQ(red.peers_in_all(), 3u);
  EXPECT_EQ(red.pollers_size(), 1);
  EXPECT_GT(red.counts_size(), 0);
  EXPECT_EQ(Look(kRed, 2).peers_size(), 2);
  EXPECT_TRUE(Trace(kRed).ok());
  EXPECT_EQ(Look(kBlue).peers_size(), 2);
  EXPECT_EQ(Trace(kBlue).code(), absl::StatusCode::kPermissionDenied);
}

TEST(CounterTableTest, NamesAreOnceAndWellFormed) {
  for (const auto& readings : {ReadCounters(ServerSnapshot()), ReadCounters(ChannelSnapshot()),
                               ReadCounters(bulk::PortCounters())}) {
    std::set<std::string> names;
    for (const Reading& reading : readings) {
      EXPECT_TRUE(names.insert(reading.name).second) << reading.name;
      EXPECT_EQ(std::string(reading.name).find_first_not_of("abcdefghijklmnopqrstuvwxyz_"),
                std::string::npos);
      EXPECT_NE(std::string(reading.meaning), "");
    }
  }
}

TEST(CounterTableTest, LargeMessagesAreTold) {
  ServerSnapshot snapshot;
  session::SessionCounters& sessions = snapshot.sessions;
  sessions.large_sent = 1;
  sessions.large_received = 2;
  sessions.large_lost = 3;
  sessions.large_in_place = 4;
  sessions.large_held = 5;
  sessions.lent = 6;
  std::map<std::string, uint64_t> told;
  for (const Reading& reading : ReadCounters(snapshot)) {
    if (reading.value != 0) told[reading.name] = reading.value;
  }
  EXPECT_EQ(told, (std::map<std::string, uint64_t>{{"large_sent", 1},
                                                   {"large_received", 2},
                                                   {"large_lost", 3},
                                                   {"large_in_place", 4},
                                                   {"large_held", 5},
                                                   {"large_lent", 6}}));
}

}  // namespace introspection_service_test
}  // namespace sluice
