// SPDX-License-Identifier: Apache-2.0
//
// Layout: how a message lies in a slot of a lane, so that a reader that polls memory knows when all of it has arrived.
//
//   whole    bytes of one WRITE become visible in ascending order:
//              [free .. | message, zeros up to a word | stamp]          the stamp comes last
//   blocks   bytes become visible in order only inside aligned blocks of 128 bytes:
//              [free .. | tail of a block, stamp | 120 bytes, stamp | .. ]   each block has a stamp
//
// A message ends where its slot ends, so the last stamp is always at the same place, which no payload can reach. A stamp has eight bytes:
// the length of the message, and a value that differs in each use of the slot and in each lane. So neither an earlier stamp nor an
// unrequested write of the peer matches.
//
// Threads       Any: pure functions.
#ifndef SLUICE_TRANSPORT_LANE_LAYOUT_H_
#define SLUICE_TRANSPORT_LANE_LAYOUT_H_

#include <cstddef>
#include <cstdint>

namespace sluice::lane {

enum class Layout : uint8_t { kWhole = 1, kBlocks = 2 };

inline constexpr uint32_t kStampBytes = 8;
inline constexpr uint32_t kBlockBytes = 128;
inline constexpr uint32_t kBlockPayloadBytes = kBlockBytes - kStampBytes;
// Slots are whole blocks, aligned to blocks.
inline constexpr uint32_t kMinSlotBytes = kBlockBytes;
inline constexpr uint32_t kMaxSlotBytes = 32 * kBlockBytes;
inline constexpr uint32_t kMinSlots = 4;
inline constexpr uint32_t kMaxSlots = 4096;

constexpr bool IsLayout(uint8_t value) { return value == 1 || value == 2; }
constexpr bool IsSlotSize(uint32_t bytes) {
  return bytes >= kMinSlotBytes && bytes <= kMaxSlotBytes && bytes % kBlockBytes == 0;
}

constexpr uint32_t WordsUp(uint32_t bytes) { return (bytes + 7) & ~7u; }

// Returns the number of bytes that a message occupies in a slot, including stamps.
constexpr uint32_t EncodedBytes(Layout layout, uint32_t message_bytes) {
  const uint32_t padded = WordsUp(message_bytes);
  const uint32_t stamps =
      layout == Layout::kWhole ? 1 : (padded + kBlockPayloadBytes - 1) / kBlockPayloadBytes;
  return padded + stamps * kStampBytes;
}

constexpr uint64_t Stamp(uint32_t value, uint32_t message_bytes) {
  return uint64_t{value} << 32 | message_bytes;
}
// Stamp of a slot without a message: before the first write, and after a message was taken. The value of a message's stamp can wrap
// to 0, but its length is never 0.
inline constexpr uint64_t kScrubbed = 0;
constexpr uint32_t StampValue(uint64_t stamp) { return static_cast<uint32_t>(stamp >> 32); }
constexpr uint32_t StampLength(uint64_t stamp) { return static_cast<uint32_t>(stamp); }

}  // namespace sluice::lane

#endif  // SLUICE_TRANSPORT_LANE_LAYOUT_H_
