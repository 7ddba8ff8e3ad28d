// SPDX-License-Identifier: Apache-2.0
#include "transport/integrity/checksum.h"

#include <random>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"

namespace sluice::integrity {
namespace checksum_test {

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

constexpr std::string_view kDigits = "123456789";  // the check string of catalogues of CRCs

TEST(Crc16T10Dif, CheckValue) { EXPECT_EQ(Crc16T10Dif(Bytes(kDigits)), 0xd0db); }
TEST(Crc32, CheckValue) { EXPECT_EQ(Crc32(Bytes(kDigits)), 0xcbf43926u); }
TEST(Crc32c, CheckValue) { EXPECT_EQ(Crc32c(Bytes(kDigits)), 0xe3069283u); }

TEST(IpChecksum, ExampleOfRfc1071) {
  const std::array<unsigned char, 8> bytes = {0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7};
  EXPECT_EQ(IpChecksum(std::as_bytes(std::span(bytes))), static_cast<uint16_t>(~0xddf2));
}

TEST(IpChecksum, WordByWordInNetworkOrder) {
  std::mt19937 random(1);
  for (int run = 0; run < 50; ++run) {
    std::vector<std::byte> block(4096);
    for (std::byte& byte : block) byte = static_cast<std::byte>(random() % 7 == 0 ? 255 : random());
    uint32_t sum = 0;
    for (size_t i = 0; i < block.size(); i += 2) {
      sum += std::to_integer<uint32_t>(block[i]) * 256 + std::to_integer<uint32_t>(block[i + 1]);
      if (sum > 0xffff) sum -= 0xffff;
    }
    ASSERT_EQ(IpChecksum(block), 0xffff - sum);
  }
}

}  // namespace checksum_test
}  // namespace sluice::integrity
