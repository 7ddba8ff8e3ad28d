// SPDX-License-Identifier: Apache-2.0
#include "transport/device/device_spec.h"

#include <arpa/inet.h>

#include <charconv>

namespace sluice::device {
namespace {

// RoCE lists an IPv4 address as IPv4-mapped IPv6.
std::optional<ibv_gid> GidOf(const std::string& text) {
  ibv_gid gid = {};
  if (inet_pton(AF_INET6, text.c_str(), gid.raw) == 1) return gid;
  gid = {};
  gid.raw[10] = gid.raw[11] = 0xff;
  if (inet_pton(AF_INET, text.c_str(), &gid.raw[12]) == 1) return gid;
  return std::nullopt;
}

}  // namespace

DeviceSpec ParseSpec(std::string_view text) {
  constexpr std::string_view kRc = "/rc";
  const bool rc = text.ends_with(kRc);
  if (rc) text.remove_suffix(kRc.size());
  DeviceSpec spec = {.text = std::string(text), .rc = rc};
  spec.automatic = text == "auto";
  if (spec.automatic) return spec;
  spec.gid = GidOf(spec.text);
  if (spec.gid.has_value()) return spec;
  spec.name = text;
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return spec;
  const std::string_view digits = text.substr(colon + 1);
  uint8_t port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc() || end != digits.data() + digits.size() || port == 0) return spec;
  spec.name = text.substr(0, colon);
  spec.port = port;
  return spec;
}

}  // namespace sluice::device
