// SPDX-License-Identifier: Apache-2.0
//
// DREQ, DREP, timewait, and the host-wide table of connected queue pairs.
#include "tests/transport/softdc/cm/cm_fixture.h"

namespace sluice::softdc::cm {
namespace cm_disconnect_test {

constexpr int64_t kTimewaitNs =
    1024 * kMillisecond;  // ack timeout 18: RoCE's lifetime 16 and the device's delay 16

TEST_F(CmDisconnectTest, CallerHearsOnlyWhenThePeerAnswers) {
  const Connection made = Establish(Listen(), 1, 2);
  ASSERT_EQ(disconnect(made.client), 0);
  const Seen at_server = server->Next();
  EXPECT_EQ(at_server.type, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(at_server.status, 0);
  EXPECT_TRUE(client->Quiet());
  ASSERT_EQ(disconnect(made.server), 0);
  const Seen at_client = client->Next();
  EXPECT_EQ(at_client.type, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(at_client.status, 0);

  client->timers.Advance(kTimewaitNs - 1);
  server->timers.Advance(kTimewaitNs - 1);
  EXPECT_TRUE(client->Quiet());
  EXPECT_TRUE(server->Quiet());
  client->timers.Advance(1);
  server->timers.Advance(1);
  for (Side* side : {client.get(), server.get()}) {
    const Seen exit = side->Next();
    EXPECT_EQ(exit.type, RDMA_CM_EVENT_TIMEWAIT_EXIT);
    EXPECT_EQ(exit.status, 0);
  }
  EXPECT_EQ(disconnect(made.client), 0);  // late, and without effect
  EXPECT_TRUE(client->Quiet());
}

TEST_F(CmDisconnectTest, AckTimeoutOptionSetsTheLengthOfTimewait) {
  const uint16_t port = Listen();
  rdma_cm_id* id = client->NewId();
  uint8_t timeout = 17;
  ASSERT_EQ(set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1), 0);
  sockaddr_in to = Ipv4("127.0.0.1", port);
  ASSERT_EQ(resolve_addr(id, nullptr, Generic(&to), 1000), 0);
  client->Next();
  ASSERT_EQ(resolve_route(id, 1000), 0);
  client->Next();
  uint8_t later = 25;  // too late for the path
  ASSERT_EQ(set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &later, 1), 0);
  ASSERT_EQ(ConnectAs(id, 1), 0);
  rdma_cm_id* passive = server->Next().id;
  ASSERT_EQ(AcceptAs(passive, 2), 0);
  client->Next();
  ASSERT_EQ(establish(id), 0);
  server->Next();
  ASSERT_EQ(disconnect(id), 0);
  server->Next();
  ASSERT_EQ(disconnect(passive), 0);
  client->Next();
  const int64_t expected_ns = TimewaitNs(AckTimeout(kCaAckDelay, 16));
  client->timers.Advance(expected_ns - 1);
  server->timers.Advance(expected_ns - 1);
  EXPECT_TRUE(client->Quiet());
  EXPECT_TRUE(server->Quiet());
  client->timers.Advance(1);
  server->timers.Advance(1);
  EXPECT_EQ(client->Next().type, RDMA_CM_EVENT_TIMEWAIT_EXIT);
  EXPECT_EQ(server->Next().type, RDMA_CM_EVENT_TIMEWAIT_EXIT);
}

TEST_F(CmDisconnectTest, PeerThatNeverAnswersTimesOut) {
  const Connection made = Establish(Listen(), 1, 2);
  ASSERT_EQ(disconnect(made.client), 0);
  EXPECT_EQ(server->Next().type, RDMA_CM_EVENT_DISCONNECTED);
  client->timers.Advance(kRetryNs * kMaxAttempts - 1);
  EXPECT_TRUE(client->Quiet());
  EXPECT_TRUE(server->Quiet());  // repeated requests tell the application nothing new
  client->timers.Advance(1);
  const Seen gone = client->Next();
  EXPECT_EQ(gone.type, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(gone.status, -ETIMEDOUT);
  client->timers.Advance(kTimewaitNs);
  EXPECT_EQ(client->Next().type, RDMA_CM_EVENT_TIMEWAIT_EXIT);
  ASSERT_EQ(disconnect(made.server), 0);  // late
  server->timers.Advance(kTimewaitNs);
  EXPECT_EQ(server->Next().type, RDMA_CM_EVENT_TIMEWAIT_EXIT);
}

TEST_F(CmDisconnectTest, BothAtOnceHearOfEachOtherAndOneAnswerEndsBoth) {
  const Connection made = Establish(Listen(), 1, 2);
  // The firmware thread stands still while both calls are made, so that the messages cross.
  Loop::Get().RunAndWait([&] {
    EXPECT_EQ(disconnect(made.client), 0);
    EXPECT_EQ(disconnect(made.server), 0);
  });
  EXPECT_EQ(client->Next().type, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(server->Next().type, RDMA_CM_EVENT_DISCONNECTED);
  ASSERT_EQ(disconnect(made.client), 0);
  Settle();
  client->timers.Advance(kTimewaitNs);
  server->timers.Advance(kTimewaitNs);
  EXPECT_EQ(client->Next().type, RDMA_CM_EVENT_TIMEWAIT_EXIT);
  EXPECT_EQ(server->Next().type, RDMA_CM_EVENT_TIMEWAIT_EXIT);
}

TEST_F(CmDisconnectTest, DestroyedIdTellsThePeerAtOnceAndNothingLater) {
  const Connection made = Establish(Listen(), 1, 2);
  client->Destroy(made.client);
  EXPECT_EQ(server->Next().type, RDMA_CM_EVENT_DISCONNECTED);
  server->timers.Advance(200 * kSecond);
  EXPECT_TRUE(server->Quiet());  // no TIMEWAIT_EXIT without an answer
  ASSERT_EQ(disconnect(made.server), 0);
  server->timers.Advance(kTimewaitNs);
  EXPECT_EQ(server->Next().type, RDMA_CM_EVENT_TIMEWAIT_EXIT);
}

TEST_F(CmDisconnectTest, PeerThatDestroysInsteadOfAnsweringCountsAsAnswer) {
  const Connection made = Establish(Listen(), 1, 2);
  ASSERT_EQ(disconnect(made.client), 0);
  EXPECT_EQ(server->Next().type, RDMA_CM_EVENT_DISCONNECTED);
  server->Destroy(made.server);
  const Seen seen = client->Next();
  EXPECT_EQ(seen.type, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(seen.status, 0);
}

TEST_F(CmDisconnectTest, OutsideAConnectionItFailsOrDoesNothing) {
  rdma_cm_id* id = client->NewId();
  EXPECT_EQ(disconnect(id), -1);
  EXPECT_EQ(errno, EINVAL);
  const uint16_t port = Listen();
  rdma_cm_id* pending = Resolved(port);
  ASSERT_EQ(ConnectAs(pending, 1), 0);
  const Seen request = server->Next();
  EXPECT_EQ(disconnect(pending), 0);
  ASSERT_EQ(AcceptAs(request.id, 2), 0);  // the attempt goes on
  EXPECT_EQ(client->Next().type, RDMA_CM_EVENT_CONNECT_RESPONSE);
}

TEST_F(CmStaleTest, ClientNumberInUseIsRejectedAndKillsTheOlderConnection) {
  const uint16_t port = Listen();
  const Connection first = Establish(port, 1, 2);
  rdma_cm_id* second = Resolved(port);
  ASSERT_EQ(ConnectAs(second, 1), 0);
  bool rejected = false, disconnected = false;
  for (int i = 0; i < 2; ++i) {
    const Seen seen = client->Next();
    if (seen.id == second) {
      rejected = seen.type == RDMA_CM_EVENT_REJECTED && seen.status == 10;
    } else {
      disconnected = seen.id == first.client && seen.type == RDMA_CM_EVENT_DISCONNECTED;
    }
  }
  EXPECT_TRUE(rejected);
  EXPECT_TRUE(disconnected);
  EXPECT_TRUE(server->Quiet());  // no request, and DISCONNECTED only after the client's answer
  ASSERT_EQ(disconnect(first.client), 0);
  const Seen at_server = server->Next();
  EXPECT_EQ(at_server.id, first.server);
  EXPECT_EQ(at_server.type, RDMA_CM_EVENT_DISCONNECTED);
}

TEST_F(CmStaleTest, ServerNumberInUseMakesTheServerSufferAndTheClientRepeat) {
  const uint16_t port = Listen();
  const Connection first = Establish(port, 1, 2);
  rdma_cm_id* second = Resolved(port);
  ASSERT_EQ(ConnectAs(second, 3), 0);
  ASSERT_EQ(AcceptAs(server->Next().id, 2), 0);
  bool rejected = false, disconnected = false;
  for (int i = 0; i < 2; ++i) {
    const Seen seen = server->Next();
    if (seen.id == first.server) {
      disconnected = seen.type == RDMA_CM_EVENT_DISCONNECTED;
    } else {
      rejected = seen.type == RDMA_CM_EVENT_REJECTED && seen.status == 10;
    }
  }
  EXPECT_TRUE(rejected);
  EXPECT_TRUE(disconnected);
  EXPECT_TRUE(client->Quiet());  // the client's application hears nothing

  client->timers.Advance(kRetryNs);
  const Seen again = server->Next();  // a new request with a new id
  EXPECT_EQ(again.type, RDMA_CM_EVENT_CONNECT_REQUEST);
  ASSERT_EQ(AcceptAs(again.id, 4), 0);  // and a fresh number heals it
  EXPECT_EQ(client->Next().type, RDMA_CM_EVENT_CONNECT_RESPONSE);
}

TEST_F(CmStaleTest, ServerThatInsistsOnItsNumberEndsUnreachable) {
  const uint16_t port = Listen();
  Establish(port, 1, 2);
  rdma_cm_id* second = Resolved(port);
  ASSERT_EQ(ConnectAs(second, 3), 0);
  uint32_t requests = 0;
  for (uint32_t i = 0; i < kMaxAttempts; ++i) {
    while (!server->Quiet()) {
      const Seen seen = server->Next();
      if (seen.type != RDMA_CM_EVENT_CONNECT_REQUEST) continue;
      ++requests;
      ASSERT_EQ(AcceptAs(seen.id, 2), 0);
    }
    client->timers.Advance(kRetryNs);
  }
  EXPECT_EQ(requests, kMaxAttempts);
  bool unreachable = false;
  while (!client->Quiet()) {
    const Seen seen = client->Next();
    if (seen.id != second) continue;
    unreachable = seen.type == RDMA_CM_EVENT_UNREACHABLE && seen.status == -ETIMEDOUT;
  }
  EXPECT_TRUE(unreachable);
}

TEST_F(CmStaleTest, SameNumberAtBothEndsOfOneDeviceIsStale) {
  const uint16_t port = Listen();
  ASSERT_EQ(ConnectAs(Resolved(port), 9), 0);
  ASSERT_EQ(AcceptAs(server->Next().id, 9), 0);
  const Seen rejected = server->Next();
  EXPECT_EQ(rejected.type, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(rejected.status, 10);
}

TEST_F(CmStaleTest, NumbersArePerDevice) {
  const uint16_t port = Listen();
  Establish(port, 1, 2);
  const auto first_client = std::exchange(client, std::make_unique<Side>(/*node_guid=*/0xbeef));
  Establish(port, 1, 3);
  EXPECT_EQ(server->engine.counters().stale_connections, 0u);
}

TEST_F(CmStaleTest, UnansweredDisconnectKeepsTheNumber) {
  const uint16_t port = Listen();
  const Connection first = Establish(port, 1, 2);
  ASSERT_EQ(disconnect(first.client), 0);
  EXPECT_EQ(server->Next().type, RDMA_CM_EVENT_DISCONNECTED);
  rdma_cm_id* second = Resolved(port);
  ASSERT_EQ(ConnectAs(second, 1), 0);
  const Seen rejected = client->Next();
  EXPECT_EQ(rejected.type, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(rejected.status, 10);
}

TEST_F(CmStaleTest, DisconnectedNumbersAreFreeBeforeTimewaitEnds) {
  const uint16_t port = Listen();
  for (int i = 0; i < 20; ++i) {
    const Connection made = Establish(port, 1, 2);
    ASSERT_EQ(disconnect(made.client), 0);
    EXPECT_EQ(server->Next().type, RDMA_CM_EVENT_DISCONNECTED);
    ASSERT_EQ(disconnect(made.server), 0);
    EXPECT_EQ(client->Next().type, RDMA_CM_EVENT_DISCONNECTED);
  }
}

TEST_F(CmStaleTest, DestroyedConnectionsFreeTheirNumbersAtOnce) {
  const uint16_t port = Listen();
  for (int i = 0; i < 20; ++i) {
    const Connection made = Establish(port, 1, 2);
    client->Destroy(made.client);
    server->Destroy(made.server);
    while (!server->Quiet()) server->Next();
  }
}

TEST_F(CmStaleTest, ManyOnOneClientNumberOnlyOneGetsThrough) {
  const uint16_t port = Listen();
  constexpr int kCount = 50;
  std::vector<rdma_cm_id*> ids;
  for (int i = 0; i < kCount; ++i) ids.push_back(Resolved(port));
  for (rdma_cm_id* id : ids) ASSERT_EQ(ConnectAs(id, 1), 0);
  int requests = 0, responses = 0, stale = 0;
  while (!server->Quiet()) {
    const Seen seen = server->Next();
    if (seen.type != RDMA_CM_EVENT_CONNECT_REQUEST) continue;
    ++requests;
    AcceptAs(seen.id, 2);
  }
  while (!client->Quiet()) {
    const Seen seen = client->Next();
    responses += seen.type == RDMA_CM_EVENT_CONNECT_RESPONSE;
    stale += seen.type == RDMA_CM_EVENT_REJECTED && seen.status == 10;
  }
  EXPECT_EQ(requests, 1);
  EXPECT_EQ(responses, 1);
  EXPECT_EQ(stale, kCount - 1);
}

}  // namespace cm_disconnect_test
}  // namespace sluice::softdc::cm
