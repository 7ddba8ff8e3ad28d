// SPDX-License-Identifier: Apache-2.0
#include "transport/cm/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/base/error.h"

namespace sluice::cm {

std::string HostPort(const std::string& host, uint16_t port) {
  const bool ipv6 = host.find(':') != std::string::npos;
  return (ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

std::string ToString(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "?";
  uint16_t port = 0;
  if (address->sa_family == AF_INET) {
    const auto* in = reinterpret_cast<const sockaddr_in*>(address);
    inet_ntop(AF_INET, &in->sin_addr, text, sizeof(text));
    port = ntohs(in->sin_port);
  } else if (address->sa_family == AF_INET6) {
    const auto* in6 = reinterpret_cast<const sockaddr_in6*>(address);
    inet_ntop(AF_INET6, &in6->sin6_addr, text, sizeof(text));
    port = ntohs(in6->sin6_port);
  }
  return HostPort(text, port);
}

bool IsNumeric(const std::string& host) {
  addrinfo hints = {};
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* list = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &list) != 0) return false;
  freeaddrinfo(list);
  return true;
}

bool IsOfThisHost(const sockaddr_storage& address) {
  const int fd = socket(address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return true;
  sockaddr_storage own = address;  // at any port
  socklen_t length = sizeof(sockaddr_in);
  if (own.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(&own)->sin6_port = 0;
    length = sizeof(sockaddr_in6);
  } else {
    reinterpret_cast<sockaddr_in*>(&own)->sin_port = 0;
  }
  const bool other =
      bind(fd, reinterpret_cast<const sockaddr*>(&own), length) != 0 && errno == EADDRNOTAVAIL;
  close(fd);
  return !other;
}

absl::StatusOr<std::vector<sockaddr_storage>> Resolve(const std::string& host, uint16_t port,
                                                      bool passive) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0);
  const bool any = passive && (host.empty() || host == "*");
  addrinfo* list = nullptr;
  const std::string service = std::to_string(port);
  const int error = getaddrinfo(any ? nullptr : host.c_str(), service.c_str(), &hints, &list);
  const std::string who = HostPort(host, port);
  if (error != 0) {
    const bool transient = error == EAI_AGAIN;
    return base::Error(
        transient ? absl::StatusCode::kUnavailable : absl::StatusCode::kNotFound,
        "host name \"" + host + "\" can't be resolved (" + gai_strerror(error) + ")",
        {.layer = "cm",
         .peer = who,
         .operation = passive ? "listen" : "connect",
         .cause = transient ? "the name server did not answer"
                            : "the name is misspelt, or unknown to this host's name service",
         .remedy = "check the spelling, or use a numeric address",
         .retry_safe = true});
  }
  std::vector<sockaddr_storage> addresses;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    sockaddr_storage address = {};
    std::memcpy(&address, entry->ai_addr, entry->ai_addrlen);
    addresses.push_back(address);
  }
  freeaddrinfo(list);
  std::stable_sort(addresses.begin(), addresses.end(), [](const auto& a, const auto& b) {
    return a.ss_family == AF_INET && b.ss_family != AF_INET;
  });
  return addresses;
}

std::string PlaceOf(const std::string& device, uint8_t port) {
  return port == 0 ? device : device + ":" + std::to_string(port);
}

}  // namespace sluice::cm
