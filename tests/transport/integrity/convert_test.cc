// SPDX-License-Identifier: Apache-2.0
#include "transport/integrity/convert.h"

#include <algorithm>
#include <bit>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace sluice::integrity {
namespace convert_test {

using Bytes = std::vector<std::byte>;

constexpr Guard kGuards[] = {Guard::kNone, Guard::kT10DifCrc, Guard::kT10DifIpChecksum,
                             Guard::kCrc32, Guard::kCrc32c};

Bytes RandomBytes(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  Bytes bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

Bytes Protected(const Protection& protection, const Bytes& data) {
  Bytes bytes(MemoryBytes(protection, data.size()));
  Protect(protection, data, bytes);
  return bytes;
}

Bytes ToWire(const Protection& protection, const Bytes& memory, size_t data_bytes,
             std::optional<Mismatch>* mismatch = nullptr) {
  Bytes wire(WireBytes(protection, data_bytes));
  const auto found = Convert(protection, Direction::kToWire, memory, wire);
  if (mismatch != nullptr) *mismatch = found;
  return wire;
}

TEST(Protect, FieldsStandAsTheStandardsSay) {
  Bytes data(512, std::byte{0});
  std::ranges::copy(std::as_bytes(std::span("123456789", 9)), data.begin() + 503);
  // Zeros in front do not change a CRC that begins at 0.
  Bytes dif = Protected({.memory = Guard::kT10DifCrc,
                         .block_bytes = 512,
                         .application_tag = 0x0a0b,
                         .reference_tag = 0x01020304},
                        data);
  const Bytes expected = {std::byte{0xd0}, std::byte{0xdb}, std::byte{0x0a}, std::byte{0x0b},
                          std::byte{0x01}, std::byte{0x02}, std::byte{0x03}, std::byte{0x04}};
  EXPECT_TRUE(std::ranges::equal(std::span(dif).subspan(512), expected));

  const Bytes crc = Protected({.memory = Guard::kCrc32, .block_bytes = 512}, Bytes(512));
  ASSERT_EQ(crc.size(), 516u);
  // CRC-32 of 512 zero bytes is 0xb2aa7578: little-endian in the field.
  EXPECT_EQ(crc[512], std::byte{0x78});
  EXPECT_EQ(crc[515], std::byte{0xb2});
}

TEST(Protect, ReferenceTagsCountAndWrapRound) {
  const Protection protection{
      .memory = Guard::kT10DifCrc, .block_bytes = 512, .reference_tag = 0xffffffff};
  const Bytes bytes = Protected(protection, Bytes(3 * 512));
  EXPECT_EQ(bytes[519], std::byte{0xff});
  EXPECT_EQ(bytes[520 + 519], std::byte{0});
  EXPECT_EQ(bytes[2 * 520 + 519], std::byte{1});
}

// insert, check and strip, pass, make anew: what one end puts on the wire the other takes off it.
TEST(Convert, EveryPairOfDomainsComesBack) {
  for (const Guard memory : kGuards) {
    for (const Guard wire : kGuards) {
      for (const Guard far : kGuards) {
        const Protection near_end{
            .memory = memory, .wire = wire, .block_bytes = 512, .reference_tag = 5};
        Protection far_end = near_end;
        far_end.memory = far;
        const Bytes data = RandomBytes(3 * 512, 1);
        std::optional<Mismatch> mismatch;
        const Bytes on_wire = ToWire(near_end, Protected(near_end, data), data.size(), &mismatch);
        EXPECT_FALSE(mismatch);
        Bytes landed(MemoryBytes(far_end, data.size()));
        EXPECT_FALSE(Convert(far_end, Direction::kFromWire, on_wire, landed));
        EXPECT_EQ(landed, Protected(far_end, data)) << Name(memory) << Name(wire) << Name(far);
        EXPECT_FALSE(Check(far_end, Direction::kFromWire, on_wire));
        EXPECT_FALSE(Check(far_end, Direction::kToWire, landed));
      }
    }
  }
}

class CheckTest : public testing::TestWithParam<uint32_t> {};

INSTANTIATE_TEST_SUITE_P(BlockBytes, CheckTest, testing::Values(512, 4096));

// Every bit of the signature and many of the data, in each of three blocks.
TEST_P(CheckTest, AnyOneBitIsFoundInItsBlockAndField) {
  const uint32_t block_bytes = GetParam();
  for (const Guard guard : kGuards) {
    if (guard == Guard::kNone) continue;
    const Protection protection{.memory = guard,
                                .block_bytes = block_bytes,
                                .application_tag = 0xbeef,
                                .reference_tag = 0x7fffffff};
    const Bytes good = Protected(protection, RandomBytes(3 * block_bytes, 2));
    const size_t step = block_bytes + SignatureBytes(guard);
    for (size_t bit = 0; bit < good.size() * 8; ++bit) {
      const size_t inside = bit / 8 % step;
      if (inside < block_bytes && bit % 29 != 0) continue;
      Bytes bad = good;
      bad[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      const auto mismatch = Check(protection, Direction::kToWire, bad);
      ASSERT_TRUE(mismatch.has_value()) << Name(guard) << " bit " << bit;
      EXPECT_EQ(mismatch->block, bit / 8 / step);
      Field field = Field::kGuard;
      if (IsT10Dif(guard) && inside >= block_bytes + 2) {
        field = inside < block_bytes + 4 ? Field::kApplicationTag : Field::kReferenceTag;
      }
      EXPECT_EQ(mismatch->field, field) << Name(guard) << " byte " << inside;
      if (inside >= block_bytes) {
        EXPECT_EQ(std::popcount(mismatch->expected ^ mismatch->actual), 1);
      } else {
        EXPECT_NE(mismatch->expected, mismatch->actual);
      }
    }
  }
}

TEST(Check, SaysWhatTheTagsAreAndShouldBe) {
  const Protection written{
      .memory = Guard::kT10DifCrc, .block_bytes = 512, .application_tag = 1, .reference_tag = 100};
  const Bytes bytes = Protected(written, RandomBytes(2 * 512, 3));
  Protection read = written;
  read.reference_tag = 99;
  EXPECT_EQ(Check(read, Direction::kToWire, bytes),
            (Mismatch{.field = Field::kReferenceTag, .block = 0, .expected = 100, .actual = 99}));
  read.application_tag = 2;
  EXPECT_EQ(Check(read, Direction::kToWire, bytes)->field, Field::kApplicationTag);
}

TEST(Check, LooksAtNothingElseThanItIsToldTo) {
  const Protection written{
      .memory = Guard::kT10DifCrc, .block_bytes = 512, .application_tag = 1, .reference_tag = 100};
  Bytes bytes = Protected(written, RandomBytes(512, 3));
  bytes[0] ^= std::byte{1};
  Protection read = written;
  read.reference_tag = 99;
  read.application_tag = 2;
  read.checks = kCheckReferenceTag;
  EXPECT_EQ(Check(read, Direction::kToWire, bytes)->field, Field::kReferenceTag);
  read.checks = kCheckApplicationTag;
  EXPECT_EQ(Check(read, Direction::kToWire, bytes)->field, Field::kApplicationTag);
  read.checks = 0;
  EXPECT_FALSE(Check(read, Direction::kToWire, bytes));
  read.checks = kCheckGuard;
  EXPECT_EQ(Check(read, Direction::kToWire, bytes)->field, Field::kGuard);
}

TEST(Convert, BadDataComesOutAsItIsAndIsReported) {
  const Protection pass{.memory = Guard::kT10DifCrc, .wire = Guard::kT10DifCrc, .block_bytes = 512};
  Bytes bytes = Protected(pass, RandomBytes(2 * 512, 4));
  bytes[600] ^= std::byte{4};
  std::optional<Mismatch> mismatch;
  EXPECT_EQ(ToWire(pass, bytes, 1024, &mismatch), bytes);
  ASSERT_TRUE(mismatch.has_value());
  EXPECT_EQ(mismatch->block, 1u);
}

TEST(Convert, TagsGoFromOneKindOfT10DifToTheOther) {
  Protection protection{.memory = Guard::kT10DifCrc,
                        .wire = Guard::kT10DifIpChecksum,
                        .block_bytes = 512,
                        .application_tag = 9};
  const Bytes bytes = Protected(protection, RandomBytes(512, 5));
  protection.application_tag = 10;  // not what stands there
  protection.checks = kCheckGuard;
  const Bytes wire = ToWire(protection, bytes, 512);
  EXPECT_EQ(wire[515], std::byte{9});
  EXPECT_NE(wire[512], bytes[512]);
}

}  // namespace convert_test
}  // namespace sluice::integrity
