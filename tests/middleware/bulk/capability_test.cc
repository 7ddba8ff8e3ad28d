// SPDX-License-Identifier: Apache-2.0
#include "middleware/bulk/capability.h"

#include <string>

#include "gtest/gtest.h"

namespace sluice::bulk {
namespace capability_test {

constexpr Capability kLent{.port = 0x1122334455667789,
                           .address = 0x7f0000001000,
                           .length_bytes = 8192,
                           .key = 0xabcd00,
                           .lease = 3,
                           .epoch = 9,
                           .rights = kMayRead | kMayWrite};

TEST(LoadCapability, IsWhatWasGivenAway) {
  const auto loaded = LoadCapability(ToBytes(kLent));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(*loaded, kLent);
}

TEST(LoadCapability, OtherLengthsAndKindsAreRefused) {
  const std::string bytes = ToBytes(kLent);
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(LoadCapability(bytes.substr(0, length)).ok());
  }
  EXPECT_FALSE(LoadCapability(bytes + "x").ok());
  EXPECT_EQ(LoadCapability(std::string(bytes.size(), '\xc2')).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(LoadCapability, RangeThatWrapsRoundIsRefused) {
  Capability wrong = kLent;
  wrong.address = UINT64_MAX - 100;
  EXPECT_FALSE(LoadCapability(ToBytes(wrong)).ok());
  wrong.length_bytes = 100;
  EXPECT_TRUE(LoadCapability(ToBytes(wrong)).ok());
  wrong.length_bytes = 0;
  EXPECT_FALSE(LoadCapability(ToBytes(wrong)).ok());
}

TEST(LoadCapability, NobodyAndNoRightsAreRefused) {
  for (const uint8_t rights : {0, 4, 255}) {
    Capability wrong = kLent;
    wrong.rights = rights;
    EXPECT_FALSE(LoadCapability(ToBytes(wrong)).ok());
  }
  Capability wrong = kLent;
  wrong.port = 0;
  EXPECT_FALSE(LoadCapability(ToBytes(wrong)).ok());
  wrong = kLent;
  wrong.epoch = 0;
  EXPECT_FALSE(LoadCapability(ToBytes(wrong)).ok());
}

// Whatever bytes come: refused, or what they say is what they are.
TEST(LoadCapability, EveryByteIsChecked) {
  const std::string good = ToBytes(kLent);
  for (size_t at = 0; at < good.size(); ++at) {
    for (int value = 0; value < 256; ++value) {
      std::string bytes = good;
      bytes[at] = static_cast<char>(value);
      const auto capability = LoadCapability(bytes);
      EXPECT_TRUE(!capability.ok() || ToBytes(*capability) == bytes);
    }
  }
}

}  // namespace capability_test
}  // namespace sluice::bulk
