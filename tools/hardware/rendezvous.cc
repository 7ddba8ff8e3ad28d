// SPDX-License-Identifier: Apache-2.0
#include "tools/hardware/rendezvous.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "transport/base/error.h"

namespace sluice::hardware {
namespace {

constexpr char kGreeting[] = "sluice-hardware";
constexpr char kVersion[] = "1";
constexpr absl::Duration kGreetingTimeout = absl::Seconds(5);
constexpr absl::Duration kStrangerTimeout = absl::Seconds(2);  // the peer may wait behind one
constexpr absl::Duration kConnectTimeout = absl::Seconds(5);   // of one address
constexpr absl::Duration kBetweenTries = absl::Milliseconds(100);

struct Found {
  sockaddr_storage address{};
  socklen_t size = 0;
};

absl::StatusOr<std::vector<Found>> Resolve(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (error != 0 || list == nullptr) {
    return base::Error(absl::StatusCode::kNotFound, "no address for host " + host,
                       {.layer = "hardware",
                        .operation = "rendezvous",
                        .cause = gai_strerror(error),
                        .remedy = "give a name or an address that both hosts know"});
  }
  std::vector<Found> all;
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next) {
    Found& found = all.emplace_back();
    found.size = one->ai_addrlen;
    std::copy_n(reinterpret_cast<const char*>(one->ai_addr), one->ai_addrlen,
                reinterpret_cast<char*>(&found.address));
  }
  freeaddrinfo(list);
  return all;
}

// A socket that listens there; -1: errno says why not.
int ListenAt(const Found& found) {
  const int listener = socket(found.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener < 0) return -1;
  const int on = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(listener, reinterpret_cast<const sockaddr*>(&found.address), found.size) == 0 &&
      listen(listener, 4) == 0) {
    return listener;
  }
  const int error = errno;
  close(listener);
  errno = error;
  return -1;
}

std::string Text(const sockaddr_storage& address, socklen_t size) {
  char host[NI_MAXHOST] = "?";
  getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host, sizeof(host), nullptr, 0,
              NI_NUMERICHOST);
  return host;
}

