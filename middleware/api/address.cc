// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/address.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "transport/base/error.h"

namespace sluice {
namespace {

absl::Status Bad(const std::string& text, const std::string& cause) {
  return base::Error(absl::StatusCode::kInvalidArgument,
                     absl::StrCat("address \"", text, "\" not understood"),
                     {.layer = "api",
                      .operation = "parse address",
                      .cause = cause,
                      .remedy = "write host:port, with an IPv6 address in brackets: [::1]:7471",
                      .retry_safe = true});
}

}  // namespace

absl::StatusOr<Address> ParseAddress(const std::string& text, bool allow_port_0) {
  Address address;
  size_t colon = text.rfind(':');
  if (colon == std::string::npos) return Bad(text, "it has no port");
  if (!text.empty() && text.front() == '[') {
    if (colon == 0 || text[colon - 1] != ']')
      return Bad(text, "the bracket is not closed before the port");
    address.host = text.substr(1, colon - 2);
  } else {
    address.host = text.substr(0, colon);
    if (address.host.find_first_of("[]") != std::string::npos) {
      return Bad(text, "a bracket stands where none belongs");
    }
    if (address.host.find(':') != std::string::npos) {
      return Bad(text, "an IPv6 address needs brackets");
    }
  }
  if (address.host.empty()) return Bad(text, "it has no host");
  const std::string digits = text.substr(colon + 1);
  uint32_t port = 0;
  const bool is_number = !digits.empty() &&
                         digits.find_first_not_of("0123456789") == std::string::npos &&
                         absl::SimpleAtoi(digits, &port);
  if (!is_number || port > 65535) return Bad(text, "the port is not a number from 0 to 65535");
  if (port == 0 && !allow_port_0) return Bad(text, "port 0 can be listened at, not connected to");
  address.port = static_cast<uint16_t>(port);
  return address;
}

}  // namespace sluice
