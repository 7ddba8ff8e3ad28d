// SPDX-License-Identifier: Apache-2.0
//
// The rendezvous of two hosts, and what it says of peers that vanish, of other programs at the port, and of wrong addresses.
#include "tools/hardware/rendezvous.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>

#include "tools/hardware/remote_target.h"

// Two names have two addresses: nobody listens at the first ("two-to-ask"), or it is not one of this host ("two-to-have").
extern "C" int getaddrinfo(const char* host, const char* port, const addrinfo* hints,
                           addrinfo** list) {
  const auto real = reinterpret_cast<decltype(&getaddrinfo)>(dlsym(RTLD_NEXT, "getaddrinfo"));
  const std::string name = host == nullptr ? "" : host;
  if (name != "two-to-ask" && name != "two-to-have") return real(host, port, hints, list);
  const int error = real(name == "two-to-ask" ? "127.0.0.2" : "192.0.2.77", port, hints, list);
  return error != 0 ? error : real("127.0.0.1", port, hints, &(*list)->ai_next);
}

namespace sluice::hardware {
namespace rendezvous_test {

using ::testing::HasSubstr;
using Made = absl::StatusOr<std::unique_ptr<Rendezvous>>;

constexpr absl::Duration kLong = absl::Seconds(50);

// A side that listens on a thread of its own.
class Listener {
 public:
  explicit Listener(absl::Duration timeout = kLong) {
    std::promise<uint16_t> port;
    std::future<uint16_t> known = port.get_future();
    made_ = std::async(std::launch::async, [&port, timeout] {
      return Rendezvous::Listen("127.0.0.1", 0, "dev-a", timeout,
                                [&port](uint16_t number) { port.set_value(number); });
    });
    this->port = known.get();
  }
  Made Take() { return made_.get(); }
  uint16_t port = 0;

