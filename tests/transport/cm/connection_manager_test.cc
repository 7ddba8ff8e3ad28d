// SPDX-License-Identifier: Apache-2.0
//
// Two managers of one process on the software NIC.
#include "transport/cm/connection_manager.h"

#include <poll.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/cm/raw_connector.h"
#include "transport/cm/address.h"

namespace sluice::cm {
namespace connection_manager_test {

constexpr int64_t kPatienceNs = 20'000'000'000;

std::vector<std::byte> Bytes(std::string_view text) {
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  return {bytes, bytes + text.size()};
}

std::string Text(const std::vector<std::byte>& bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()));  // up to the zero padding
}

void Drive(RawConnector& a, RawConnector& b, const std::function<bool()>& done) {
  while (!done()) {
    a.Poll();
    b.Poll();
  }
}

ConnectionId ConnectTo(RawConnector& client, uint16_t port) {
  auto id = client.manager->Connect("localhost", port, client.clock.NowNs() + kPatienceNs,
                                    Bytes("hello"));
  EXPECT_TRUE(id.ok()) << id.status();
  return *id;
}

TEST(ConnectionManagerConnect, PrivateDataGoesBothWays) {
  RawConnector server, client;
  server.answer = Bytes("welcome");
  const auto port = server.manager->Listen("localhost", 0);
  ASSERT_TRUE(port.ok()) << port.status();
  ConnectTo(client, *port);
  Drive(server, client, [&] { return server.up && client.up; });
  EXPECT_EQ(Text(server.request), "hello");
  EXPECT_EQ(server.request.size(), kMaxRequestData);  // the field is always full
  EXPECT_EQ(Text(client.response), "welcome");
}

TEST(ConnectionManagerClose, OtherSideHearsAndBothRecordsAreFreedAfterTimewait) {
  const Options brief = {.number_hold_ns = 2'000'000'000};
  RawConnector server(&softdc::Verbs(), brief), client(&softdc::Verbs(), brief);
  const auto port = server.manager->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok());
  const ConnectionId id = ConnectTo(client, *port);
  Drive(server, client, [&] { return server.up && client.up; });
  client.manager->Close(id);
  Drive(server, client, [&] { return server.down; });
  EXPECT_EQ(server.why.code(), absl::StatusCode::kUnavailable) << server.why;
  EXPECT_FALSE(client.down);  // it closed, so it is not told
  // Until TIMEWAIT_EXIT both ids are kept, and the numbers for as long as a lost answer may delay the
  // other side.
  Drive(server, client, [&] { return server.manager->size() == 0 && client.manager->size() == 0; });
  EXPECT_EQ(client.manager->metrics().quarantined, 1u);
  EXPECT_EQ(server.manager->metrics().quarantined, 1u);
  EXPECT_EQ(client.manager->metrics().live, 0u);
  Drive(server, client,
        [&] { return server.numbers->in_use() == 0 && client.numbers->in_use() == 0; });
  EXPECT_EQ(client.manager->quarantined(), 0u);
  EXPECT_EQ(server.manager->quarantined(), 0u);
}

TEST(ConnectionManagerReject, DataReachesTheOtherSide) {
  struct Refusing : RawConnector {
    void OnRequest(ConnectionId id, std::span<const std::byte>, const PathInfo&,
                   const std::string&) override {
      manager->Reject(id, Bytes("not you"));
    }
  } server;
  RawConnector client;
  const auto port = server.manager->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok());
  ConnectTo(client, *port);
  Drive(server, client, [&] { return client.down; });
  EXPECT_EQ(Text(client.reject_data), "not you");
  EXPECT_NE(client.why.message().find("refused by the server program"), absl::string_view::npos)
      << client.why;
}

TEST(ConnectionManagerConnect, TooManyConnectionsSaysSo) {
  RawConnector client;
  Options options;
  options.max_connections = 1;
  auto manager =
      ConnectionManager::Create(client.device->api(), options, *client.numbers, client.commands,
                                client.clock, client.timers, client.random, client);
  ASSERT_TRUE(manager.ok());
  const int64_t deadline_ns = client.clock.NowNs() + kPatienceNs;
  EXPECT_TRUE((*manager)->Connect("127.0.0.1", 1, deadline_ns, {}).ok());
  const auto second = (*manager)->Connect("127.0.0.1", 1, deadline_ns, {});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kResourceExhausted) << second.status();
  client.commands.Finish();
}

// Firmware may hand out the number of a dead process again while the other host still knows it. Here: the number of
// a connection that is up.
uint32_t repeated_qpn = 0;
int repeats = 0;

