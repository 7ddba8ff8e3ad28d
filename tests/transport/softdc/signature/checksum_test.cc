// SPDX-License-Identifier: Apache-2.0
//
// Fact 130: known answers from the standards, then random bytes against the bitwise reference.
#include "transport/softdc/signature/checksum.h"

#include <gtest/gtest.h>

#include <array>

#include "tests/transport/softdc/signature/reference_signature.h"

namespace sluice::softdc::signature {
namespace checksum_test {

constexpr std::string_view kCheck = "123456789";  // of the catalogues of CRCs

Bytes Counting(int first, int step) {
  Bytes bytes(32);
  for (std::byte& byte : bytes) {
    byte = static_cast<std::byte>(first);
    first += step;
  }
  return bytes;
}

TEST(Crc32, HasItsCheckValue) { EXPECT_EQ(Crc32(0xffffffff, BytesOf(kCheck)), 0xcbf43926); }

TEST(Crc32c, AgreesWithTheExamplesOfRfc3720) {
  EXPECT_EQ(Crc32c(0xffffffff, BytesOf(kCheck)), 0xe3069283);
  EXPECT_EQ(Crc32c(0xffffffff, Bytes(32, std::byte{0})), 0x8a9136aa);
  EXPECT_EQ(Crc32c(0xffffffff, Bytes(32, std::byte{0xff})), 0x62a8ab43);
  EXPECT_EQ(Crc32c(0xffffffff, Counting(0, 1)), 0x46dd794e);
  EXPECT_EQ(Crc32c(0xffffffff, Counting(31, -1)), 0x113fdb5c);
}

TEST(Crc16T10Dif, AgreesWithTheExamplesOfSbc3) {
  Bytes two_ones(32, std::byte{0});
  two_ones[0] = two_ones[1] = std::byte{0xff};
  EXPECT_EQ(Crc16T10Dif(0, BytesOf(kCheck)), 0xd0db);
  EXPECT_EQ(Crc16T10Dif(0, Bytes(32, std::byte{0})), 0x0000);
  EXPECT_EQ(Crc16T10Dif(0, Bytes(32, std::byte{0xff})), 0xa293);
  EXPECT_EQ(Crc16T10Dif(0, Counting(0, 1)), 0x0224);
  EXPECT_EQ(Crc16T10Dif(0, two_ones), 0x21b8);
  EXPECT_EQ(Crc16T10Dif(0, Counting(255, -1)), 0xa0b7);
}

TEST(IpChecksum, AgreesWithTheExampleOfRfc1071) {
  const std::array<uint8_t, 8> example = {0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7};
  EXPECT_EQ(IpChecksum(0, std::as_bytes(std::span(example))), 0xffff - 0xddf2);
}

TEST(IpChecksum, SeedTellsOnlyOverZeros) {
  EXPECT_EQ(IpChecksum(0, Bytes(512, std::byte{0})), 0xffff);
  EXPECT_EQ(IpChecksum(0xffff, Bytes(512, std::byte{0})), 0x0000);
  EXPECT_EQ(IpChecksum(0, Bytes(512, std::byte{7})), IpChecksum(0xffff, Bytes(512, std::byte{7})));
}

TEST(Checksums, AgreeWithTheBitwiseReferenceForEveryLengthAndSeed) {
  std::mt19937 random(130);
  for (const size_t size_bytes :
       {0, 1, 2, 3, 7, 8, 15, 16, 17, 63, 64, 255, 512, 520, 4048, 4160}) {
    const Bytes bytes = RandomBytes(random, size_bytes);
    for (const uint32_t seed : {uint32_t{0}, UINT32_MAX}) {
      EXPECT_EQ(Crc32(seed, bytes), SlowCrc32(seed, bytes)) << size_bytes;
      EXPECT_EQ(Crc32c(seed, bytes), SlowCrc32c(seed, bytes)) << size_bytes;
      const auto seed16 = static_cast<uint16_t>(seed);
      EXPECT_EQ(Crc16T10Dif(seed16, bytes), SlowCrc16(seed16, bytes)) << size_bytes;
      EXPECT_EQ(IpChecksum(seed16, bytes), SlowIpChecksum(seed16, bytes)) << size_bytes;
    }
  }
}

}  // namespace checksum_test
}  // namespace sluice::softdc::signature
