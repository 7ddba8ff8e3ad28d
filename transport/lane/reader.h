// SPDX-License-Identifier: Apache-2.0
//
// Reader: the receiver's end of a lane. It polls the bytes of the next slot.
//
// Purpose       A ring of slots in registered memory into which one peer writes, and the stamp that is expected next. The reader copies
//               a complete message before it passes it on, because the peer can write into its lane at any time. Each slot is cleared
//               before it is free for the next lap.
// Ownership     The receiving endpoint, with the memory, which outlives it.
// Threads       The polling thread. A device or another process writes into the memory at the same time.
#ifndef SLUICE_TRANSPORT_LANE_READER_H_
#define SLUICE_TRANSPORT_LANE_READER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "transport/lane/layout.h"

namespace sluice::lane {

struct Geometry {
  Layout layout = Layout::kWhole;
  uint32_t slots = 0;
  uint32_t slot_bytes = 0;

  constexpr size_t size_bytes() const { return size_t{slots} * slot_bytes; }
};

class Reader {
 public:
  enum class Found : uint8_t {
    kNothing,  // or not all of it yet
    kMessage,
    kGarbage,  // the stamp is right, what it says can't be: the peer is broken
  };

  // `memory`: zeros, aligned to blocks. `order`: whether the memory may be watched; else each message must be Announce()d.
  Reader(const Geometry& geometry, std::byte* memory, uint32_t secret, bool in_order);

  // Cheap: one load of one word, mostly a cache hit.
  bool Ready() const { return Ready(stamp_, value_); }
  static bool Ready(const uint64_t* at, uint32_t value) {
    const uint64_t stamp =
        std::atomic_ref(*const_cast<uint64_t*>(at)).load(std::memory_order_acquire);
    return StampValue(stamp) == value && stamp != kScrubbed;
  }
  // How many messages have their stamps, from the next one on; `most` at most, and fewer than there are slots.
  uint32_t ReadyAhead(uint32_t most) const;
  // For who looks at many lanes: until the next Take().
  const uint64_t* stamp() const { return stamp_; }
  uint32_t value() const { return value_; }
  // A word of the message that is `ahead` of the next one, and has its stamp. It may change until that message is copied. False:
  // that message does not lie in one piece, is not all there yet, or has no such word.
  bool Peek(uint32_t ahead, uint32_t offset_bytes, uint32_t* word) const;
  // Copies the message that is next, without taking it; `to` has room for a slot.
  Found Look(std::byte* to, uint32_t* length_bytes) const;
  // After kMessage: its slot is free, and the next one is looked at.
  void Take();

  // Look() for most messages, without a call. 0: there is none, or Look() says what it is. `to` has room for a slot.
  uint32_t LookPlainly(std::byte* to) const {
    const uint64_t stamp = std::atomic_ref(*stamp_).load(std::memory_order_acquire);
    const uint32_t bytes = StampLength(stamp);
    if (StampValue(stamp) != value_ || bytes - kShortest >= plain_lengths_) return 0;
    const std::byte* from = reinterpret_cast<const std::byte*>(stamp_) - WordsUp(bytes);
    // In pieces of 64 and 32 bytes, of which the last one ends where the message ends.
    const uint32_t last = bytes - kShortest;
    uint32_t at = 0;
    for (; at + 2 * kShortest <= last; at += 2 * kShortest) {
      std::memcpy(to + at, from + at, 2 * kShortest);
    }
    if (at < last) std::memcpy(to + at, from + at, kShortest);
    if (at + kShortest < last) std::memcpy(to + at + kShortest, from + at + kShortest, kShortest);
    std::memcpy(to + last, from + last, kShortest);
    return bytes;
  }
  // Take() after LookPlainly().
  void TakePlainly() {
    std::atomic_ref(*stamp_).store(kScrubbed, std::memory_order_relaxed);
    ++value_;
    ++taken_;
    stamp_ += geometry_.slot_bytes / kStampBytes;
    if (++slot_ == geometry_.slots) [[unlikely]] {
      slot_ = 0;
      stamp_ = reinterpret_cast<uint64_t*>(memory_ + geometry_.slot_bytes - kStampBytes);
    }
  }

  // A completion says that all of a message is there; `low_bits` of its immediate data. False: no message in any slot
  // can have them.
  bool Announce(uint32_t low_bits);

  // Messages taken, modulo 2^32.
  uint32_t taken() const { return taken_; }
  uint32_t slot_bytes() const { return geometry_.slot_bytes; }

 private:
  // Messages of fewer bytes, and of more than this many pieces, are for Look().
  static constexpr uint32_t kShortest = 32;
  static constexpr uint32_t kMostPlainBytes = 512;

  std::byte* slot_end() const { return reinterpret_cast<std::byte*>(stamp_) + kStampBytes; }
  Found LookAtBlocks(uint64_t stamp, std::byte* to) const;

  Geometry geometry_;
  std::byte* memory_;
  uint64_t* stamp_;  // the last word of the slot that is next
  uint32_t value_;   // expected there
  uint32_t slot_ = 0;
  uint32_t taken_ = 0;
  // Of the lengths from kShortest on, those that LookPlainly() takes; 0 where messages lie in blocks or are announced.
  uint32_t plain_lengths_ = 0;
  std::vector<bool> announced_;  // by slot; empty where the memory may be watched
};

}  // namespace sluice::lane

#endif  // SLUICE_TRANSPORT_LANE_READER_H_
