// SPDX-License-Identifier: Apache-2.0
//
// Peers that die, and peers that talk nonsense.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cstring>
#include <random>

#include "tests/transport/softdc/cm/cm_fixture.h"
#include "transport/softdc/loop/messages.h"
#include "transport/softdc/loop/names.h"

namespace sluice::softdc::cm {
namespace cm_process_test {

constexpr char kPortVariable[] = "SOFTDC_CM_TEST_PORT";
constexpr char kStopVariable[] = "SOFTDC_CM_TEST_STOP";
constexpr uint32_t kChildQpn = 0x111;

rdma_cm_event* Expect(rdma_event_channel* channel, rdma_cm_event_type type) {
  rdma_cm_event* event = nullptr;
  if (get_cm_event(channel, &event) != 0 || event->event != type) _exit(10 + type);
  return event;
}

// Not a test: the main of the child process, run by name. Uses the engine, loop and timers of
// production.
TEST(CmChild, DISABLED_Main) {
  const char* port = getenv(kPortVariable);
  const char* stop = getenv(kStopVariable);
  ASSERT_NE(port, nullptr);
  ASSERT_NE(stop, nullptr);
  rdma_event_channel* channel = create_event_channel();
  rdma_cm_id* id = nullptr;
  if (channel == nullptr || create_id(channel, &id, nullptr, RDMA_PS_TCP) != 0) _exit(2);
  sockaddr_in to = Ipv4("127.0.0.1", static_cast<uint16_t>(atoi(port)));
  if (resolve_addr(id, nullptr, Generic(&to), 1000) != 0) _exit(3);
  ack_cm_event(Expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED));
  if (resolve_route(id, 1000) != 0) _exit(4);
  ack_cm_event(Expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED));
  rdma_conn_param param{};
  param.qp_num = kChildQpn;
  if (connect(id, &param) != 0) _exit(5);
  if (strcmp(stop, "request") != 0) {
    ack_cm_event(Expect(channel, RDMA_CM_EVENT_CONNECT_RESPONSE));
    if (strcmp(stop, "response") != 0 && establish(id) != 0) _exit(6);
  }
  for (;;) pause();
}

class Child {
 public:
  Child(uint16_t port, const char* stop) {
    setenv(kPortVariable, std::to_string(port).c_str(), 1);
    setenv(kStopVariable, stop, 1);
    pid_ = fork();
    if (pid_ == 0) {
      execl("/proc/self/exe", "child", "--gtest_also_run_disabled_tests",
            "--gtest_filter=CmChild.DISABLED_Main", "--gtest_output=", nullptr);
      _exit(127);
    }
  }
  ~Child() { Kill(); }

  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    EXPECT_TRUE(WIFSIGNALED(status)) << "the child ended by itself: " << WEXITSTATUS(status);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
};

TEST_F(CmProcessTest, KilledClientDisconnectsAndFreesItsNumberOnceAnswered) {
  const uint16_t port = Listen();
  for (int round = 0; round < 3; ++round) {
    Child child(port, "established");
    const Seen request = server->Next();
    ASSERT_EQ(request.type, RDMA_CM_EVENT_CONNECT_REQUEST);
    EXPECT_EQ(request.conn.qp_num, kChildQpn);
    ASSERT_EQ(AcceptAs(request.id, 2), 0);
    ASSERT_EQ(server->Next().type, RDMA_CM_EVENT_ESTABLISHED);
    child.Kill();
    const Seen gone = server->Next();
    EXPECT_EQ(gone.type, RDMA_CM_EVENT_DISCONNECTED);
    EXPECT_EQ(gone.id, request.id);
    ASSERT_EQ(disconnect(request.id), 0);
    server->timers.Advance(kSecond * 2);
    EXPECT_EQ(server->Next().type, RDMA_CM_EVENT_TIMEWAIT_EXIT);
  }
}

