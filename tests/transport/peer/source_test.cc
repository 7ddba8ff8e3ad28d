// SPDX-License-Identifier: Apache-2.0
#include "transport/peer/source.h"

#include "gtest/gtest.h"

namespace sluice::peer {
namespace source_test {

TEST(SourceOf, Ipv4IsTheAddressWithoutItsPort) {
  EXPECT_EQ(SourceOf("192.0.2.1:4000"), "192.0.2.1");
  EXPECT_EQ(SourceOf("192.0.2.1"), "192.0.2.1");
  EXPECT_NE(SourceOf("192.0.2.1:4000"), SourceOf("192.0.2.2:4000"));
}

TEST(SourceOf, Ipv6IsThePrefixOf64Bits) {
  EXPECT_EQ(SourceOf("[2001:db8:0:1::1]:4000"), "2001:db8:0:1::/64");
  EXPECT_EQ(SourceOf("2001:db8:0:1:a:b:c:d"), "2001:db8:0:1::/64");
  EXPECT_NE(SourceOf("[2001:db8:0:1::1]:4000"), SourceOf("[2001:db8:0:2::1]:4000"));
}

TEST(SourceOf, Ipv4WrittenAsIpv6CountsAsIpv4) {
  EXPECT_EQ(SourceOf("[::ffff:192.0.2.1]:4000"), "192.0.2.1");
  EXPECT_NE(SourceOf("[::ffff:192.0.2.1]:4000"), SourceOf("[::ffff:192.0.2.2]:4000"));
}

TEST(SourceOf, WhatIsNoAddressStandsForItself) {
  EXPECT_EQ(SourceOf("?:0"), "?");
  EXPECT_EQ(SourceOf(""), "");
  EXPECT_EQ(SourceOf("["), "");
  EXPECT_EQ(SourceOf("[::1"), "::/64");
}

}  // namespace source_test
}  // namespace sluice::peer
