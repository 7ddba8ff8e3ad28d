// SPDX-License-Identifier: Apache-2.0
#include "transport/peer/source.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

namespace sluice::peer {
namespace {

// "[2001:db8::1]:7471", "192.0.2.1:7471", "2001:db8::1"
std::string HostOf(const std::string& address) {
  if (!address.empty() && address.front() == '[') {
    return address.substr(1, std::min(address.find(']'), address.size()) - 1);
  }
  const size_t colon = address.find(':');
  return colon == address.rfind(':') ? address.substr(0, colon) : address;
}

}  // namespace

std::string SourceOf(const std::string& address) {
  std::string host = HostOf(address);
  in6_addr bytes;
  if (inet_pton(AF_INET6, host.c_str(), &bytes) != 1) return host;
  char text[INET6_ADDRSTRLEN] = "";
  if (IN6_IS_ADDR_V4MAPPED(&bytes)) {
    return inet_ntop(AF_INET, &bytes.s6_addr[12], text, sizeof(text));
  }
  std::memset(&bytes.s6_addr[8], 0, 8);
  return std::string(inet_ntop(AF_INET6, &bytes, text, sizeof(text))) + "/64";
}

}  // namespace sluice::peer
