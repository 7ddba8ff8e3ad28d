// SPDX-License-Identifier: Apache-2.0
#include "transport/integrity/protection.h"

#include <array>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::integrity {
namespace protection_test {

using testing::HasSubstr;

constexpr Protection kDif{.memory = Guard::kT10DifCrc,
                          .wire = Guard::kCrc32c,
                          .block_bytes = 512,
                          .application_tag = 0x1234,
                          .reference_tag = 0x89abcdef,
                          .checks = kCheckGuard | kCheckReferenceTag};

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST(Validate, EveryGuardAndBothBlockSizes) {
  for (uint8_t memory = 0; memory <= 4; ++memory) {
    for (uint8_t wire = 0; wire <= 4; ++wire) {
      for (const uint32_t block_bytes : {512u, 4096u}) {
        EXPECT_TRUE(Validate({.memory = static_cast<Guard>(memory),
                              .wire = static_cast<Guard>(wire),
                              .block_bytes = block_bytes})
                        .ok());
      }
    }
  }
}

TEST(Validate, UnknownGuardIsNamed) {
  Protection wrong = kDif;
  wrong.wire = static_cast<Guard>(5);
  EXPECT_EQ(Validate(wrong).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(Validate(wrong)), HasSubstr("guard type 5"));
  wrong = kDif;
  wrong.memory = static_cast<Guard>(200);
  EXPECT_THAT(Message(Validate(wrong)), HasSubstr("guard type 200"));
}

TEST(Validate, BlockSizeIsNamed) {
  for (const uint32_t block_bytes : {0u, 1u, 511u, 513u, 520u, 1024u, 4097u}) {
    Protection wrong = kDif;
    wrong.block_bytes = block_bytes;
    EXPECT_THAT(Message(Validate(wrong)),
                HasSubstr("blocks of " + std::to_string(block_bytes) + " bytes"));
  }
}

TEST(Validate, UnknownChecks) {
  Protection wrong = kDif;
  wrong.checks = 0x18 | kCheckGuard;
  EXPECT_THAT(Message(Validate(wrong)), HasSubstr("no checks 24"));
}

TEST(Validate, DataIsWholeBlocks) {
  EXPECT_TRUE(Validate(kDif, 512).ok());
  EXPECT_TRUE(Validate(kDif, uint64_t{kMaxBlocks} * 512).ok());
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{511}, uint64_t{513}}) {
    EXPECT_THAT(Message(Validate(kDif, bytes)), HasSubstr("are not whole blocks of 512"));
  }
  EXPECT_THAT(Message(Validate(kDif, (uint64_t{kMaxBlocks} + 1) * 512)), HasSubstr("too many"));
  Protection wrong = kDif;
  wrong.block_bytes = 0;
  EXPECT_FALSE(Validate(wrong, 512).ok()) << "and no division";
}

TEST(Validate, PlainDataAreAnyBytes) {
  EXPECT_TRUE(Validate({}, 1).ok());
  EXPECT_TRUE(Validate({}, kMaxPlainBytes).ok());
  EXPECT_THAT(Message(Validate({}, 0)), HasSubstr("0 bytes are no transfer"));
  EXPECT_FALSE(Validate({}, kMaxPlainBytes + 1).ok());
}

TEST(DomainBytes, BlocksWithTheirSignatures) {
  EXPECT_EQ(MemoryBytes(kDif, 1024), 2 * 520u);
  EXPECT_EQ(WireBytes(kDif, 1024), 2 * 516u);
  EXPECT_EQ(DomainBytes(Guard::kNone, 4096, 8192), 8192u);
  EXPECT_EQ(DomainBytes(Guard::kT10DifIpChecksum, 4096, 8192), 8192u + 16);
}

TEST(LoadProtection, IsWhatWasStored) {
  std::array<std::byte, kProtectionBytes> bytes;
  bytes.fill(std::byte{0xaa});
  Store(kDif, bytes.data());
  const auto loaded = LoadProtection(bytes);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(*loaded, kDif);
}

TEST(LoadProtection, OtherLengthsAreRefused) {
  std::array<std::byte, kProtectionBytes + 1> bytes{};
  Store(kDif, bytes.data());
  for (size_t length = 0; length <= bytes.size(); ++length) {
    EXPECT_EQ(LoadProtection(std::span(bytes).first(length)).ok(), length == kProtectionBytes);
  }
}

// Whatever a peer sends is refused, or is a valid protection that is stored as the same bytes.
TEST(LoadProtection, EveryByteIsChecked) {
  for (size_t at = 0; at < kProtectionBytes; ++at) {
    for (int value = 0; value < 256; ++value) {
      std::array<std::byte, kProtectionBytes> bytes;
      Store(kDif, bytes.data());
      bytes[at] = static_cast<std::byte>(value);
      const auto loaded = LoadProtection(bytes);
      if (!loaded.ok()) continue;
      EXPECT_TRUE(Validate(*loaded).ok());
      std::array<std::byte, kProtectionBytes> again;
      Store(*loaded, again.data());
      EXPECT_EQ(bytes, again) << "byte " << at << " = " << value;
    }
  }
}

TEST(ToString, NamesBothDomains) {
  EXPECT_EQ(ToString(kDif), "T10-DIF (CRC) in memory, CRC32C on the wire, blocks of 512");
}

}  // namespace protection_test
}  // namespace sluice::integrity
