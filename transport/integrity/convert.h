// SPDX-License-Identifier: Apache-2.0
//
// Convert: what a protected transfer does to bytes, done by the CPU: where the device has no signature keys, and to look at
// what a peer put into one's memory. Says of the same bytes what the device would say.
//
// Thread-safety: pure functions.
#ifndef SLUICE_TRANSPORT_INTEGRITY_CONVERT_H_
#define SLUICE_TRANSPORT_INTEGRITY_CONVERT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/integrity/mismatch.h"
#include "transport/integrity/protection.h"

namespace sluice::integrity {

enum class Direction : uint8_t { kToWire, kFromWire };

// The first mismatch of the domain that bytes come from, if any; `output` is filled in any case. `protection` is valid for
// the transfer's data; `input` and `output` are as long as it takes in their domains, and apart.
std::optional<Mismatch> Convert(const Protection& protection, Direction direction,
                                std::span<const std::byte> input, std::span<std::byte> output);

// The check alone, of data that stand in memory (kToWire) or as they came from the wire (kFromWire).
std::optional<Mismatch> Check(const Protection& protection, Direction direction,
                              std::span<const std::byte> input);

// Puts signatures behind the blocks of `data`, as they stand in memory: what a writer of protected data does first.
void Protect(const Protection& protection, std::span<const std::byte> data,
             std::span<std::byte> output);

}  // namespace sluice::integrity

#endif  // SLUICE_TRANSPORT_INTEGRITY_CONVERT_H_