// Whether `fd` has `events` before `end`.
bool Wait(int fd, short events, absl::Time end) {
  while (true) {
    const int64_t left = absl::ToInt64Milliseconds(end - absl::Now());
    pollfd one{.fd = fd, .events = events, .revents = 0};
    const int ready = poll(&one, 1, static_cast<int>(std::clamp<int64_t>(left, 0, INT_MAX)));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

void NoDelay(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Rendezvous>> Rendezvous::Listen(
    const std::string& host, uint16_t port, const std::string& device, absl::Duration timeout,
    const std::function<void(uint16_t)>& listening) {
  const absl::Time end = absl::Now() + timeout;
  auto found = Resolve(host, port);
  if (!found.ok()) return found.status();
  int listener = -1;
  for (const Found& one : *found) {
    listener = ListenAt(one);
    // The peer would find that program.
    if (listener >= 0 || errno == EADDRINUSE) break;
  }
  if (listener < 0) {
    const int error = errno;
    const bool in_use = error == EADDRINUSE;
    return base::ErrnoError(
        error, absl::StrCat("listening at ", host, ":", port),
        {.layer = "hardware",
         .operation = "rendezvous",
         .cause = in_use ? "another program has the port" : "the address is not one of this host",
         .remedy = in_use ? "choose another port" : "give an address of this host with --listen"});
  }
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  getsockname(listener, reinterpret_cast<sockaddr*>(&bound), &size);
  listening(ntohs(bound.ss_family == AF_INET6
                      ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                      : reinterpret_cast<const sockaddr_in&>(bound).sin_port));
  while (Wait(listener, POLLIN, end)) {
    sockaddr_storage from{};
    size = sizeof(from);
    const int fd = accept4(listener, reinterpret_cast<sockaddr*>(&from), &size, SOCK_CLOEXEC);
    if (fd < 0) {
      absl::SleepFor(kBetweenTries);  // without a free descriptor the connection stays in the queue
      continue;
    }
    auto made = std::unique_ptr<Rendezvous>(new Rendezvous(fd, Text(from, size)));
    absl::Status status = made->Greet(device, kStrangerTimeout);
    // A peer that gave up meanwhile comes again, on another connection.
    if (status.ok() && Wait(fd, POLLRDHUP, absl::Now())) status = made->Gone(0);
    if (status.ok()) {
      close(listener);
      return made;
    }
    std::fprintf(stderr, "rendezvous: %s\n", std::string(status.message()).c_str());
  }
  close(listener);
  return base::Error(
      absl::StatusCode::kDeadlineExceeded, absl::StrCat("no peer came to ", host, ":", port),
      {.layer = "hardware",
       .operation = "rendezvous",
       .cause = "it was not started, or a firewall is between the hosts",
       .remedy = "start the other side with --peer, and see that TCP reaches the port"});
}

absl::StatusOr<std::unique_ptr<Rendezvous>> Rendezvous::Connect(const std::string& host,
                                                                uint16_t port,
                                                                const std::string& device,
                                                                absl::Duration timeout) {
  const absl::Time end = absl::Now() + timeout;
  auto found = Resolve(host, port);
  if (!found.ok()) return found.status();
  int error = 0;
  absl::Status greeting;  // of the last that took a connection
  for (size_t i = 0; i == 0 || absl::Now() < end; ++i) {
    const Found& to = (*found)[i % found->size()];
    const int fd = socket(to.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    // The host may have no addresses of that family.
    if (fd < 0 && errno != EAFNOSUPPORT) {
      return base::ErrnoError(errno, "a socket", {.layer = "hardware"});
    }
    const auto* address = reinterpret_cast<const sockaddr*>(&to.address);
    error = fd < 0 || connect(fd, address, to.size) != 0 ? errno : 0;
    if (error == EINPROGRESS) {
      socklen_t size = sizeof(error);
      error = ETIMEDOUT;
      if (Wait(fd, POLLOUT, std::min(end, absl::Now() + kConnectTimeout))) {
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
      }
    }
    if (error == 0) {
      auto made = std::unique_ptr<Rendezvous>(new Rendezvous(fd, Text(to.address, to.size)));
      greeting = made->Greet(device, kGreetingTimeout);
      if (greeting.ok()) return made;
      // Another program or another release stays what it is. One that went away may have been the listener of an earlier meeting.
      if (greeting.code() == absl::StatusCode::kInvalidArgument) return greeting;
    } else if (fd >= 0) {
      close(fd);
    }
    if (i % found->size() + 1 < found->size()) continue;
    absl::SleepFor(std::min(kBetweenTries, std::max(absl::ZeroDuration(), end - absl::Now())));
  }
  if (!greeting.ok()) return greeting;
  return base::ErrnoError(
      error, absl::StrCat("connecting to ", host, ":", port),
      {.layer = "hardware",
       .operation = "rendezvous",
       .cause = "no process listens there, or a firewall is between the hosts",
       .remedy = "start the other side with --listen first, and see that TCP reaches the port"});
}

Rendezvous::~Rendezvous() { close(fd_); }

absl::Status Rendezvous::Greet(const std::string& device, absl::Duration timeout) {
  NoDelay(fd_);
  char name[256] = "?";
  gethostname(name, sizeof(name) - 1);
  absl::Status status = Send(absl::StrCat(kGreeting, " ", kVersion, " ", device, " ", name));
  if (!status.ok()) return status;
  const auto line = Receive(timeout);
  if (!line.ok()) return base::Prefix(line.status(), "no greeting from " + address_);
  const std::vector<std::string> words = absl::StrSplit(*line, ' ');
  if (words.size() != 4 || words[0] != kGreeting) {
    return base::Error(absl::StatusCode::kInvalidArgument, "no greeting from " + address_,
                       {.layer = "hardware",
                        .operation = "rendezvous",
                        .cause = "another program is at this port",
                        .remedy = "give the port of the other side of ./dev hardware"});
  }
  if (words[1] != kVersion) {
    return base::Error(absl::StatusCode::kInvalidArgument, address_ + " is of another release",
                       {.layer = "hardware",
                        .operation = "rendezvous",
                        .remedy = "run the same release on both hosts"});
  }
  peer_ = absl::StrCat(words[2], " on ", words[3], " (", address_, ")");
  return absl::OkStatus();
}

absl::Status Rendezvous::Gone(int error_number) {
  broken_ = base::Error(absl::StatusCode::kUnavailable, peer_ + " has gone",
                        {.layer = "hardware",
                         .operation = "rendezvous",
                         .cause = error_number == 0 ? "its program ended" : "the connection broke",
                         .remedy = "read its output on the other host, and start both sides again",
                         .syndrome = static_cast<uint32_t>(error_number)});
  return broken_;
}

absl::Status Rendezvous::Send(const std::string& line) {
  if (!broken_.ok()) return broken_;
  const std::string text = line + "\n";
  const absl::Time end = absl::Now() + kGreetingTimeout;
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t now =
        send(fd_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (now > 0) {
      sent += static_cast<size_t>(now);
    } else if (errno != EAGAIN && errno != EINTR) {
      return Gone(errno);
    } else if (!Wait(fd_, POLLOUT, end)) {
      return Gone(ETIMEDOUT);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Rendezvous::Receive(absl::Duration timeout) {
  if (!broken_.ok()) return broken_;
  auto line = ReadLine(timeout);
  // A line that comes late would be taken for the answer to something else.
  if (!line.ok()) broken_ = line.status();
  return line;
}

absl::StatusOr<std::string> Rendezvous::ReadLine(absl::Duration timeout) {
  const absl::Time end = absl::Now() + timeout;
  while (true) {
    if (const size_t newline = unread_.find('\n'); newline != std::string::npos) {
      std::string line = unread_.substr(0, newline);
      unread_.erase(0, newline + 1);
      for (const char c : line) {
        if (c >= 0x20 && c < 0x7f) continue;
        return base::Error(
            absl::StatusCode::kInvalidArgument,
            absl::StrFormat("invalid line from %s: byte 0x%02x is no printable ASCII", peer_,
                            static_cast<unsigned char>(c)),
            {.layer = "hardware",
             .operation = "rendezvous",
             .cause = "another program is at the other end",
             .remedy = "give the port of the other side of ./dev hardware"});
      }
      return line;
    }
    if (unread_.size() > kMaxLineBytes) {
      return base::Error(
          absl::StatusCode::kInvalidArgument,
          absl::StrCat("invalid line from ", peer_, ": it has more than ", kMaxLineBytes, " bytes"),
          {.layer = "hardware",
           .operation = "rendezvous",
           .cause = "another program is at the other end",
           .remedy = "give the port of the other side of ./dev hardware"});
    }
    if (!Wait(fd_, POLLIN, end)) {
      return base::Error(
          absl::StatusCode::kDeadlineExceeded, peer_ + " does not answer",
          {.layer = "hardware",
           .operation = "rendezvous",
           .cause = "its program hangs, or the network between the hosts is down",
           .remedy = "read its output on the other host, and start both sides again"});
    }
    char bytes[1024];
    const ssize_t count = recv(fd_, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (count > 0) {
      unread_.append(bytes, static_cast<size_t>(count));
    } else if (count == 0) {
      return Gone(0);
    } else if (errno != EAGAIN && errno != EINTR) {
      return Gone(errno);
    }
  }
}

}  // namespace sluice::hardware
