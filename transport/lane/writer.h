// SPDX-License-Identifier: Apache-2.0
//
// Writer: the sender's end of a lane. It writes messages into the slots in the layout of the grant.
//
// Purpose       A grant and a count. The writer does not check that a slot is free: the caller writes only while fewer than slots - 1
//               messages are unacknowledged, and then the next slot is free (docs/decisions/0024).
// Ownership     The sending endpoint, one for each lane that a peer has granted.
// Threads       The polling thread.
#ifndef SLUICE_TRANSPORT_LANE_WRITER_H_
#define SLUICE_TRANSPORT_LANE_WRITER_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "transport/lane/layout.h"

namespace sluice::lane {

static_assert(std::endian::native == std::endian::little);

// What a receiver says about a lane of its own.
struct Grant {
  uint32_t generation =
      0;  // names this lane, among all that the receiver ever granted to this peer
  uint32_t rkey = 0;
  uint64_t address = 0;  // of slot 0, in the receiver's memory
  uint32_t slots = 0;
  uint32_t slot_bytes = 0;
  uint32_t secret = 0;  // the value of the first stamp
  uint32_t lane = 0;    // the receiver's number for it, in immediate data
  Layout layout = Layout::kWhole;
};

// One RDMA WRITE.
struct Write {
  uint64_t address = 0;
  uint32_t rkey = 0;
  uint32_t immediate = 0;     // if it is to be announced
  uint32_t offset_bytes = 0;  // of what is to be written, from the message's first byte
  uint32_t length_bytes = 0;
};

// Immediate data: which lane, and the low bits of the stamp's value.
inline constexpr uint32_t kLaneBits = 12;
inline constexpr uint32_t kMaxLanes = 1u << kLaneBits;
constexpr uint32_t Immediate(uint32_t lane, uint32_t value) {
  return lane << (32 - kLaneBits) | (value & ((1u << (32 - kLaneBits)) - 1));
}

class Writer {
 public:
  explicit Writer(const Grant& grant) : grant_(grant) {}

  // Whether a message fits into a slot, and its other form behind it into `room_bytes`.
  bool Fits(uint32_t message_bytes, uint32_t room_bytes) const {
    const uint32_t encoded_bytes = EncodedBytes(grant_.layout, message_bytes);
    return message_bytes != 0 && encoded_bytes <= grant_.slot_bytes && encoded_bytes <= room_bytes;
  }

  // Stamps a message that Fits(), in place or behind it (WordsUp(message_bytes) from its beginning). Takes the next
  // slot.
  Write Put(std::byte* message, uint32_t message_bytes);
  // The same in place, for who knows by himself where it goes. Layout::kWhole only.
  void StampWhole(std::byte* message, uint32_t message_bytes) {
    std::byte* const end = message + WordsUp(message_bytes);
    if (const uint32_t tail_bytes = message_bytes % 8; tail_bytes != 0) {
      uint64_t word;
      std::memcpy(&word, end - 8, 8);
      word &= (uint64_t{1} << (8 * tail_bytes)) - 1;
      std::memcpy(end - 8, &word, 8);
    }
    const uint64_t stamp = Stamp(grant_.secret + written_, message_bytes);
    std::memcpy(end, &stamp, kStampBytes);
    ++written_;
    if (++slot_ == grant_.slots) slot_ = 0;
  }
  // Immediate data that announces the last message.
  uint32_t last_immediate() const { return Immediate(grant_.lane, grant_.secret + written_ - 1); }

  uint32_t written() const { return written_; }
  const Grant& grant() const { return grant_; }

 private:
  Grant grant_;
  uint32_t written_ = 0;  // messages, modulo 2^32
  uint32_t slot_ = 0;     // of the next
};

}  // namespace sluice::lane

#endif  // SLUICE_TRANSPORT_LANE_WRITER_H_