TEST(ConnectionManagerConnect, StaleNumberCostsOneRejectAndOneRetry) {
  static verbs::VerbsApi repeating = softdc::Verbs();
  repeating.dv_reserved_qpn_alloc = [](ibv_context* context, uint32_t* qpn) {
    if (repeats > 0) {
      --repeats;
      *qpn = repeated_qpn;
      return 0;
    }
    const int result = softdc::Verbs().dv_reserved_qpn_alloc(context, qpn);
    if (result == 0) repeated_qpn = *qpn;
    return result;
  };
  RawConnector server;
  RawConnector client(&repeating);
  const auto port = server.manager->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok());
  ConnectTo(client, *port);
  Drive(server, client, [&] { return server.up && client.up; });
  client.up = server.up = false;
  repeats = 1;
  ConnectTo(client, *port);
  Drive(server, client, [&] { return server.up && client.up; });
  EXPECT_EQ(repeats, 0);
  EXPECT_EQ(client.manager->metrics().stale_rejects, 1u);
  EXPECT_EQ(client.manager->metrics().retries, 1u);
}

TEST(ConnectionManagerListen, EveryAddressIsHeardOverIpv4AndIpv6) {
  RawConnector server, client;
  const auto port = server.manager->Listen("*", 0);
  ASSERT_TRUE(port.ok()) << port.status();
  for (const char* host : {"127.0.0.1", "::1"}) {
    client.up = server.up = false;
    const auto id =
        client.manager->Connect(host, *port, client.clock.NowNs() + kPatienceNs, Bytes("hello"));
    ASSERT_TRUE(id.ok()) << id.status();
    Drive(server, client, [&] { return (server.up && client.up) || client.down; });
    EXPECT_FALSE(client.down) << host << ": " << client.why;
  }
}

// A name of several addresses, of which the server listens at the last.
TEST(ConnectionManagerConnect, NameThatIsOnlyHeardAtItsIpv6Address) {
  const auto addresses = Resolve("localhost", 1, /*passive=*/false);
  ASSERT_TRUE(addresses.ok()) << addresses.status();
  if (addresses->size() < 2) GTEST_SKIP() << "localhost has one address here";
  RawConnector server, client;
  const auto port = server.manager->Listen("::1", 0);
  ASSERT_TRUE(port.ok()) << port.status();
  ConnectTo(client, *port);
  Drive(server, client, [&] { return (server.up && client.up) || client.down; });
  EXPECT_FALSE(client.down) << client.why;
}

// ---- Several managers, of which one listens

struct SharedListener {
  SharedListener() : SharedListener(&softdc::Verbs()) {}
  explicit SharedListener(const verbs::VerbsApi* table)
      : desk(std::make_shared<RequestDesk>()),
        options{.desk = desk},
        first(table, options),
        second(std::in_place, table, options) {
    auto listens = first.manager->Listen("localhost", 0);
    EXPECT_TRUE(listens.ok()) << listens.status();
    port = listens.value_or(0);
  }
  void Connect(RawConnector& client) {
    ConnectTo(client, port);
    while (!client.up) {
      first.Poll();
      if (second.has_value()) second->Poll();
      client.Poll();
    }
  }

  std::shared_ptr<RequestDesk> desk;
  Options options;
  RawConnector first;
  std::optional<RawConnector> second;
  uint16_t port = 0;
};

TEST(ConnectionManagerDesk, RequestsGoToTheManagerWithTheFewestConnections) {
  SharedListener server;
  server.first.answer = Bytes("first");
  server.second->answer = Bytes("second");
  RawConnector clients[6];
  std::vector<std::string> who;
  for (RawConnector& client : clients) {
    server.Connect(client);
    EXPECT_EQ(Text(server.first.request), "hello");
    who.push_back(Text(client.response));
  }
  EXPECT_EQ(who,
            (std::vector<std::string>{"first", "second", "first", "second", "first", "second"}));
  pollfd inbox{server.second->manager->seat_fd(), POLLIN, 0};
  EXPECT_EQ(poll(&inbox, 1, 0), 0) << "nothing is left in it";
  EXPECT_EQ(Text(server.second->request), "hello");
  EXPECT_EQ(server.second->request.size(), kMaxRequestData);
  EXPECT_EQ(server.first.manager->size(), 3u);
  EXPECT_EQ(server.second->manager->size(), 3u);
  // It is the other one's in all that follows.
  server.second->down = false;
  clients[1].manager.reset();
  while (!server.second->down) server.second->Poll();
  EXPECT_FALSE(server.first.down);
}

bool can_move = false;

TEST(ConnectionManagerDesk, WhatCantMoveStaysWithWhoHearsItAndDoesNotCountElsewhere) {
  verbs::VerbsApi table = softdc::Verbs();
  can_move = false;
  table.cm_migrate_id = [](rdma_cm_id* id, rdma_event_channel* channel) {
    errno = EINVAL;
    return can_move ? softdc::Verbs().cm_migrate_id(id, channel) : -1;
  };
  SharedListener server(&table);
  RawConnector clients[6];
  for (int i = 0; i < 3; ++i) server.Connect(clients[i]);
  EXPECT_EQ(server.first.manager->size(), 3u);
  EXPECT_EQ(server.second->manager->size(), 0u);
  can_move = true;
  for (int i = 3; i < 6; ++i) server.Connect(clients[i]);
  EXPECT_EQ(server.second->manager->size(), 3u);
}

