// SPDX-License-Identifier: Apache-2.0
//
// Transform: what the device does to a message that passes through a memory key with a signature:
// checks and strips, inserts, or checks and passes on, block by block.
//
//   kToWire     bytes come from memory, leave for the wire
//   kFromWire   the other way round
//
//   input -> blocks + signatures -> check (check_mask) -> data -> + signatures, made or copied -> output
//
// A mismatch changes nothing in what comes out; it is reported. Thread-safe, no state.
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

// Of the first block that is wrong; of several faults in it the first of the enum. (man
// mlx5dv_mkey_check)
struct Mismatch {
  Fault fault = Fault::kGuard;
  uint64_t actual = 0;    // what the data, or the configuration, makes it
  uint64_t expected = 0;  // what the signature says
  uint64_t offset_bytes =
      0;  // of the block, in the domain that was checked, from where the transfer began

  bool operator==(const Mismatch&) const = default;
};

// What a range of the wire domain stands for.
struct Extent {
  uint64_t data_start = 0;  // of the transfer, in the memory key's data
  uint64_t memory_start = 0;
  uint64_t memory_bytes = 0;
};

// Nothing: the range begins inside a block of one of the domains. It may end anywhere: a block that
// lacks its signature, or a part of it, is not checked.
std::optional<Extent> ExtentOf(const BlockSignature& signature, uint64_t wire_start,
                               uint64_t wire_bytes);

// Replaces `output` by the other domain's bytes: towards the wire at most `wire_bytes`, from the wire as
// many as the extent says. `input` is the whole of what comes in; `data_start` a multiple of the blocks.
std::optional<Mismatch> Transform(const BlockSignature& signature, Direction direction,
                                  uint64_t data_start, std::span<const std::byte> input,
                                  uint64_t wire_bytes, std::vector<std::byte>* output);

}  // namespace sluice::softdc::signature

#endif  // SLUICE_TRANSPORT_SOFTDC_SIGNATURE_TRANSFORM_H_
