// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/address.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sluice {
namespace address_test {

TEST(AddressTest, WhatIsUnderstood) {
  EXPECT_EQ(ParseAddress("127.0.0.1:7471", false)->host, "127.0.0.1");
  EXPECT_EQ(ParseAddress("127.0.0.1:7471", false)->port, 7471);
  EXPECT_EQ(ParseAddress("node-7.example:65535", false)->host, "node-7.example");
  EXPECT_EQ(ParseAddress("[fe80::1%eth0]:1", false)->host, "fe80::1%eth0");
  EXPECT_EQ(ParseAddress("[::1]:1", false)->host, "::1");
  EXPECT_EQ(ParseAddress("h:0", true)->port, 0);
}

TEST(AddressTest, TargetsOfGrpcThatMeanHostAndPort) {
  const std::vector<std::vector<std::string>> targets = {
      {"dns:///node-7:7471", "node-7"},
      {"dns:node-7:7471", "node-7"},
      {"ipv4:127.0.0.1:7471", "127.0.0.1"},
      {"ipv6:[::1]:7471", "::1"},
      {"dns:///[fe80::1%eth0]:7471", "fe80::1%eth0"},
      {"dns:7471", "dns"},
      {"ipv4:7471", "ipv4"},
  };
  for (const auto& target : targets) {
    const auto address = ParseAddress(target[0], false);
    ASSERT_TRUE(address.ok()) << address.status();
    EXPECT_EQ(address->host, target[1]);
    EXPECT_EQ(address->port, 7471);
  }
}

TEST(AddressTest, TargetsThatAreNotSupportedAreCalledSo) {
  const std::vector<std::vector<std::string>> targets = {
      {"unix:/run/shop.sock", "unix sockets are not supported", "in_process.h"},
      {"unix:///run/shop.sock", "unix sockets are not supported", "in_process.h"},
      {"unix-abstract:shop", "unix sockets are not supported", "in_process.h"},
      {"vsock:2:7471", "vsock is not supported", "host:port"},
      {"xds:///shop", "xDS is not supported", "options.resolver"},
      {"http://node-7:7471", "does not speak HTTP", "without http://"},
      {"https://node-7:7471", "does not speak HTTP", "without https://"},
      {"file:/etc/shop", "a file of servers can't stand here", "Channel::Connect()"},
      {"dns://8.8.8.8/node-7:7471", "names a name server", "dns:///host:port"},
      {"dns:///node-7", "it has no port", "host:port"},
      {"ipv6:::1:7471", "an IPv6 address needs brackets", "[::1]:7471"},
      {"ipv4:some.name:7471", "followed by an IPv4 address", "host:port"},
      {"ipv4:[::1]:7471", "followed by an IPv4 address", "host:port"},
      {"ipv6:127.0.0.1:7471", "followed by an IPv6 address", "host:port"},
      {"tcp://node-7:7471", "this kind of target is not known", "host:port"},
  };
  for (const auto& target : targets) {
    const auto address = ParseAddress(target[0], false);
    ASSERT_FALSE(address.ok()) << target[0];
    EXPECT_EQ(address.status().code(), absl::StatusCode::kInvalidArgument);
    for (const std::string& part : {"\"" + target[0] + "\"", target[1], target[2]}) {
      EXPECT_NE(address.status().message().find(part), std::string::npos) << address.status();
    }
  }
}

TEST(AddressTest, WhatIsNotUnderstoodIsExplained) {
  for (const char* text :
       {"", ":", ":1", "h", "h:", "h:x", "h:-1", "h:+1", "h: 1", "h:65536", "h:99999999999", "h:0",
        "::1:7471", "[::1]", "[::1:7471", "[]:1", "]:1", "a:b:1"}) {
    const auto address = ParseAddress(text, /*allow_port_0=*/false);
    ASSERT_FALSE(address.ok()) << text << " gave " << address->host;
    EXPECT_EQ(address.status().code(), absl::StatusCode::kInvalidArgument);
    const std::string message(address.status().message());
    EXPECT_NE(message.find("\"" + std::string(text) + "\""), std::string::npos) << message;
    EXPECT_NE(message.find("write host:port"), std::string::npos) << message;
  }
}

}  // namespace address_test
}  // namespace sluice
