// SPDX-License-Identifier: Apache-2.0
//
// Event channels: the descriptor, blocking, acknowledgement, migration.
#include <sys/epoll.h>

#include <thread>

#include "tests/transport/softdc/cm/cm_fixture.h"

namespace sluice::softdc::cm {
namespace cm_event_test {

bool Readable(int fd) {
  pollfd state{.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&state, 1, 0) == 1;
}

void MakeEvent(rdma_cm_id* id) {
  sockaddr_in to = Ipv4("127.0.0.1", 1);
  ASSERT_EQ(resolve_addr(id, nullptr, Generic(&to), 1), 0);
}

// Until the thread sits in a system call that waits: only then "it blocks" can be said.
void AwaitBlocked(pid_t tid) {
  const std::string path = "/proc/self/task/" + std::to_string(tid) + "/stat";
  for (;;) {
    FILE* file = fopen(path.c_str(), "r");
    ASSERT_NE(file, nullptr);
    char state = 0;
    const int fields = fscanf(file, "%*d %*s %c", &state);
    fclose(file);
    if (fields == 1 && state == 'S') return;
    std::this_thread::yield();
  }
}

TEST_F(CmEventTest, DescriptorIsReadableExactlyWhileEventsWait) {
  rdma_cm_id* a = client->NewId();
  rdma_cm_id* b = client->NewId();
  EXPECT_FALSE(Readable(client->channel->fd));
  MakeEvent(a);
  MakeEvent(b);
  EXPECT_TRUE(Readable(client->channel->fd));
  client->Next();
  EXPECT_TRUE(Readable(client->channel->fd));
  client->Next();
  EXPECT_FALSE(Readable(client->channel->fd));
}

TEST_F(CmEventTest, NonBlockingChannelSaysTryAgain) {
  ASSERT_EQ(fcntl(client->channel->fd, F_SETFL, O_NONBLOCK), 0);
  rdma_cm_event* event = nullptr;
  EXPECT_EQ(get_cm_event(client->channel, &event), -1);
  EXPECT_EQ(errno, EAGAIN);
  MakeEvent(client->NewId());
  ASSERT_EQ(get_cm_event(client->channel, &event), 0);
  EXPECT_EQ(ack_cm_event(event), 0);
  EXPECT_EQ(get_cm_event(client->channel, &event), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(CmEventTest, BlockedReaderSleepsAndIsWokenByTheEvent) {
  std::atomic<pid_t> tid{0};
  rdma_cm_event_type type{};
  std::thread reader([&] {
    tid = gettid();
    rdma_cm_event* event = nullptr;
    ASSERT_EQ(get_cm_event(client->channel, &event), 0);
    type = event->event;
    ASSERT_EQ(ack_cm_event(event), 0);
  });
  while (tid == 0) std::this_thread::yield();
  AwaitBlocked(tid);
  MakeEvent(client->NewId());
  reader.join();
  EXPECT_EQ(type, RDMA_CM_EVENT_ADDR_RESOLVED);
}

TEST_F(CmEventTest, ManyReadersGetEachEventOnce) {
  constexpr int kReaders = 4, kEvents = 200;
  std::atomic<int> got{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < kReaders; ++i) {
    readers.emplace_back([&] {
      for (int n = 0; n < kEvents / kReaders; ++n) {
        rdma_cm_event* event = nullptr;
        ASSERT_EQ(get_cm_event(client->channel, &event), 0);
        ++got;
        ASSERT_EQ(ack_cm_event(event), 0);
      }
    });
  }
  for (int i = 0; i < kEvents; ++i) MakeEvent(client->NewId());
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(got, kEvents);
  EXPECT_FALSE(Readable(client->channel->fd));
}

TEST_F(CmEventTest, DestroyWaitsForTheAcknowledgement) {
  rdma_cm_id* id = nullptr;
  ASSERT_EQ(create_id(client->channel, &id, nullptr, RDMA_PS_TCP), 0);
  MakeEvent(id);
  rdma_cm_event* event = nullptr;
  ASSERT_EQ(get_cm_event(client->channel, &event), 0);
  std::atomic<pid_t> tid{0};
  std::atomic<bool> destroyed{false};
  std::thread destroyer([&] {
    tid = gettid();
    ASSERT_EQ(destroy_id(id), 0);
    destroyed = true;
  });
  while (tid == 0) std::this_thread::yield();
  AwaitBlocked(tid);
  EXPECT_FALSE(destroyed);
  ASSERT_EQ(ack_cm_event(event), 0);
  destroyer.join();
  EXPECT_TRUE(destroyed);
}

TEST_F(CmEventTest, DestroyDropsEventsNobodyHasRead) {
  rdma_cm_id* doomed = client->NewId();
  rdma_cm_id* other = client->NewId();
  MakeEvent(doomed);
  MakeEvent(other);
  client->Destroy(doomed);
  EXPECT_TRUE(Readable(client->channel->fd));
  EXPECT_EQ(client->Next().id, other);
  EXPECT_FALSE(Readable(client->channel->fd));
}

TEST_F(CmEventTest, MigrationTakesPendingEventsAlongInOrder) {
  rdma_cm_id* moving = client->NewId();
  rdma_cm_id* staying = client->NewId();
  MakeEvent(moving);
  MakeEvent(staying);
  rdma_event_channel* const other = client->NewChannel();
  ASSERT_EQ(migrate_id(moving, other), 0);
  EXPECT_EQ(moving->channel, other);
  EXPECT_EQ(client->Next(other).id, moving);
  EXPECT_EQ(client->Next().id, staying);
  ASSERT_EQ(resolve_route(moving, 1), 0);
  EXPECT_EQ(client->Next(other).type, RDMA_CM_EVENT_ROUTE_RESOLVED);
  EXPECT_EQ(migrate_id(moving, nullptr), -1);
  EXPECT_EQ(migrate_id(moving, server->channel), -1);  // another host's
  EXPECT_EQ(migrate_id(moving, other), 0);
}

TEST_F(CmEventTest, MigrationWaitsForAcknowledgements) {
  rdma_cm_id* id = client->NewId();
  MakeEvent(id);
  rdma_cm_event* event = nullptr;
  ASSERT_EQ(get_cm_event(client->channel, &event), 0);
  rdma_event_channel* const other = client->NewChannel();
  std::atomic<pid_t> tid{0};
  std::atomic<bool> migrated{false};
  std::thread migrator([&] {
    tid = gettid();
    ASSERT_EQ(migrate_id(id, other), 0);
    migrated = true;
  });
  while (tid == 0) std::this_thread::yield();
  AwaitBlocked(tid);
  EXPECT_FALSE(migrated);
  ASSERT_EQ(ack_cm_event(event), 0);
  migrator.join();
  EXPECT_TRUE(migrated);
}

TEST_F(CmEventTest, MigratedListenerTakesUnreadRequestsAlong) {
  const uint16_t port = Listen();
  ASSERT_EQ(ConnectAs(Resolved(port), 1), 0);
  pollfd readable{.fd = server->channel->fd, .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&readable, 1, 20'000), 1);
  rdma_event_channel* const other = server->NewChannel();
  ASSERT_EQ(migrate_id(listener, other), 0);
  EXPECT_FALSE(Readable(server->channel->fd));
  const Seen request = server->Next(other);
  EXPECT_EQ(request.type, RDMA_CM_EVENT_CONNECT_REQUEST);
  EXPECT_EQ(request.id->channel, other);
  ASSERT_EQ(AcceptAs(request.id, 2), 0);
  EXPECT_EQ(client->Next().type, RDMA_CM_EVENT_CONNECT_RESPONSE);
}

TEST_F(CmEventTest, ClosedChannelEndsItsIdsAndTheirPeersHearOfIt) {
  const Connection made = Establish(Listen(), 1, 2);
  rdma_event_channel* const other = client->NewChannel();
  ASSERT_EQ(migrate_id(made.client, other), 0);
  client->CloseChannel(other);
  EXPECT_EQ(server->Next().type, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(disconnect(made.client), -1);  // the kernel has no such id any more
  EXPECT_EQ(errno, ENOENT);
  client->Destroy(made.client);  // gives back what the application holds
}

TEST_F(CmEventTest, IdleConnectionHasNoTimersArmed) {
  const uint16_t port = Listen();
  Establish(port, 1, 2);
  Settle();
  EXPECT_EQ(client->timers.armed(), 0u);
  EXPECT_EQ(server->timers.armed(), 0u);
}

}  // namespace cm_event_test
}  // namespace sluice::softdc::cm
