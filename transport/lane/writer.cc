// SPDX-License-Identifier: Apache-2.0
#include "transport/lane/writer.h"

#include <algorithm>
#include <cstring>

namespace sluice::lane {

Write Writer::Put(std::byte* message, uint32_t message_bytes) {
  const uint32_t value = grant_.secret + written_;
  const uint64_t stamp = Stamp(value, message_bytes);
  const uint32_t padded_bytes = WordsUp(message_bytes);
  if (padded_bytes != message_bytes) {
    std::memset(message + message_bytes, 0, padded_bytes - message_bytes);
  }
  Write write{.immediate = Immediate(grant_.lane, value),
              .length_bytes = EncodedBytes(grant_.layout, message_bytes)};
  if (grant_.layout == Layout::kWhole) {
    std::memcpy(message + padded_bytes, &stamp, kStampBytes);
  } else {
    // The first block may be partial. The other blocks are full.
    write.offset_bytes = padded_bytes;
    const std::byte* from = message;
    std::byte* to = message + padded_bytes;
    uint32_t left = padded_bytes;
    uint32_t here = (padded_bytes - 1) % kBlockPayloadBytes + 1;
    while (left != 0) {
      std::memcpy(to, from, here);
      std::memcpy(to + here, &stamp, kStampBytes);
      from += here;
      to += here + kStampBytes;
      left -= here;
      here = kBlockPayloadBytes;
    }
  }
  write.rkey = grant_.rkey;
  write.address = grant_.address + uint64_t{slot_ + 1} * grant_.slot_bytes - write.length_bytes;
  ++written_;
  if (++slot_ == grant_.slots) slot_ = 0;
  return write;
}

}  // namespace sluice::lane
