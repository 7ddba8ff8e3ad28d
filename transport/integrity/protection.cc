// SPDX-License-Identifier: Apache-2.0
#include "transport/integrity/protection.h"

#include <bit>
#include <cstring>

#include "transport/base/error.h"

namespace sluice::integrity {
namespace {

static_assert(std::endian::native == std::endian::little);

absl::Status Refused(const std::string& what, std::string_view remedy) {
  return base::Error(absl::StatusCode::kInvalidArgument, what,
                     {.layer = "integrity", .operation = "protect", .remedy = remedy});
}

bool IsKnown(Guard guard) { return guard <= Guard::kCrc32c; }

}  // namespace

std::string_view Name(Guard guard) {
  switch (guard) {
    case Guard::kNone:
      return "nothing";
    case Guard::kT10DifCrc:
      return "T10-DIF (CRC)";
    case Guard::kT10DifIpChecksum:
      return "T10-DIF (IP checksum)";
    case Guard::kCrc32:
      return "CRC32";
    case Guard::kCrc32c:
      return "CRC32C";
  }
  return "an unknown guard";
}

absl::Status Validate(const Protection& protection) {
  for (const Guard guard : {protection.memory, protection.wire}) {
    if (!IsKnown(guard)) {
      return Refused("guard type " + std::to_string(static_cast<int>(guard)) + " is not supported",
                     "take T10-DIF with a CRC or an IP checksum, CRC32 or CRC32C");
    }
  }
  if (protection.block_bytes != 512 && protection.block_bytes != 4096) {
    return Refused(
        "blocks of " + std::to_string(protection.block_bytes) + " bytes are not supported",
        "take blocks of 512 or 4096 bytes");
  }
  if ((protection.checks & ~kCheckAll) != 0) {
    return Refused("there are no checks " + std::to_string(protection.checks & ~kCheckAll),
                   "take kCheckGuard, kCheckApplicationTag, kCheckReferenceTag or all of them");
  }
  return absl::OkStatus();
}

absl::Status Validate(const Protection& protection, uint64_t data_bytes) {
  absl::Status status = Validate(protection);
  if (!status.ok()) return status;
  const uint64_t block_bytes = protection.block_bytes;
  if (IsPlain(protection)) {
    if (data_bytes != 0 && data_bytes <= kMaxPlainBytes) return absl::OkStatus();
    return Refused(std::to_string(data_bytes) + " bytes are no transfer",
                   "move 1 byte to " + std::to_string(kMaxPlainBytes));
  }
  if (data_bytes == 0 || data_bytes % block_bytes != 0) {
    return Refused(std::to_string(data_bytes) + " bytes are not whole blocks of " +
                       std::to_string(block_bytes),
                   "transfer one block or more, and no part of one");
  }
  if (data_bytes / block_bytes > kMaxBlocks) {
    return Refused(std::to_string(data_bytes / block_bytes) + " blocks are too many",
                   "split the transfer: " + std::to_string(kMaxBlocks) + " blocks are the limit");
  }
  return absl::OkStatus();
}

// memory(1) wire(1) checks(1) 0(1) block_bytes(4) reference_tag(4) application_tag(2) 0(2)
void Store(const Protection& protection, std::byte* to) {
  std::memset(to, 0, kProtectionBytes);
  to[0] = static_cast<std::byte>(protection.memory);
  to[1] = static_cast<std::byte>(protection.wire);
  to[2] = static_cast<std::byte>(protection.checks);
  std::memcpy(to + 4, &protection.block_bytes, 4);
  std::memcpy(to + 8, &protection.reference_tag, 4);
  std::memcpy(to + 12, &protection.application_tag, 2);
}

absl::StatusOr<Protection> LoadProtection(std::span<const std::byte> bytes) {
  if (bytes.size() != kProtectionBytes) {
    return Refused("a protection of " + std::to_string(bytes.size()) + " bytes came",
                   "run the same release of Sluice on both sides");
  }
  Protection protection;
  protection.memory = static_cast<Guard>(bytes[0]);
  protection.wire = static_cast<Guard>(bytes[1]);
  protection.checks = static_cast<uint8_t>(bytes[2]);
  std::memcpy(&protection.block_bytes, &bytes[4], 4);
  std::memcpy(&protection.reference_tag, &bytes[8], 4);
  std::memcpy(&protection.application_tag, &bytes[12], 2);
  absl::Status status = Validate(protection);
  if (!status.ok()) return status;
  if ((bytes[3] | bytes[14] | bytes[15]) != std::byte{0}) {
    return Refused("a reserved field of a protection is not zero",
                   "run the same release of Sluice on both sides");
  }
  return protection;
}

std::string ToString(const Protection& protection) {
  return std::string(Name(protection.memory)) + " in memory, " +
         std::string(Name(protection.wire)) + " on the wire, blocks of " +
         std::to_string(protection.block_bytes);
}

}  // namespace sluice::integrity