TEST_F(CmProcessTest, ClientKilledBeforeItsRtuIsRejection) {
  const uint16_t port = Listen();
  Child child(port, "response");
  const Seen request = server->Next();
  ASSERT_EQ(AcceptAs(request.id, 2), 0);
  EXPECT_TRUE(server->Quiet());
  child.Kill();
  const Seen rejected = server->Next();
  EXPECT_EQ(rejected.type, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(rejected.status, 28);
}

TEST_F(CmProcessTest, ClientKilledBeforeTheAnswerMakesAcceptFail) {
  const uint16_t port = Listen();
  Child child(port, "request");
  const Seen request = server->Next();
  ASSERT_EQ(request.type, RDMA_CM_EVENT_CONNECT_REQUEST);
  child.Kill();
  EXPECT_TRUE(server->Quiet());
  EXPECT_EQ(AcceptAs(request.id, 2), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(CmProcessTest, KilledClientInDisconnectCountsAsAnswer) {
  const uint16_t port = Listen();
  Child child(port, "established");
  const Seen request = server->Next();
  ASSERT_EQ(AcceptAs(request.id, 2), 0);
  ASSERT_EQ(server->Next().type, RDMA_CM_EVENT_ESTABLISHED);
  ASSERT_EQ(disconnect(request.id), 0);
  EXPECT_TRUE(server->Quiet());
  child.Kill();
  const Seen gone = server->Next();
  EXPECT_EQ(gone.type, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(gone.status, 0);
}

std::string PortName(uint16_t port) { return AbstractName("cm", std::to_string(port)); }

WireMessage GoodReq(uint16_t port) {
  WireMessage req = NewMessage(MessageType::kReq);
  req.qp_num = 0x777;
  req.source.family = req.destination.family = AF_INET;
  req.destination.port = htons(port);
  req.destination.bytes[0] = 127;
  req.destination.bytes[3] = 1;
  return req;
}

TEST_F(CmProcessTest, GarbageOnTheListenerIsCountedClosedAndForgotten) {
  const uint16_t port = Listen();
  std::mt19937 random(20261120);
  constexpr int kRounds = 500;
  for (int i = 0; i < kRounds; ++i) {
    UniqueFd fd = ConnectAbstract(PortName(port));
    ASSERT_TRUE(fd);
    std::byte bytes[sizeof(WireMessage) + 64];
    WireMessage req = GoodReq(port);
    std::memcpy(bytes, &req, sizeof(req));
    size_t length = sizeof(req);
    switch (i % 5) {
      case 0:  // noise of any length
        length = 1 + random() % sizeof(bytes);
        for (std::byte& b : bytes) b = static_cast<std::byte>(random());
        break;
      case 1:  // cut
        length = 1 + random() % (sizeof(req) - 1);
        break;
      case 2:  // too long
        length = sizeof(req) + 1 + random() % 63;
        break;
      case 3:  // another version, magic or type
        bytes[random() % 7] ^= std::byte{0x80};
        break;
      case 4:  // right, but not how one begins
        bytes[6] = static_cast<std::byte>(static_cast<int>(MessageType::kMra) + random() % 7);
        break;
    }
    ASSERT_EQ(SendWithFds(fd.get(), {bytes, length}), 0);
    pollfd end{.fd = fd.get(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(poll(&end, 1, 20'000), 1);
    char byte;
    ssize_t got = recv(fd.get(), &byte, 1, 0);
    if (got < 0 && errno == ECONNRESET) got = recv(fd.get(), &byte, 1, 0);
    EXPECT_EQ(got, 0);  // closed without an answer
  }
  EXPECT_EQ(server->engine.counters().garbage_messages, static_cast<uint64_t>(kRounds));
  EXPECT_TRUE(server->Quiet());
  Establish(port, 1, 2);  // and the listener still works
}

TEST_F(CmProcessTest, MutatedRequestsNeverCrash) {
  const uint16_t port = Listen();
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {
    UniqueFd fd = ConnectAbstract(PortName(port));
    ASSERT_TRUE(fd);
    WireMessage req = GoodReq(port);
    std::byte bytes[sizeof(req)];
    std::memcpy(bytes, &req, sizeof(req));
    for (int flips = static_cast<int>(random() % 6); flips >= 0; --flips) {
      bytes[8 + random() % (sizeof(bytes) - 8)] = static_cast<std::byte>(random());
    }
    ASSERT_EQ(SendWithFds(fd.get(), bytes), 0);
    for (int more = static_cast<int>(random() % 4); more > 0; --more) {
      WireMessage next = NewMessage(static_cast<MessageType>(1 + random() % 8));
      next.reject_reason = static_cast<uint8_t>(random());
      SendWithFds(fd.get(), std::as_bytes(std::span(&next, 1)));
    }
    if (i % 50 == 0) {
      while (!server->Quiet()) {
        const Seen seen = server->Next();
        if (seen.type == RDMA_CM_EVENT_CONNECT_REQUEST) AcceptAs(seen.id, random() & 0xffffff);
      }
    }
  }
  while (!server->Quiet()) server->Next();
  Establish(port, 0x654321, 0x123456);
}

TEST_F(CmProcessTest, GarbageOnALiveConnectionDisconnectsIt) {
  const uint16_t port = Listen();
  UniqueFd fd = ConnectAbstract(PortName(port));
  ASSERT_TRUE(fd);
  WireMessage message = GoodReq(port);
  ASSERT_EQ(SendWithFds(fd.get(), std::as_bytes(std::span(&message, 1))), 0);
  const Seen request = server->Next();
  ASSERT_EQ(AcceptAs(request.id, 2), 0);
  message = NewMessage(MessageType::kRtu);
  ASSERT_EQ(SendWithFds(fd.get(), std::as_bytes(std::span(&message, 1))), 0);
  ASSERT_EQ(server->Next().type, RDMA_CM_EVENT_ESTABLISHED);
  const char noise[] = "noise";
  ASSERT_EQ(SendWithFds(fd.get(), std::as_bytes(std::span(noise))), 0);
  EXPECT_EQ(server->Next().type, RDMA_CM_EVENT_DISCONNECTED);
}

TEST_F(CmProcessTest, SilentWiresAreDroppedInTheEndAndBoundedMeanwhile) {
  const uint16_t port = Listen();
  std::vector<UniqueFd> silent;
  constexpr size_t kSilent = kMaxUnidentifiedWires / 4;
  for (size_t i = 0; i < kSilent; ++i) {
    silent.push_back(ConnectAbstract(PortName(port)));
    ASSERT_TRUE(silent.back());
  }
  Settle();
  EXPECT_EQ(server->timers.armed(), kSilent);
  server->timers.Advance(kFirstMessageNs);
  EXPECT_EQ(server->engine.counters().refused_wires, kSilent);
  EXPECT_EQ(server->timers.armed(), 0u);
}

// Takes all descriptors that the process may still have.
class NoDescriptorsLeft {
 public:
  NoDescriptorsLeft() {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    rlimit low = before_;
    low.rlim_cur = 256;
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
    for (int fd = dup(STDERR_FILENO); fd >= 0; fd = dup(STDERR_FILENO)) taken_.emplace_back(fd);
    EXPECT_EQ(errno, EMFILE);
  }
  ~NoDescriptorsLeft() {
    taken_.clear();
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before_), 0);
  }

 private:
  rlimit before_{};
  std::vector<UniqueFd> taken_;
};

TEST_F(CmProcessTest, ListenerWithoutDescriptorsRestsAndResumes) {
  const uint16_t port = Listen();
  rdma_cm_id* id = Resolved(port);
  rdma_cm_id* unbound = client->NewId();
  sockaddr_in to = Ipv4("127.0.0.1", port);
  {
    NoDescriptorsLeft none;
    EXPECT_EQ(resolve_addr(unbound, nullptr, Generic(&to), 1000), -1);
    EXPECT_EQ(errno, EMFILE);
    ASSERT_EQ(ConnectAs(id, 1), 0);  // its descriptor is the one of its port
    EXPECT_TRUE(server->Quiet());
    const uint64_t wakeups = Loop::Get().wakeups();
    Settle();
    EXPECT_LT(Loop::Get().wakeups() - wakeups, 40u);  // those of Settle, not a spin on the backlog
  }
  const Seen request = server->Next();
  EXPECT_EQ(request.type, RDMA_CM_EVENT_CONNECT_REQUEST);
  {
    NoDescriptorsLeft none;
    ASSERT_EQ(AcceptAs(request.id, 2), 0);
    const Seen error = client->Next();  // no descriptor for the server's number
    EXPECT_EQ(error.type, RDMA_CM_EVENT_CONNECT_ERROR);
    EXPECT_EQ(error.status, -EMFILE);
  }
  const Seen rejected = server->Next();
  EXPECT_EQ(rejected.type, RDMA_CM_EVENT_REJECTED);
}

// A listener that talks another language, or none.
class FakeListener {
 public:
  explicit FakeListener(uint16_t port) : fd_(ListenAbstract(PortName(port), 8)) {
    EXPECT_TRUE(fd_);
  }
  UniqueFd Accept() {
    pollfd readable{.fd = fd_.get(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(poll(&readable, 1, 20'000), 1);
    return AcceptSameUser(fd_.get());
  }

 private:
  UniqueFd fd_;
};

TEST_F(CmProcessTest, ListenerThatAnswersGarbageIsAConnectError) {
  FakeListener listener(4242);
  rdma_cm_id* id = Resolved(4242);
  ASSERT_EQ(ConnectAs(id, 1), 0);
  UniqueFd wire = listener.Accept();
  ASSERT_TRUE(wire);
  WireMessage future = NewMessage(MessageType::kRep);
  future.version = kWireVersion + 1;
  ASSERT_EQ(SendWithFds(wire.get(), std::as_bytes(std::span(&future, 1))), 0);
  const Seen error = client->Next();
  EXPECT_EQ(error.type, RDMA_CM_EVENT_CONNECT_ERROR);
  EXPECT_EQ(error.status, -EPROTO);
}

TEST_F(CmProcessTest, ListenerThatHangsUpIsTriedAgainThenAConnectError) {
  FakeListener listener(4242);
  rdma_cm_id* id = Resolved(4242);
  ASSERT_EQ(ConnectAs(id, 1), 0);
  for (uint32_t i = 0; i < kMaxUnanswered; ++i) {
    listener.Accept().Reset();
    Settle();
    if (i + 1 < kMaxUnanswered) {
      EXPECT_TRUE(client->Quiet());
      client->timers.Advance(kQuickRetryNs);
    }
  }
  const Seen error = client->Next();
  EXPECT_EQ(error.type, RDMA_CM_EVENT_CONNECT_ERROR);
  EXPECT_EQ(error.status, -ECONNRESET);
}

TEST_F(CmProcessTest, ListenerThatDiesInBetweenIsNobodyListening) {
  rdma_cm_id* id = Resolved(4242);
  {
    FakeListener listener(4242);
    ASSERT_EQ(ConnectAs(id, 1), 0);
    listener.Accept().Reset();
  }
  Settle();
  client->timers.Advance(kQuickRetryNs);
  const Seen rejected = client->Next();
  EXPECT_EQ(rejected.type, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(rejected.status, 8);
}

}  // namespace cm_process_test
}  // namespace sluice::softdc::cm