 private:
  std::future<Made> made_;
};

Made Connect(uint16_t port) { return Rendezvous::Connect("127.0.0.1", port, "dev-b", kLong); }

// A program that is no peer.
int Stranger(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  return fd;
}

TEST(RendezvousTest, LinesArriveAndBothKnowThePeer) {
  Listener listener;
  Made b = Connect(listener.port);
  Made a = listener.Take();
  ASSERT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
  EXPECT_THAT((*a)->peer(), HasSubstr("dev-b on "));
  EXPECT_THAT((*b)->peer(), HasSubstr("dev-a on "));
  ASSERT_TRUE((*a)->Send("one").ok());
  ASSERT_TRUE((*a)->Send("two words").ok());
  EXPECT_EQ((*b)->Receive(kLong).value_or(""), "one");
  EXPECT_EQ((*b)->Receive(kLong).value_or(""), "two words");
}

TEST(RendezvousTest, PeerThatHasGoneIsNamedInEveryLaterCall) {
  Listener listener;
  Made b = Connect(listener.port);
  Made a = listener.Take();
  ASSERT_TRUE(a.ok() && b.ok());
  b->reset();
  for (int i = 0; i < 2; ++i) {
    const auto line = (*a)->Receive(kLong);
    EXPECT_EQ(line.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(line.status().message()), HasSubstr("dev-b on "));
    EXPECT_THAT(std::string(line.status().message()), HasSubstr("has gone"));
  }
  EXPECT_EQ((*a)->Send("x").code(), absl::StatusCode::kUnavailable);
}

TEST(RendezvousTest, PeerThatIsSilentIsGivenUp) {
  Listener listener;
  Made b = Connect(listener.port);
  Made a = listener.Take();
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ((*a)->Receive(absl::Milliseconds(1)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  // What it answers late answers nothing.
  ASSERT_TRUE((*b)->Send("late").ok());
  EXPECT_EQ((*a)->Receive(kLong).status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(RendezvousTest, StrangersAreClosedAndThePeerIsWaitedFor) {
  Listener listener;
  const int http = Stranger(listener.port);
  ASSERT_GT(write(http, "GET / HTTP/1.0\n", 15), 0);
  const int binary = Stranger(listener.port);
  ASSERT_GT(write(binary, "\x01\x00\xff\n", 4), 0);
  close(Stranger(listener.port));
  Made b = Connect(listener.port);
  Made a = listener.Take();
  EXPECT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
  close(http);
  close(binary);
}

TEST(RendezvousTest, AllAddressesOfAHostAreTried) {
  Listener listener;
  const Made b = Rendezvous::Connect("two-to-ask", listener.port, "dev-b", kLong);
  EXPECT_TRUE(b.ok()) << b.status();
  if (!b.ok()) {
    EXPECT_TRUE(Connect(listener.port).ok());
  }
  EXPECT_TRUE(listener.Take().ok());
  EXPECT_THAT(std::string(Rendezvous::Listen("two-to-have", 0, "dev", absl::Milliseconds(1),
                                             [](uint16_t) {})
                              .status()
                              .message()),
              HasSubstr("no peer came"));
}

// The listener of an earlier meeting, say, which closes with the connection in its queue.
TEST(RendezvousTest, ConnectionThatIsClosedIsTriedAgain) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(at);
  ASSERT_EQ(bind(listener, reinterpret_cast<const sockaddr*>(&at), sizeof(at)), 0);
  ASSERT_EQ(listen(listener, 4), 0);
  ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&at), &size), 0);
  auto made = std::async(std::launch::async, [port = ntohs(at.sin_port)] { return Connect(port); });
  close(accept(listener, nullptr, nullptr));
  ASSERT_EQ(fcntl(listener, F_SETFL, O_NONBLOCK), 0);
  int fd = -1;
  const std::string greeting = "sluice-hardware 1 dev-a host\n";
  while (fd < 0 && made.wait_for(std::chrono::milliseconds(1)) == std::future_status::timeout) {
    fd = accept(listener, nullptr, nullptr);
  }
  if (fd >= 0) {
    EXPECT_GT(send(fd, greeting.data(), greeting.size(), MSG_NOSIGNAL), 0);
  }
  const Made b = made.get();
  EXPECT_TRUE(b.ok()) << b.status();
  close(fd);
  close(listener);
}

// It greeted and gave up while others were greeted, and is there again.
TEST(RendezvousTest, ConnectionOfAPeerThatGaveUpIsNotTaken) {
  std::future<Made> again;
  const Made a = Rendezvous::Listen("127.0.0.1", 0, "dev-a", kLong, [&again](uint16_t port) {
    const int fd = Stranger(port);
    EXPECT_GT(send(fd, "sluice-hardware 1 dev-b host\n", 29, MSG_NOSIGNAL), 0);
    close(fd);
    again = std::async(std::launch::async, [port] { return Connect(port); });
  });
  ASSERT_TRUE(a.ok()) << a.status();
  const Made b = again.get();
  ASSERT_TRUE(b.ok()) << b.status();
  ASSERT_TRUE((*b)->Send("here").ok());
  EXPECT_EQ((*a)->Receive(kLong).value_or(""), "here");
}

TEST(RendezvousTest, GarbageIsSaid) {
  for (const std::string& garbage :
       {std::string("a\x01z\n"), std::string("caf\xc3\xa9\n"), std::string(10'000, 'x')}) {
    Listener listener;
    const int fd = Stranger(listener.port);
    const std::string greeting = "sluice-hardware 1 dev-b host\n" + garbage;
    ASSERT_EQ(send(fd, greeting.data(), greeting.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(greeting.size()));
    Made a = listener.Take();
    ASSERT_TRUE(a.ok()) << a.status();
    EXPECT_EQ((*a)->Receive(kLong).status().code(), absl::StatusCode::kInvalidArgument);
    close(fd);
  }
}

TEST(RendezvousTest, AddressesThatWillNotDoAreSaid) {
  Listener listener;
  const auto listen = [](const std::string& host, uint16_t port) {
    return Rendezvous::Listen(host, port, "dev", absl::Milliseconds(1), [](uint16_t) {}).status();
  };
  EXPECT_THAT(std::string(listen("127.0.0.1", listener.port).message()),
              HasSubstr("another program has the port"));
  EXPECT_THAT(std::string(listen("192.0.2.77", 0).message()), HasSubstr("not one of this host"));
  EXPECT_EQ(listen("no host has spaces", 0).code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(listen("127.0.0.1", 0).message()), HasSubstr("no peer came"));
  EXPECT_TRUE(Connect(listener.port).ok());
  ASSERT_TRUE(listener.Take().ok());
  const Made nobody = Rendezvous::Connect("127.0.0.1", listener.port, "dev", absl::Milliseconds(1));
  EXPECT_THAT(std::string(nobody.status().message()), HasSubstr("no process listens there"));
}

// What a peer asks that is no request ends the service, and says so at both ends.
TEST(RendezvousTest, RequestsThatAreNoneEndTheService) {
  const Nic none;  // nothing that is asked here reaches a device
  for (const char* request : {"", "target", "target 1 2 3", "target x 1 1 1 1", "receive 7 1",
                              "drop 1", "format the disk", "post 18446744073709551616 1"}) {
    Listener listener;
    Made b = Connect(listener.port);
    Made a = listener.Take();
    ASSERT_TRUE(a.ok() && b.ok());
    ASSERT_TRUE((*b)->Send(request).ok());
    EXPECT_EQ(ServeTargets(**a, none, kLong).code(), absl::StatusCode::kInvalidArgument) << request;
    EXPECT_THAT((*b)->Receive(kLong).value_or(""), HasSubstr("invalid request")) << request;
  }
}

// What a peer answers that is no target is an error of the probe.
TEST(RendezvousTest, AnswersThatAreNoneAreErrors) {
  for (const char* answer : {"ok", "ok 1 2 3", "yes", "ok 1 zz 1 2 3 4 5 6", "error no room"}) {
    Listener listener;
    Made b = Connect(listener.port);
    Made a = listener.Take();
    ASSERT_TRUE(a.ok() && b.ok());
    ASSERT_TRUE((*b)->Send(answer).ok());
    EXPECT_FALSE(RemoteTarget::Create(**a, {}).ok()) << answer;
  }
}

}  // namespace rendezvous_test
}  // namespace sluice::hardware
