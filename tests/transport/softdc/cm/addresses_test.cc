// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/cm/addresses.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <cstring>

namespace sluice::softdc::cm {
namespace addresses_test {

sockaddr_storage Address(const char* text, uint16_t port = 0) {
  sockaddr_storage storage{};
  if (inet_pton(AF_INET, text, &reinterpret_cast<sockaddr_in*>(&storage)->sin_addr) == 1) {
    storage.ss_family = AF_INET;
  } else {
    EXPECT_EQ(inet_pton(AF_INET6, text, &reinterpret_cast<sockaddr_in6*>(&storage)->sin6_addr), 1);
    storage.ss_family = AF_INET6;
  }
  SetPort(htons(port), &storage);
  return storage;
}

const sockaddr* Generic(const sockaddr_storage& storage) {
  return reinterpret_cast<const sockaddr*>(&storage);
}

bool Accepts(const char* bound, const char* destination, bool v6_only = false) {
  const sockaddr_storage a = Address(bound), b = Address(destination);
  return cm::Accepts(Generic(a), v6_only, Generic(b));
}

TEST(ToWireTest, RoundTripKeepsAddressPortAndScope) {
  for (const char* text : {"10.1.2.3", "2001:db8::5", "::1", "0.0.0.0"}) {
    sockaddr_storage before = Address(text, 4791);
    if (before.ss_family == AF_INET6) reinterpret_cast<sockaddr_in6*>(&before)->sin6_scope_id = 3;
    sockaddr_storage after;
    FromWire(ToWire(Generic(before)), &after);
    EXPECT_EQ(std::memcmp(&before, &after, sizeof(before)), 0) << text;
    EXPECT_EQ(PortOf(Generic(after)), htons(4791));
  }
}

TEST(AcceptsTest, WildcardsAndSpecificAddresses) {
  EXPECT_TRUE(Accepts("0.0.0.0", "127.0.0.1"));
  EXPECT_FALSE(Accepts("0.0.0.0", "::1"));
  EXPECT_TRUE(Accepts("::", "::1"));
  EXPECT_TRUE(Accepts("::", "127.0.0.1"));
  EXPECT_FALSE(Accepts("::", "127.0.0.1", /*v6_only=*/true));
  EXPECT_TRUE(Accepts("127.0.0.1", "::ffff:127.0.0.1"));
  EXPECT_FALSE(Accepts("127.0.0.1", "127.0.0.2"));
}

TEST(AddressLengthTest, OtherFamiliesAreZero) {
  sockaddr_storage address{};
  address.ss_family = AF_UNIX;
  EXPECT_EQ(AddressLength(Generic(address)), 0u);
  EXPECT_EQ(AddressLength(nullptr), 0u);
}

}  // namespace addresses_test
}  // namespace sluice::softdc::cm
