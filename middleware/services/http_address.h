// SPDX-License-Identifier: Apache-2.0
//
// LoopbackUnlessTold(): the address that an HTTP server of Sluice listens at.
//
// Threads       Any: a pure function.
#ifndef SLUICE_MIDDLEWARE_SERVICES_HTTP_ADDRESS_H_
#define SLUICE_MIDDLEWARE_SERVICES_HTTP_ADDRESS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace sluice {

// Returns "127.0.0.1:9464" for "9464", and "host:port" unchanged. Returns nullopt for any other text.
inline std::optional<std::string> LoopbackUnlessTold(const std::string& address) {
  const size_t colon = address.rfind(':');
  uint32_t port = 0;
  if (!absl::SimpleAtoi(colon == std::string::npos ? address : address.substr(colon + 1), &port) ||
      port > UINT16_MAX) {
    return std::nullopt;
  }
  return colon == std::string::npos ? absl::StrCat("127.0.0.1:", address) : address;
}

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_SERVICES_HTTP_ADDRESS_H_
