// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/address.h"

#include <gtest/gtest.h>

#include <string>

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
