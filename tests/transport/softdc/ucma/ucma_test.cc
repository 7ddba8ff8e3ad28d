// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/ucma/ucma.h"

#include <sys/wait.h>

#include <thread>

#include "tests/transport/softdc/ucma/ucma_fixture.h"

namespace sluice::softdc::ucma {
namespace ucma_test {

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

TEST_F(UcmaTest, OwnsExactlyWhatIsOpen) {
  const int fd = Open();
  ASSERT_GE(fd, 0);
  EXPECT_TRUE(Owns(fd));
  EXPECT_FALSE(Owns(-1));
  EXPECT_FALSE(Owns(STDERR_FILENO));
  EXPECT_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
  EXPECT_EQ(Close(fd), 0);
  EXPECT_FALSE(Owns(fd));
  EXPECT_EQ(fcntl(fd, F_GETFD), -1);
  EXPECT_EQ(Close(fd), -1);
  EXPECT_EQ(errno, EBADF);
  char command[64] = {};
  EXPECT_EQ(Write(fd, command, sizeof(command)), -1);
  EXPECT_EQ(errno, EBADF);
}

TEST_F(UcmaTest, NumberThatWasNeverOpenedIsNotOwned) {
  EXPECT_FALSE(Owns(-1));
  EXPECT_FALSE(Owns(69'000));
}

TEST_F(UcmaTest, WithoutAnEventItBlocksOrSaysTryAgain) {
  ASSERT_EQ(fcntl(client->fd(), F_SETFL, O_NONBLOCK), 0);
  abi::rdma_ucm_event_resp response{};
  EXPECT_EQ(client->GetEvent(&response), EAGAIN);
  ASSERT_EQ(fcntl(client->fd(), F_SETFL, 0), 0);
  std::atomic<pid_t> tid{0};
  std::thread reader([&] {
    tid = gettid();
    EXPECT_EQ(client->GetEvent(&response), 0);
  });
  while (tid == 0) std::this_thread::yield();
  AwaitBlocked(tid);
  const uint32_t id = client->Create(5);
  ASSERT_EQ(client->ResolveAddr(id, Ipv4("127.0.0.1", 1)), 0);
  reader.join();
  EXPECT_EQ(response.event, RDMA_CM_EVENT_ADDR_RESOLVED);
}

TEST_F(UcmaTest, CancelledReaderLeavesNoLockBehind) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer takes the stack that a cancelled thread leaves for one in use";
#endif
  std::atomic<pid_t> tid{0};
  pthread_t reader;
  struct Reader {
    Descriptor* from;
    std::atomic<pid_t>* tid;
  } argument{client.get(), &tid};
  ASSERT_EQ(pthread_create(
                &reader, nullptr,
                [](void* raw) -> void* {
                  auto* const mine = static_cast<Reader*>(raw);
                  *mine->tid = gettid();
                  abi::rdma_ucm_event_resp response;
                  mine->from->GetEvent(&response);
                  return nullptr;
                },
                &argument),
            0);
  while (tid == 0) std::this_thread::yield();
  AwaitBlocked(tid);
  ASSERT_EQ(pthread_cancel(reader), 0);
  void* result = nullptr;
  ASSERT_EQ(pthread_join(reader, &result), 0);
  EXPECT_EQ(result, PTHREAD_CANCELED);
  const uint32_t id = client->Create(5);
  ASSERT_EQ(client->ResolveAddr(id, Ipv4("127.0.0.1", 1)), 0);
  EXPECT_EQ(client->Next().event, RDMA_CM_EVENT_ADDR_RESOLVED);
}

TEST_F(UcmaTest, ClosedDescriptorEndsItsConnections) {
  const Connection made = Establish(Listen());
  client->CloseNow();
  const abi::rdma_ucm_event_resp gone = server->Next();
  EXPECT_EQ(gone.event, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(gone.id, made.server_id);
}

TEST_F(UcmaTest, ClosedDescriptorRejectsWhatNobodyHasRead) {
  const uint16_t port = Listen();
  const uint32_t id = Resolved(port);
  ASSERT_EQ(client->Connect(id, 1), 0);
  pollfd readable{.fd = server->fd(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&readable, 1, 20'000), 1);
  server->CloseNow();
  const abi::rdma_ucm_event_resp rejected = client->Next();
  EXPECT_EQ(rejected.event, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(rejected.status, 28u);
}

// The child does as daemons do: it closes what it inherited, and may open its own.
TEST_F(UcmaTest, ChildOfAForkNeitherUsesNorEndsTheParents) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer can't follow a thread started after fork";
#endif
  const Connection made = Establish(Listen());
  cm::UseEngine(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    abi::rdma_ucm_event_resp response;
    if (!Owns(client->fd())) _exit(1);
    if (client->GetEvent(&response) != ENODEV) _exit(2);
    if (Close(client->fd()) != 0 || Close(server->fd()) != 0) _exit(3);
    const int own = Open();
    if (own < 0 || !Owns(own)) _exit(4);
    abi::rdma_ucm_cmd_hdr header{abi::RDMA_USER_CM_CMD_GET_OPTION, 0, 0};
    if (Write(own, &header, sizeof(header)) != -1 || errno != ENOSYS) _exit(5);
    _exit(Close(own) == 0 ? 0 : 6);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << WEXITSTATUS(status);
  cm::UseEngine(engine.get());
  EXPECT_FALSE(server->Readable());
  ASSERT_EQ(client->Disconnect(made.client_id), 0);
  EXPECT_EQ(server->Next().event, RDMA_CM_EVENT_DISCONNECTED);
}

}  // namespace ucma_test
}  // namespace sluice::softdc::ucma
