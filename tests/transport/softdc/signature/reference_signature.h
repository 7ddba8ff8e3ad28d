// SPDX-License-Identifier: Apache-2.0
//
// The checksums once more, bit by bit as their standards define them, and a T10-DIF or CRC field made
// from them: slow, and sharing nothing with the code under test.
#ifndef SLUICE_TESTS_TRANSPORT_SOFTDC_SIGNATURE_REFERENCE_SIGNATURE_H_
#define SLUICE_TESTS_TRANSPORT_SOFTDC_SIGNATURE_REFERENCE_SIGNATURE_H_

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string_view>
#include <vector>

#include "transport/softdc/signature/block_signature.h"

namespace sluice::softdc::signature {

using Bytes = std::vector<std::byte>;

inline Bytes BytesOf(std::string_view text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

inline Bytes RandomBytes(std::mt19937& random, size_t size_bytes) {
  Bytes bytes(size_bytes);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// Polynomial division, one bit at a time, most significant first; `width` up to 32.
inline uint32_t SlowCrc(int width, uint32_t polynomial, uint32_t seed, bool reflect,
                        bool complement, std::span<const std::byte> bytes) {
  const uint32_t top = uint32_t{1} << (width - 1);
  const uint32_t all = top | (top - 1);
  uint32_t remainder = seed;
  for (const std::byte byte : bytes) {
    for (int bit = 0; bit < 8; ++bit) {
      const int place = reflect ? bit : 7 - bit;
      const bool in = std::to_integer<uint32_t>(byte >> place & std::byte{1}) != 0;
      const bool out = (remainder & top) != 0;
      remainder = remainder << 1 & all;
      if (in != out) remainder ^= polynomial;
    }
  }
  if (reflect) {
    uint32_t reflected = 0;
    for (int bit = 0; bit < width; ++bit) {
      if ((remainder >> bit & 1) != 0) reflected |= uint32_t{1} << (width - 1 - bit);
    }
    remainder = reflected;
  }
  return complement ? ~remainder & all : remainder;
}

inline uint32_t SlowCrc32(uint32_t seed, std::span<const std::byte> bytes) {
  return SlowCrc(32, 0x04c11db7, seed, true, true, bytes);
}
inline uint32_t SlowCrc32c(uint32_t seed, std::span<const std::byte> bytes) {
  return SlowCrc(32, 0x1edc6f41, seed, true, true, bytes);
}
inline uint16_t SlowCrc16(uint16_t seed, std::span<const std::byte> bytes) {
  return static_cast<uint16_t>(SlowCrc(16, 0x8bb7, seed, false, false, bytes));
}
// One's complement addition, one word at a time, with the carry brought round each time.
inline uint16_t SlowIpChecksum(uint16_t seed, std::span<const std::byte> bytes) {
  uint32_t sum = seed;
  for (size_t i = 0; i < bytes.size(); i += 2) {
    const auto high = std::to_integer<uint32_t>(bytes[i]);
    const auto low = i + 1 < bytes.size() ? std::to_integer<uint32_t>(bytes[i + 1]) : 0;
    sum += high * 256 + low;
    if (sum > 0xffff) sum -= 0xffff;
  }
  return static_cast<uint16_t>(0xffff - sum);
}

// The signature of block number `block` as it stands behind the block.
inline Bytes SlowField(const Domain& domain, uint32_t block, std::span<const std::byte> data) {
  const auto put = [](Bytes* to, uint64_t value, int size_bytes, bool big_endian) {
    for (int i = 0; i < size_bytes; ++i) {
      const int shift = 8 * (big_endian ? size_bytes - 1 - i : i);
      to->push_back(static_cast<std::byte>(value >> shift));
    }
  };
  Bytes field;
  const auto seed = static_cast<uint16_t>(domain.seed);
  switch (domain.kind) {
    case Kind::kNone:
      return field;
    case Kind::kCrc32:
      put(&field, SlowCrc32(domain.seed, data), 4, false);
      return field;
    case Kind::kCrc32c:
      put(&field, SlowCrc32c(domain.seed, data), 4, false);
      return field;
    case Kind::kT10DifCrc:
      put(&field, SlowCrc16(seed, data), 2, true);
      break;
    case Kind::kT10DifIpChecksum:
      put(&field, SlowIpChecksum(seed, data), 2, true);
      break;
  }
  put(&field, domain.application_tag, 2, true);
  put(&field, domain.reference_tag + (domain.increments_reference_tag ? block : 0), 4, true);
  return field;
}

// `data` as it stands in a domain.
inline Bytes SlowProtect(const Domain& domain, const Bytes& data, uint32_t first_block = 0) {
  if (domain.kind == Kind::kNone) return data;
  Bytes protected_data;
  const size_t block_bytes = BlockBytes(domain);
  for (size_t at = 0; at < data.size(); at += block_bytes) {
    const auto block = std::span(data).subspan(at, std::min(block_bytes, data.size() - at));
    protected_data.insert(protected_data.end(), block.begin(), block.end());
    if (block.size() < block_bytes) break;
    const Bytes field =
        SlowField(domain, first_block + static_cast<uint32_t>(at / block_bytes), block);
    protected_data.insert(protected_data.end(), field.begin(), field.end());
  }
  return protected_data;
}

}  // namespace sluice::softdc::signature

#endif  // SLUICE_TESTS_TRANSPORT_SOFTDC_SIGNATURE_REFERENCE_SIGNATURE_H_
