// SPDX-License-Identifier: Apache-2.0
//
// Mismatch: a block whose signature is not what its data, or the transfer's tags, make it. What the program that asked for
// the transfer learns, and what its peer is told.
//
// Thread-safety: a value and pure functions.
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

// Who found it. The initiator is who moves the data: what it reads out of its own memory, or reads from the
// target; the target is who looks at what was put into its memory.
enum class End : uint8_t { kInitiator, kTarget };

// Of the first wrong block; of several wrong fields in it the first of the enum.
struct Mismatch {
  Field field = Field::kGuard;
  End end = End::kInitiator;
  uint32_t block = 0;     // of the transfer, from 0
  uint32_t expected = 0;  // what the signature beside the data says
  uint32_t actual = 0;    // what the data, or the transfer's tags, make it

  bool operator==(const Mismatch&) const = default;
};

std::string_view Name(Field field);
std::string_view Name(End end);

// DATA_LOSS, with the mismatch for MismatchOf(): "block 3 is damaged: its guard says 0x1c2d, …".
absl::Status MismatchError(const Mismatch& mismatch, std::string_view peer);
// Nothing: the status is of another kind.
std::optional<Mismatch> MismatchOf(const absl::Status& status);

// As bytes of a message; little-endian, reserved bytes zero.
inline constexpr size_t kMismatchBytes = 16;
void Store(const Mismatch& mismatch, std::byte* to);
// Nothing: these bytes are none.
std::optional<Mismatch> LoadMismatch(std::span<const std::byte> bytes);

}  // namespace sluice::integrity

#endif  // SLUICE_TRANSPORT_INTEGRITY_MISMATCH_H_
