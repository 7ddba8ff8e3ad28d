// SPDX-License-Identifier: Apache-2.0
//
// Protection: how the data of a transfer is protected, block by block, in the memory of the
// initiator and on the wire.
//
//   memory   wire     out of memory            into memory
//   none     none     nothing                  nothing
//   none     X        insert                   check and strip
//   X        none     check and strip          insert
//   X        X        check and pass on        check and pass on
//   X        Y        check and make anew      check and make anew
//
// Bytes of a domain: block | signature | block | signature …, whole blocks only. Byte order of a
// signature:
//
//   CRC32, CRC32C   crc, little-endian (4)
//   T10-DIF         guard (2) application tag (2) reference tag (4), each big-endian
//
// The other end has its own Protection with the same wire. Guards of T10-DIF start at 0, CRCs at
// all ones. The reference tag increases by one per block, modulo 2^32. No tag value exempts a block
// from checks.
//
// Threads: any; a value and pure functions.
#ifndef SLUICE_TRANSPORT_INTEGRITY_PROTECTION_H_
#define SLUICE_TRANSPORT_INTEGRITY_PROTECTION_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice::integrity {

// Access of the initiator to the other end's memory.
enum class TransferKind : uint8_t { kWrite, kRead };

enum class Guard : uint8_t { kNone, kT10DifCrc, kT10DifIpChecksum, kCrc32, kCrc32c };

// Bits of Protection::checks. CRCs have only the guard.
inline constexpr uint8_t kCheckGuard = 1;
inline constexpr uint8_t kCheckApplicationTag = 2;
inline constexpr uint8_t kCheckReferenceTag = 4;
inline constexpr uint8_t kCheckAll = 7;

inline constexpr uint32_t kMaxSignatureBytes = 8;
inline constexpr uint32_t kMaxBlocks = 1u << 18;  // per transfer: 1 GiB in blocks of 4096
inline constexpr uint64_t kMaxPlainBytes = uint64_t{1} << 30;

struct Protection {
  Guard memory = Guard::kNone;
  Guard wire = Guard::kNone;
  uint32_t block_bytes = 4096;  // 4096 or 512
  uint16_t application_tag = 0;
  uint32_t reference_tag = 0;  // value in the first block
  uint8_t checks = kCheckAll;

  bool operator==(const Protection&) const = default;
};

// "T10-DIF (CRC)", …
std::string_view Name(Guard guard);
constexpr bool IsT10Dif(Guard guard) {
  return guard == Guard::kT10DifCrc || guard == Guard::kT10DifIpChecksum;
}
constexpr uint32_t SignatureBytes(Guard guard) {
  if (guard == Guard::kNone) return 0;
  return IsT10Dif(guard) ? 8 : 4;
}

// Returns whether neither domain has signatures.
constexpr bool IsPlain(const Protection& protection) {
  return protection.memory == Guard::kNone && protection.wire == Guard::kNone;
}

// Errors: INVALID_ARGUMENT (no such guard, block size or check).
absl::Status Validate(const Protection& protection);
// Likewise, with the data of one transfer: 1 to kMaxBlocks whole blocks; without protection any
// number of bytes.
absl::Status Validate(const Protection& protection, uint64_t data_bytes);

// Size in bytes of `data_bytes` in a domain, signatures included.
constexpr uint64_t DomainBytes(Guard guard, uint32_t block_bytes, uint64_t data_bytes) {
  return data_bytes + data_bytes / block_bytes * SignatureBytes(guard);
}
constexpr uint64_t MemoryBytes(const Protection& protection, uint64_t data_bytes) {
  return DomainBytes(protection.memory, protection.block_bytes, data_bytes);
}
constexpr uint64_t WireBytes(const Protection& protection, uint64_t data_bytes) {
  return DomainBytes(protection.wire, protection.block_bytes, data_bytes);
}

// Wire format: little-endian, reserved bytes zero.
inline constexpr size_t kProtectionBytes = 16;
void Store(const Protection& protection, std::byte* to);
// INVALID_ARGUMENT: wrong length, or a Protection that Validate() refuses.
absl::StatusOr<Protection> LoadProtection(std::span<const std::byte> bytes);

// "T10-DIF (CRC) in memory, nothing on the wire, blocks of 4096".
std::string ToString(const Protection& protection);

}  // namespace sluice::integrity

#endif  // SLUICE_TRANSPORT_INTEGRITY_PROTECTION_H_
