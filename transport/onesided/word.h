// SPDX-License-Identifier: Apache-2.0
//
// The head of a word between two movers: the sender's place, the number of the word, and the number of words taken from the other side.
//
// Threads       Any: values and pure functions. LoadHead() checks bytes from the peer.
#ifndef SLUICE_TRANSPORT_ONESIDED_WORD_H_
#define SLUICE_TRANSPORT_ONESIDED_WORD_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace sluice::onesided {

enum class WordKind : uint8_t {
  kWord = 1,  // the bytes of the word follow
  kGrant,     // carries only Head::granted
  kGoodbye,   // last message: the sender disconnects
};

struct Head {
  WordKind kind = WordKind::kWord;
  uint32_t place = 0;     // place of the sender at the receiver
  uint64_t token = 0;     // token in the receiver's Address
  uint32_t sequence = 0;  // kWord only: number of the word, from 0, modulo 2^32
  uint32_t granted = 0;   // number of words taken so far, plus the window (peer/credits.h)

  bool operator==(const Head&) const = default;
};

inline constexpr size_t kHeadBytes = 24;
inline constexpr size_t kMaxWordBytes = 232;

void Store(const Head& head, std::byte* to);
// Returns nullopt if the bytes are not a valid message.
std::optional<Head> LoadHead(std::span<const std::byte> bytes);

}  // namespace sluice::onesided

#endif  // SLUICE_TRANSPORT_ONESIDED_WORD_H_
