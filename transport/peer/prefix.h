// SPDX-License-Identifier: Apache-2.0
//
// The prefix: sixteen bytes before every message on a DCT, data or control. Little endian.
//
//     0  u32  index of the sender in the receiver's peer table (from the receiver's welcome or terms)
//     4  u32  the token of that index: a message for an older incarnation never matches
//     8  u32  credits granted to the receiver since the start, modulo 2^32
//    12  u8   kind: 1 data, 2 credits only, 3 goodbye, 4 proof, 5 answer (both followed by sealed terms),
//             6 probe: requests a report of credits, 7 and 8 lane ask and answer (followed by transport/lane/words.h),
//             9 targets: DCTs to which the peer sends from now on (followed by transport/peer/targets.h), 10 targets
//             taken (followed by the number of the control DCT), 11 to 14 window ask, grant, recall and return (followed by
//             transport/peer/window_words.h)
//    13  u8   bit 0: requests a report soon; other bits zero
//    14  u16  data and goodbye: number of earlier data messages to this peer, modulo 2^16; other kinds zero
//
// A grant is the number of data messages that the sender of the prefix has taken plus its nominal window, so it is also an
// acknowledgement. Grants are cumulative, so a lost or repeated grant is harmless. Adding a kind: Kind, LoadPrefix(), the
// endpoint's OnControl, tests.
#ifndef SLUICE_TRANSPORT_PEER_PREFIX_H_
#define SLUICE_TRANSPORT_PEER_PREFIX_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "transport/peer/wire.h"

namespace sluice::peer {

enum class Kind : uint8_t {
  kData = 1,
  kCredits = 2,
  kGoodbye = 3,
  kProof = 4,
  kAnswer = 5,
  kProbe = 6,
  kLaneAsk = 7,
  kLaneAnswer = 8,
  kTargets = 9,
  kTargetsTaken = 10,
  kWindowAsk = 11,
  kWindowGrant = 12,
  kWindowRecall = 13,
  kWindowReturn = 14,
};

inline constexpr uint8_t kReportSoon = 1;

struct Prefix {
  uint32_t peer_index;
  uint32_t token;
  uint32_t granted;
  Kind kind;
  uint8_t flags;
  uint16_t number;
};
inline constexpr size_t kPrefixBytes = 16;
static_assert(sizeof(Prefix) == kPrefixBytes && offsetof(Prefix, granted) == 8 &&
              offsetof(Prefix, kind) == 12 && offsetof(Prefix, number) == 14);

inline void StorePrefix(std::byte* at, const Prefix& prefix) {
  std::memcpy(at, &prefix, sizeof(prefix));
}

// Returns false if the bytes are too few, the kind is unknown, or an unused bit is set. The peer table checks index and token.
inline bool LoadPrefix(const std::byte* at, size_t size_bytes, Prefix* prefix) {
  if (size_bytes < kPrefixBytes) return false;
  std::memcpy(prefix, at, sizeof(*prefix));
  const auto kind = static_cast<uint8_t>(prefix->kind);
  return kind >= 1 && kind <= 14 && prefix->flags <= kReportSoon &&
         (prefix->number == 0 || prefix->kind == Kind::kData || prefix->kind == Kind::kGoodbye);
}

}  // namespace sluice::peer

#endif  // SLUICE_TRANSPORT_PEER_PREFIX_H_
