// SPDX-License-Identifier: Apache-2.0
//
// Convert, Check, Protect: protected transfers in software, for devices without signature keys, and
// to check data that a peer has written. Results equal those of the device.
//
// Threads       Any: pure functions.
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

// Converts `input` to `output`, and returns the first mismatch of the source domain, if any.
// `output` is filled in any case. `protection` is valid for the data; `input` and `output` have the
// sizes of their domains, and do not overlap.
std::optional<Mismatch> Convert(const Protection& protection, Direction direction,
                                std::span<const std::byte> input, std::span<std::byte> output);

// Checks data in memory format (kToWire) or in wire format (kFromWire), without converting them.
std::optional<Mismatch> Check(const Protection& protection, Direction direction,
                              std::span<const std::byte> input);

// Appends a signature to each block of `data`, in memory format. A writer of protected data does
// this first.
void Protect(const Protection& protection, std::span<const std::byte> data,
             std::span<std::byte> output);

}  // namespace sluice::integrity

#endif  // SLUICE_TRANSPORT_INTEGRITY_CONVERT_H_
