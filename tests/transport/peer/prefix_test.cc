// SPDX-License-Identifier: Apache-2.0
#include "transport/peer/prefix.h"

#include <array>

#include "gtest/gtest.h"
#include "transport/base/random.h"

namespace sluice::peer {
namespace prefix_test {

TEST(LoadPrefix, RoundTrip) {
  std::array<std::byte, kPrefixBytes> bytes;
  StorePrefix(bytes.data(), {.peer_index = 3,
                             .token = 0xfffffffe,
                             .granted = 9,
                             .kind = Kind::kGoodbye,
                             .number = 0xfffd});
  EXPECT_EQ(static_cast<int>(bytes[12]), 3);
  Prefix prefix;
  ASSERT_TRUE(LoadPrefix(bytes.data(), bytes.size(), &prefix));
  EXPECT_EQ(prefix.peer_index, 3u);
  EXPECT_EQ(prefix.token, 0xfffffffeu);
  EXPECT_EQ(prefix.granted, 9u);
  EXPECT_EQ(prefix.kind, Kind::kGoodbye);
  EXPECT_EQ(prefix.number, 0xfffdu);
}

TEST(LoadPrefix, ShortUnknownKindAndStrayBitsAreRefused) {
  std::array<std::byte, kPrefixBytes> bytes;
  Prefix prefix;
  StorePrefix(bytes.data(), {.peer_index = 1, .token = 2, .granted = 3, .kind = Kind::kData});
  for (size_t length = 0; length < kPrefixBytes; ++length) {
    EXPECT_FALSE(LoadPrefix(bytes.data(), length, &prefix));
  }
  for (size_t at = 12; at < kPrefixBytes; ++at) {
    if (at >= 14) bytes[12] = static_cast<std::byte>(Kind::kCredits);  // data has a number
    for (int value = at == 12 ? 15 : at == 13 ? 2 : 1; value < 256; ++value) {
      auto changed = bytes;
      changed[at] = static_cast<std::byte>(value);
      EXPECT_FALSE(LoadPrefix(changed.data(), changed.size(), &prefix)) << at << " " << value;
    }
  }
  bytes[12] = std::byte{0};
  EXPECT_FALSE(LoadPrefix(bytes.data(), bytes.size(), &prefix));
}

}  // namespace prefix_test
}  // namespace sluice::peer
