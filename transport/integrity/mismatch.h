// SPDX-License-Identifier: Apache-2.0
//
// Mismatch: a block whose signature does not match its data or the tags of the transfer. Both the
// program that requested the transfer and its peer get it.
//
// Threads       Any: a value and pure functions.
#ifndef SLUICE_TRANSPORT_INTEGRITY_MISMATCH_H_
#define SLUICE_TRANSPORT_INTEGRITY_MISMATCH_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace sluice::integrity {

enum class Field : uint8_t { kGuard, kApplicationTag, kReferenceTag };

// The side that found it. The initiator executes the transfer: it checks data that it reads from
// its own memory or from the target. The target checks data that was written into its memory.
enum class End : uint8_t { kInitiator, kTarget };

// Describes the first wrong block; of several wrong fields the first in the order of the enum.
struct Mismatch {
  Field field = Field::kGuard;
  End end = End::kInitiator;
  uint32_t block = 0;     // index in the transfer, from 0
  uint32_t expected = 0;  // value in the signature
  uint32_t actual = 0;    // value computed from the data or the transfer's tags

  bool operator==(const Mismatch&) const = default;
};

std::string_view Name(Field field);
std::string_view Name(End end);

// Returns DATA_LOSS with the mismatch for MismatchOf(): "block 3 is damaged: its guard says 0x1c2d,
// …".
absl::Status MismatchError(const Mismatch& mismatch, std::string_view peer);
// Returns nullopt if the status has no mismatch.
std::optional<Mismatch> MismatchOf(const absl::Status& status);

// Wire format: little-endian, reserved bytes zero.
inline constexpr size_t kMismatchBytes = 16;
void Store(const Mismatch& mismatch, std::byte* to);
// Returns nullopt if the bytes are not a valid mismatch.
std::optional<Mismatch> LoadMismatch(std::span<const std::byte> bytes);

}  // namespace sluice::integrity

#endif  // SLUICE_TRANSPORT_INTEGRITY_MISMATCH_H_
