// SPDX-License-Identifier: Apache-2.0
#include "middleware/services/introspection_service.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>

#include "examples/echo/echo_service.h"
#include "middleware/api/in_process.h"
#include "middleware/services/counter_table.h"
#include "transport/verbs/capabilities.h"

namespace sluice {
namespace {

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

}  // namespace
}  // namespace sluice
