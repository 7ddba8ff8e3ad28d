// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/signature/checksum.h"

#include <isa-l/crc.h>

namespace sluice::softdc::signature {
namespace {
const unsigned char* Data(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}
}  // namespace

// ISA-L's function takes and returns the complement of the register.
uint32_t Crc32(uint32_t seed, std::span<const std::byte> bytes) {
  return crc32_gzip_refl(~seed, Data(bytes), bytes.size());
}

// ISA-L's function works on the register itself. It only reads the data, although its prototype takes a non-const pointer.
uint32_t Crc32c(uint32_t seed, std::span<const std::byte> bytes) {
  return ~crc32_iscsi(const_cast<unsigned char*>(Data(bytes)), static_cast<int>(bytes.size()),
                      seed);
}

uint16_t Crc16T10Dif(uint16_t seed, std::span<const std::byte> bytes) {
  return crc16_t10dif(seed, Data(bytes), bytes.size());
}

uint16_t IpChecksum(uint16_t seed, std::span<const std::byte> bytes) {
  uint64_t sum = seed;
  const unsigned char* data = Data(bytes);
  size_t at = 0;
  for (; at + 2 <= bytes.size(); at += 2) sum += uint32_t{data[at]} << 8 | data[at + 1];
  if (at < bytes.size()) sum += uint32_t{data[at]} << 8;
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

}  // namespace sluice::softdc::signature
