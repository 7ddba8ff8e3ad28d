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

// Description of a lane, which its receiver sends to the writer.
struct Grant {
  uint32_t generation = 0;  // identifies the lane among all lanes of the receiver
  uint32_t rkey = 0;
  uint64_t address = 0;  // of slot 0, in the receiver's memory
  uint32_t slots = 0;
  uint32_t slot_bytes = 0;
  uint32_t secret = 0;  // value of the first stamp
  uint32_t lane = 0;    // number of the lane at the receiver, for immediate data
  Layout layout = Layout::kWhole;
};

// One RDMA WRITE.
struct Write {
  uint64_t address = 0;
  uint32_t rkey = 0;
  uint32_t immediate = 0;     // if the message is announced
  uint32_t offset_bytes = 0;  // from the message's first byte to the first byte to write
  uint32_t length_bytes = 0;
};

// Immediate data contains the number of the lane, and the low bits of the stamp's value.
inline constexpr uint32_t kLaneBits = 12;
inline constexpr uint32_t kMaxLanes = 1u << kLaneBits;
constexpr uint32_t Immediate(uint32_t lane, uint32_t value) {
  return lane << (32 - kLaneBits) | (value & ((1u << (32 - kLaneBits)) - 1));
}

class Writer {
 public:
  explicit Writer(const Grant& grant) : grant_(grant) {}

  // Returns whether a message is not empty, and its encoded form fits into a slot and into `room_bytes`, the room behind the message.
  bool Fits(uint32_t message_bytes, uint32_t room_bytes) const {
    const uint32_t encoded_bytes = EncodedBytes(grant_.layout, message_bytes);
    return message_bytes != 0 && encoded_bytes <= grant_.slot_bytes && encoded_bytes <= room_bytes;
  }

  // Encodes a message for the next slot, and returns the WRITE to post. kWhole encodes in place; kBlocks encodes behind the message,
  // from WordsUp(message_bytes) on. Call only if Fits() is true.
  Write Put(std::byte* message, uint32_t message_bytes);
  // Like Put(), but the caller computes the address of the WRITE, and calls Advance() for the slots of the messages before the next Put().
  // Layout::kWhole only.
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
  }
  void Advance(uint32_t slots) {
    slot_ += slots;
    if (slot_ >= grant_.slots) slot_ -= grant_.slots;
  }
  // Immediate data that announces the last message.
  uint32_t last_immediate() const { return Immediate(grant_.lane, grant_.secret + written_ - 1); }

  uint32_t written() const { return written_; }
  const Grant& grant() const { return grant_; }

 private:
  Grant grant_;
  uint32_t written_ = 0;  // messages, modulo 2^32
  uint32_t slot_ = 0;     // of the next message
};

}  // namespace sluice::lane

#endif  // SLUICE_TRANSPORT_LANE_WRITER_H_
