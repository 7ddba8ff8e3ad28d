// SPDX-License-Identifier: Apache-2.0
//
// The meaning of an indirect memory key (mlx5dv_create_mkey(3)): pieces of registered memory as one zero-based range, with an optional
// signature over it. The values are plain, because they are also in the arena, where other processes read them.
//
//   entries:  A bytes_count skip | B bytes_count skip | ...    repeated repeat_count times; each entry continues behind the
//             bytes that it skipped
//   range:    A0 B0 .. A1 B1 ..  = offsets 0 to length_bytes
#ifndef SLUICE_TRANSPORT_SOFTDC_MODEL_MKEY_LAYOUT_H_
#define SLUICE_TRANSPORT_SOFTDC_MODEL_MKEY_LAYOUT_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "transport/softdc/signature/block_signature.h"

namespace sluice::softdc {

// Maximum number of entries of one configuration WR. The entries are in its inline data, 16 bytes each.
inline constexpr uint32_t kMaxMkeyEntries = 32;

struct MkeyEntry {
  uint64_t address = 0;
  uint32_t bytes = 0;
  uint32_t skip_bytes = 0;
  uint32_t lkey = 0;
  uint32_t reserved = 0;

  bool operator==(const MkeyEntry&) const = default;
};
static_assert(sizeof(MkeyEntry) == 24);

// Configuration of a key. A key without a layout cannot be used.
struct MkeyConfig {
  uint32_t pd = 0;
  uint32_t access = 0;  // IBV_ACCESS_*
  uint32_t entry_count = 0;
  uint32_t repeat_count = 0;
  signature::BlockSignature signature;  // no signature if both domains are kNone
  std::array<MkeyEntry, kMaxMkeyEntries> entries;

  bool has_signature() const {
    return signature.memory.kind != signature::Kind::kNone ||
           signature.wire.kind != signature::Kind::kNone;
  }
  std::span<const MkeyEntry> layout() const { return std::span(entries).first(entry_count); }
};
static_assert(sizeof(MkeyConfig) == 56 + kMaxMkeyEntries * sizeof(MkeyEntry));

// Returns whether a configuration from shared memory is safe: it causes no access out of bounds. Its values may still be meaningless.
inline bool Valid(const MkeyConfig& config) {
  return config.entry_count <= kMaxMkeyEntries && signature::Valid(config.signature);
}

// Returns the size of one repetition: at most 2^37.
inline uint64_t RoundBytes(std::span<const MkeyEntry> entries) {
  uint64_t round_bytes = 0;
  for (const MkeyEntry& entry : entries) round_bytes += entry.bytes;
  return round_bytes;
}

// Returns the size of the whole range, or UINT64_MAX if the size does not fit.
inline uint64_t LengthBytes(const MkeyConfig& config) {
  uint64_t length_bytes = 0;
  if (__builtin_mul_overflow(RoundBytes(config.layout()), uint64_t{config.repeat_count},
                             &length_bytes)) {
    return UINT64_MAX;
  }
  return length_bytes;
}

// Calls visit(address, bytes, lkey) for each piece of [offset, offset + length_bytes), in ascending order, until a call returns false.
// Returns false if a call did, or if the range is not inside the key.
template <typename Visit>
bool ForEachPiece(const MkeyConfig& config, uint64_t offset, uint64_t length_bytes, Visit visit) {
  const uint64_t all_bytes = LengthBytes(config);
  if (offset > all_bytes || length_bytes > all_bytes - offset) return false;
  if (length_bytes == 0) return true;
  const uint64_t round_bytes = RoundBytes(config.layout());
  uint64_t into = offset % round_bytes;
  for (uint64_t round = offset / round_bytes; length_bytes != 0; ++round) {
    for (const MkeyEntry& entry : config.layout()) {
      if (into >= entry.bytes) {
        into -= entry.bytes;
        continue;
      }
      const uint64_t piece_bytes = std::min(entry.bytes - into, length_bytes);
      const uint64_t stride_bytes = uint64_t{entry.bytes} + entry.skip_bytes;
      if (!visit(entry.address + round * stride_bytes + into, piece_bytes, entry.lkey))
        return false;
      length_bytes -= piece_bytes;
      if (length_bytes == 0) break;
      into = 0;
    }
  }
  return true;
}

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_MKEY_LAYOUT_H_
