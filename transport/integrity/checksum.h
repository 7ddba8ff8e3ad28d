// SPDX-License-Identifier: Apache-2.0
//
// Checksums of blocks, by instructions of the CPU where ISA-L supports them.
//
//   Crc16T10Dif   0x8bb7 from 0: the guard of T10 SBC-3
//   IpChecksum    the Internet checksum (RFC 1071), complemented, words in network order: the guard of T10 DIX
//   Crc32         the CRC of Ethernet and zlib
//   Crc32c        the CRC of iSCSI (RFC 3720)
//
// Threads       Any: pure functions.
#ifndef SLUICE_TRANSPORT_INTEGRITY_CHECKSUM_H_
#define SLUICE_TRANSPORT_INTEGRITY_CHECKSUM_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice::integrity {

uint16_t Crc16T10Dif(std::span<const std::byte> bytes);
// `bytes` must have an even size.
uint16_t IpChecksum(std::span<const std::byte> bytes);
uint32_t Crc32(std::span<const std::byte> bytes);
uint32_t Crc32c(std::span<const std::byte> bytes);

}  // namespace sluice::integrity

#endif  // SLUICE_TRANSPORT_INTEGRITY_CHECKSUM_H_