// A move that stands still in the kernel until the test lets it go on.
std::atomic<bool> moves{false}, may_end{false};
rdma_cm_id* moved_id = nullptr;  // before `moves`

verbs::VerbsApi SlowToMove() {
  verbs::VerbsApi table = softdc::Verbs();
  moves = may_end = false;
  table.cm_migrate_id = [](rdma_cm_id* id, rdma_event_channel* channel) {
    const int result = softdc::Verbs().cm_migrate_id(id, channel);
    moved_id = id;
    moves = true;
    may_end.wait(false);
    return result;
  };
  return table;
}

void LetItEnd() {
  may_end = true;
  may_end.notify_all();
}

TEST(ConnectionManagerDesk, ManagerReadsItsEventsWhileARequestIsBeingMovedToIt) {
  const verbs::VerbsApi table = SlowToMove();
  SharedListener server(&table);
  RawConnector one, two;
  server.Connect(one);
  ConnectTo(two, server.port);
  while (!moves) {
    server.first.Poll();
    two.Poll();
  }
  server.second->Poll();  // returns
  LetItEnd();
  while (!two.up) {
    server.first.Poll();
    server.second->Poll();
    two.Poll();
  }
  EXPECT_EQ(server.second->manager->size(), 1u);
}

// As if the client had left meanwhile: the manager that the request is moved to hears of that first.
TEST(ConnectionManagerDesk, EventThatOvertakesItsRequestIsKeptForIt) {
  static rdma_cm_event overtaking;
  static bool due;
  verbs::VerbsApi table = SlowToMove();
  table.cm_get_cm_event = [](rdma_event_channel* channel, rdma_cm_event** event) {
    if (!std::exchange(due, false)) return softdc::Verbs().cm_get_cm_event(channel, event);
    overtaking = {};
    overtaking.id = moved_id;
    overtaking.event = RDMA_CM_EVENT_REJECTED;
    *event = &overtaking;
    return 0;
  };
  table.cm_ack_cm_event = [](rdma_cm_event* event) {
    return event == &overtaking ? 0 : softdc::Verbs().cm_ack_cm_event(event);
  };
  SharedListener server(&table);
  RawConnector one, two;
  server.Connect(one);
  ConnectTo(two, server.port);
  while (!moves) {
    server.first.Poll();
    two.Poll();
  }
  due = true;
  EXPECT_EQ(server.second->manager->ReadEvents(), 1);
  EXPECT_EQ(server.second->manager->size(), 0u);
  LetItEnd();
  pollfd inbox{server.second->manager->seat_fd(), POLLIN, 0};
  poll(&inbox, 1, -1);
  EXPECT_EQ(server.second->manager->ReadEvents(), 1);
  EXPECT_EQ(server.second->manager->size(), 1u);
  while (server.second->manager->size() != 0) server.second->Poll();
  EXPECT_EQ(server.second->manager->metrics().timeouts, 0u);
}

TEST(ConnectionManagerDesk, OfEqualsTheOneThatWasNotChosenForLongest) {
  SharedListener server;
  auto gone = std::make_unique<RawConnector>();
  server.Connect(*gone);
  EXPECT_EQ(server.first.manager->size(), 1u);
  gone.reset();
  while (!server.first.down) server.first.Poll();
  while (server.first.manager->size() != 0) server.first.Poll();
  RawConnector next;
  server.Connect(next);
  EXPECT_EQ(server.second->manager->size(), 1u);
}

TEST(ConnectionManagerDesk, WhoHasGoneGetsNothing) {
  SharedListener server;
  server.second.reset();
  RawConnector one, two, three;
  for (RawConnector* client : {&one, &two, &three}) server.Connect(*client);
  EXPECT_EQ(server.first.manager->size(), 3u);
}

TEST(ConnectionManagerDesk, ARequestThatNobodyTookEndsWithTheManagerItWasFor) {
  SharedListener server;
  RawConnector one, two;
  server.Connect(one);
  ConnectTo(two, server.port);
  pollfd inbox{server.second->manager->seat_fd(), POLLIN, 0};
  while (poll(&inbox, 1, 0) == 0) {
    server.first.Poll();
    two.Poll();
  }
  server.second
      .reset();  // destroys the id: the client hears of it, tries again, and the first one is there
  while (!two.up && !two.down) {
    server.first.Poll();
    two.Poll();
  }
}

}  // namespace connection_manager_test
}  // namespace sluice::cm
