// SPDX-License-Identifier: Apache-2.0
//
// WindowWord: message between the two ends of a connection about the window in use of one direction. It follows the prefix of
// a control message (docs/decisions/0067). Little endian.
//
//     0  u32  number of the window: counts the sender's asks; the window of the handshake has number 0
//     4  u32  count, by kind
//
//   kind           from                 count
//   kWindowAsk     sender of messages   messages sent before, modulo 2^32; window `number` - 1 is returned
//   kWindowGrant   receiver             receive buffers promised until window `number` is returned; not 0
//   kWindowRecall  receiver             0. Another peer waits, and no buffer is left
//   kWindowReturn  sender               messages sent before, modulo 2^32; none follows before the next grant
//
// Each word is complete, so a lost word can be repeated, and a repeated word is harmless.
#ifndef SLUICE_TRANSPORT_PEER_WINDOW_WORDS_H_
#define SLUICE_TRANSPORT_PEER_WINDOW_WORDS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/peer/wire.h"

namespace sluice::peer {

struct WindowWord {
  uint32_t number = 0;
  uint32_t count = 0;

  friend bool operator==(const WindowWord&, const WindowWord&) = default;
};
inline constexpr size_t kWindowWordBytes = 8;

inline std::array<std::byte, kWindowWordBytes> EncodeWindowWord(const WindowWord& word) {
  std::array<std::byte, kWindowWordBytes> bytes;
  Store(bytes.data(), word.number);
  Store(bytes.data() + 4, word.count);
  return bytes;
}

// Returns nullopt if the length is wrong.
inline std::optional<WindowWord> DecodeWindowWord(std::span<const std::byte> bytes) {
  if (bytes.size() != kWindowWordBytes) return std::nullopt;
  return WindowWord{.number = Load<uint32_t>(bytes.data()),
                    .count = Load<uint32_t>(bytes.data() + 4)};
}

}  // namespace sluice::peer

#endif  // SLUICE_TRANSPORT_PEER_WINDOW_WORDS_H_
