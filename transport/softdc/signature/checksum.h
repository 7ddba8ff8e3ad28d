// SPDX-License-Identifier: Apache-2.0
//
// The checksums that protect blocks of data. CRCs are computed by ISA-L with the CPU's own instructions.
//
//   Crc32         0x04c11db7 reflected, complemented at the end: that of Ethernet, zlib and FC-PH
//   Crc32c        0x1edc6f41 reflected, complemented at the end: that of iSCSI (RFC 3720)
//   Crc16T10Dif   0x8bb7, neither reflected nor complemented: the guard of T10 SBC-3
//   IpChecksum    the Internet checksum (RFC 1071), complemented: the other guard of T10 DIX
//
// `seed`: value of the register before the first byte. Thread-safe, no state.
#ifndef SLUICE_TRANSPORT_SOFTDC_SIGNATURE_CHECKSUM_H_
#define SLUICE_TRANSPORT_SOFTDC_SIGNATURE_CHECKSUM_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice::softdc::signature {

uint32_t Crc32(uint32_t seed, std::span<const std::byte> bytes);
uint32_t Crc32c(uint32_t seed, std::span<const std::byte> bytes);
uint16_t Crc16T10Dif(uint16_t seed, std::span<const std::byte> bytes);
// Words are in network byte order. An odd byte at the end is padded with a zero byte.
uint16_t IpChecksum(uint16_t seed, std::span<const std::byte> bytes);

}  // namespace sluice::softdc::signature

#endif  // SLUICE_TRANSPORT_SOFTDC_SIGNATURE_CHECKSUM_H_
