// SPDX-License-Identifier: Apache-2.0
//
// Transform: the operation of the device on a message that passes through a memory key with a signature. Block by block, it checks and
// strips signatures, inserts them, or checks them and passes them on.
//
//   kToWire     from memory to the wire
//   kFromWire   from the wire to memory
//
//   input -> blocks + signatures -> check (check_mask) -> data -> + signatures, made or copied -> output
//
// A mismatch is reported, and does not change the output. Thread-safe, no state.
#ifndef SLUICE_TRANSPORT_SOFTDC_SIGNATURE_TRANSFORM_H_
#define SLUICE_TRANSPORT_SOFTDC_SIGNATURE_TRANSFORM_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transport/softdc/signature/block_signature.h"

namespace sluice::softdc::signature {

enum class Direction : uint8_t { kToWire, kFromWire };

enum class Fault : uint8_t { kGuard, kApplicationTag, kReferenceTag };

// The first wrong block, and its first fault in the order of the enum (man mlx5dv_mkey_check).
struct Mismatch {
  Fault fault = Fault::kGuard;
  uint64_t actual = 0;    // computed from the data or the configuration
  uint64_t expected = 0;  // value in the signature
  uint64_t offset_bytes =
      0;  // of the block, in the domain that was checked, from where the transfer began

  bool operator==(const Mismatch&) const = default;
};

// The data and the memory that belong to a range of the wire domain.
struct Extent {
  uint64_t data_start = 0;  // of the transfer, in the memory key's data
  uint64_t memory_start = 0;
  uint64_t memory_bytes = 0;
};

// Returns nullopt if the range begins inside a block of one of the domains. The range may end anywhere. A block without its complete
// signature is not checked.
std::optional<Extent> ExtentOf(const BlockSignature& signature, uint64_t wire_start,
                               uint64_t wire_bytes);

// Replaces `output` with the bytes of the other domain: to the wire at most `wire_bytes`, from the wire as many as the extent says. `input`
// is the complete input. `data_start` is a multiple of the block size. Returns the first mismatch.
std::optional<Mismatch> Transform(const BlockSignature& signature, Direction direction,
                                  uint64_t data_start, std::span<const std::byte> input,
                                  uint64_t wire_bytes, std::vector<std::byte>* output);

}  // namespace sluice::softdc::signature

#endif  // SLUICE_TRANSPORT_SOFTDC_SIGNATURE_TRANSFORM_H_
