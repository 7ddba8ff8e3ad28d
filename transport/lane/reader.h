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
    kNothing,  // no message, or not complete yet
    kMessage,
    kGarbage,  // the stamp matches, but its length is invalid: the peer is faulty
  };

  // `memory`: zeroed, and aligned to blocks. `in_order`: the device guarantees an order of writes, so the memory can be polled. If it is
  // false, Look() returns a message only after Announce() was called for it.
  Reader(const Geometry& geometry, std::byte* memory, uint32_t secret, bool in_order);

  // Returns whether the stamp of the next message is present. Costs one load, mostly a cache hit.
  bool Ready() const { return Ready(stamp_, value_); }
  static bool Ready(const uint64_t* at, uint32_t value) {
    const uint64_t stamp =
        std::atomic_ref(*const_cast<uint64_t*>(at)).load(std::memory_order_acquire);
    return StampValue(stamp) == value && stamp != kScrubbed;
  }
  // Returns the number of consecutive messages with a stamp, beginning with the next message: at most `most`, and at most the number
  // of slots.
  uint32_t ReadyAhead(uint32_t most) const;
  // Address of the next stamp and its expected value, for a caller that polls many lanes. Valid until a message is taken.
  const uint64_t* stamp() const { return stamp_; }
  uint32_t value() const { return value_; }
  // Reads a word of the message that follows `ahead` other messages. The peer can change the word until the message is copied.
  // Returns false if the lane has blocks or needs announcements, if the message is not complete, or if it has no such word.
  bool Peek(uint32_t ahead, uint32_t offset_bytes, uint32_t* word) const;
  // Copies the next message without taking it. `to` has room for a slot.
  Found Look(std::byte* to, uint32_t* length_bytes) const;
  // Takes the message that Look() copied: clears the stamps of its slot, and advances to the next slot.
  void Take();

  // Copies the next message like Look(), but inline and only in common cases. Returns its length; 0: call Look(). `to` has room for a
  // slot.
  uint32_t LookPlainly(std::byte* to) const {
    const uint64_t stamp = std::atomic_ref(*stamp_).load(std::memory_order_acquire);
    const uint32_t bytes = StampLength(stamp);
    if (StampValue(stamp) != value_ || bytes - kShortest >= plain_lengths_) return 0;
    std::memcpy(to, reinterpret_cast<const std::byte*>(stamp_) - WordsUp(bytes), bytes);
    return bytes;
  }
  // Takes the message that LookPlainly() copied.
  void TakePlainly() {
    std::atomic_ref(*stamp_).store(kScrubbed, std::memory_order_relaxed);
    Next();
  }

  // Marks a message as complete when its completion arrives. `low_bits`: its immediate data, of which only the bits of the stamp's value
  // count. Returns false if no slot can hold a message with these bits.
  bool Announce(uint32_t low_bits);
  // Returns how many messages are between the next message and the message with these bits. Negative: it was taken already.
  int32_t Ahead(uint32_t low_bits) const;

  // Messages taken, modulo 2^32.
  uint32_t taken() const { return value_ - first_value_; }
  uint32_t slot_bytes() const { return geometry_.slot_bytes; }

 private:
  // LookPlainly() copies only messages of kShortest to kMostPlainBytes bytes.
  static constexpr uint32_t kShortest = 32;
  static constexpr uint32_t kMostPlainBytes = 512;

  // Index of the next slot.
  uint32_t slot() const { return geometry_.slots - left_; }
  void Next() {
    ++value_;
    stamp_ =
        reinterpret_cast<uint64_t*>(reinterpret_cast<std::byte*>(stamp_) + geometry_.slot_bytes);
    if (--left_ == 0) [[unlikely]] {
      left_ = geometry_.slots;
      stamp_ = reinterpret_cast<uint64_t*>(memory_ + geometry_.slot_bytes - kStampBytes);
    }
  }
  std::byte* slot_end() const { return reinterpret_cast<std::byte*>(stamp_) + kStampBytes; }
  Found LookAtBlocks(uint64_t stamp, std::byte* to) const;

  Geometry geometry_;
  std::byte* memory_;
  uint64_t* stamp_;  // last word of the next slot
  uint32_t value_;   // expected value of that stamp
  uint32_t left_;    // slots from the next one to the last
  const uint32_t first_value_;
  // Number of lengths, from kShortest up, that LookPlainly() handles. 0: messages are in blocks, or are announced.
  uint32_t plain_lengths_ = 0;
  std::vector<bool> announced_;  // by slot; empty if the memory can be polled
};

}  // namespace sluice::lane

#endif  // SLUICE_TRANSPORT_LANE_READER_H_
