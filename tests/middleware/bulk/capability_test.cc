// SPDX-License-Identifier: Apache-2.0
#include "middleware/bulk/capability.h"

#include <string>

#include "gtest/gtest.h"

namespace sluice::bulk {
namespace {

constexpr Capability kLent{.port = 0x1122334455667789,
                           .address = 0x7f0000001000,
                           .length_bytes = 8192,
                           .key = 0xabcd00,
                           .lease = 3,
                           .epoch = 9,
                           .rights = kMayRead | kMayWrite};

Ticket Sample() {
  Ticket ticket{.port = 77, .qp_number = 0xfffff0, .notices = 16};
  ticket.gid[15] = std::byte{5};
  return ticket;
}

TEST(LoadCapability, IsWhatWasGivenAway) {
  const auto loaded = LoadCapability(ToBytes(kLent));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(*loaded, kLent);
}

TEST(LoadTicket, IsWhatWasOffered) {
  const auto loaded = LoadTicket(ToBytes(Sample()));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(*loaded, Sample());
}

TEST(LoadCapability, OtherLengthsAndTicketsAreRefused) {
  const std::string bytes = ToBytes(kLent);
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(LoadCapability(bytes.substr(0, length)).ok());
    EXPECT_FALSE(LoadTicket(bytes.substr(0, length)).ok());
  }
  EXPECT_FALSE(LoadCapability(bytes + "x").ok());
  EXPECT_EQ(LoadCapability(ToBytes(Sample())).status().code(), absl::StatusCode::kInvalidArgument);
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

TEST(LoadTicket, NumbersOutOfRangeAreRefused) {
  for (const uint32_t number : {0u, 0x1000000u}) {
    Ticket wrong = Sample();
    wrong.qp_number = number;
    EXPECT_FALSE(LoadTicket(ToBytes(wrong)).ok());
  }
  for (const uint32_t notices : {0u, (1u << 14) + 1}) {
    Ticket wrong = Sample();
    wrong.notices = notices;
    EXPECT_FALSE(LoadTicket(ToBytes(wrong)).ok());
  }
}

// Whatever bytes come: refused, or what they say is what they are.
TEST(Load, EveryByteIsChecked) {
  for (const std::string& good : {ToBytes(kLent), ToBytes(Sample())}) {
    for (size_t at = 0; at < good.size(); ++at) {
      for (int value = 0; value < 256; ++value) {
        std::string bytes = good;
        bytes[at] = static_cast<char>(value);
        if (const auto capability = LoadCapability(bytes); capability.ok()) {
          EXPECT_EQ(ToBytes(*capability), bytes);
        }
        if (const auto ticket = LoadTicket(bytes); ticket.ok()) {
          EXPECT_EQ(ToBytes(*ticket), bytes);
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice::bulk
