// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/address.h"

#include <arpa/inet.h>

#include <cstddef>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "transport/base/error.h"

namespace sluice {
namespace {

absl::Status Bad(const std::string& text, std::string_view cause, std::string_view remedy) {
  return base::Error(absl::StatusCode::kInvalidArgument,
                     absl::StrCat("address \"", text, "\" not understood"),
                     {.layer = "api",
                      .operation = "parse address",
                      .cause = cause,
                      .remedy = remedy,
                      .retry_safe = true});
}

// A scheme of addresses that is not supported, with cause and remedy for the error text.
struct Scheme {
  std::string_view prefix;
  std::string_view cause;
  std::string_view remedy;
};

constexpr std::string_view kHostPort =
    "write host:port, with an IPv6 address in brackets: [::1]:7471";

constexpr Scheme kNotSupported[] = {
    {"unix:", "unix sockets are not supported: Sluice connects by RDMA",
     "write host:port; for a server in the same process use InProcess (in_process.h)"},
    {"unix-abstract:", "unix sockets are not supported: Sluice connects by RDMA",
     "write host:port; for a server in the same process use InProcess (in_process.h)"},
    {"vsock:", "vsock is not supported: Sluice connects by RDMA", kHostPort},
    {"xds:", "xDS is not supported",
     "write the servers as host:port,host:port, or file:PATH with one a line, or set "
     "options.resolver"},
    {"http://", "it is a URL, and Sluice does not speak HTTP", "write host:port, without http://"},
    {"https://", "it is a URL, and Sluice does not speak HTTP",
     "write host:port, without https://"},
    {"file:", "a file of servers can't stand here",
     "give file:PATH to Channel::Connect(), as the whole address"},
};

bool Consume(std::string_view* text, std::string_view prefix) {
  if (!text->starts_with(prefix)) return false;
  text->remove_prefix(prefix.size());
  return true;
}

// Removes a supported scheme from the front of the address. Returns an error if the scheme is not supported.
absl::Status TakeScheme(const std::string& text, std::string_view* rest) {
  *rest = text;
  // A host may have the name of a scheme: "dns:7471".
  const size_t colon = text.find(':');
  if (colon == std::string::npos) return absl::OkStatus();
  if (text.find_first_not_of("0123456789", colon + 1) == std::string::npos) return absl::OkStatus();
  for (const Scheme& scheme : kNotSupported) {
    if (text.starts_with(scheme.prefix)) return Bad(text, scheme.cause, scheme.remedy);
  }
  if (Consume(rest, "ipv4:") || Consume(rest, "ipv6:")) {
    return absl::OkStatus();
  }
  if (!Consume(rest, "dns:")) return absl::OkStatus();
  if (!Consume(rest, "//")) return absl::OkStatus();  // dns:host:port
  if (Consume(rest, "/")) return absl::OkStatus();    // dns:///host:port
  return Bad(text,
             "it names a name server, which is not supported: the host's resolver looks names up",
             "write dns:///host:port, or host:port");
}

}  // namespace

absl::StatusOr<Address> ParseAddress(const std::string& target, bool allow_port_0) {
  std::string_view rest;
  if (absl::Status scheme = TakeScheme(target, &rest); !scheme.ok()) return scheme;
  const std::string text(rest);
  Address address;
  size_t colon = text.rfind(':');
  if (colon == std::string::npos) return Bad(target, "it has no port", kHostPort);
  if (!text.empty() && text.front() == '[') {
    if (colon == 0 || text[colon - 1] != ']')
      return Bad(target, "the bracket is not closed before the port", kHostPort);
    address.host = text.substr(1, colon - 2);
  } else {
    address.host = text.substr(0, colon);
    if (address.host.find_first_of("[]") != std::string::npos) {
      return Bad(target, "a bracket stands where none belongs", kHostPort);
    }
    if (address.host.find("//") != std::string::npos) {
      return Bad(target, "this kind of target is not known", kHostPort);
    }
    if (address.host.find(':') != std::string::npos) {
      return Bad(target, "an IPv6 address needs brackets", kHostPort);
    }
  }
  if (address.host.empty()) return Bad(target, "it has no host", kHostPort);
  in6_addr ignored;
  if (target.starts_with("ipv4:") && text != target &&
      inet_pton(AF_INET, address.host.c_str(), &ignored) != 1) {
    return Bad(target, "ipv4: is followed by an IPv4 address", kHostPort);
  }
  if (target.starts_with("ipv6:") && text != target &&
      inet_pton(AF_INET6, address.host.substr(0, address.host.find('%')).c_str(), &ignored) != 1) {
    return Bad(target, "ipv6: is followed by an IPv6 address in brackets", kHostPort);
  }
  const std::string digits = text.substr(colon + 1);
  uint32_t port = 0;
  const bool is_number = !digits.empty() &&
                         digits.find_first_not_of("0123456789") == std::string::npos &&
                         absl::SimpleAtoi(digits, &port);
  if (!is_number || port > 65535)
    return Bad(target, "the port is not a number from 0 to 65535", kHostPort);
  if (port == 0 && !allow_port_0)
    return Bad(target, "port 0 can be listened at, not connected to", kHostPort);
  address.port = static_cast<uint16_t>(port);
  return address;
}

}  // namespace sluice
