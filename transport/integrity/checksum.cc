// SPDX-License-Identifier: Apache-2.0
#include "transport/integrity/checksum.h"

#include <isa-l/crc.h>

#include <cstring>

namespace sluice::integrity {
namespace {

// ISA-L only reads the data, although its prototypes take pointers to non-const.
unsigned char* Data(std::span<const std::byte> bytes) {
  return const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(bytes.data()));
}

}  // namespace

uint16_t Crc16T10Dif(std::span<const std::byte> bytes) {
  return crc16_t10dif(0, Data(bytes), bytes.size());
}

// A one's complement sum does not depend on the byte order of the words. So the words are added in host order,
// and the bytes of the result are swapped at the end (RFC 1071).
uint16_t IpChecksum(std::span<const std::byte> bytes) {
  uint64_t sum = 0;
  for (size_t at = 0; at + 2 <= bytes.size(); at += 2) {
    uint16_t word;
    std::memcpy(&word, &bytes[at], sizeof(word));
    sum += word;
  }
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  const auto word = static_cast<uint16_t>(~sum);
  return static_cast<uint16_t>(word << 8 | word >> 8);
}

// crc32_gzip_refl() takes and returns the complement of the CRC register.
uint32_t Crc32(std::span<const std::byte> bytes) {
  return crc32_gzip_refl(0, Data(bytes), bytes.size());
}

uint32_t Crc32c(std::span<const std::byte> bytes) {
  return ~crc32_iscsi(Data(bytes), static_cast<int>(bytes.size()), UINT32_MAX);
}

}  // namespace sluice::integrity
