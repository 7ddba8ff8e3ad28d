// SPDX-License-Identifier: Apache-2.0
//
// Terms: addresses and limits with which one side receives from the other. They are sent over the control DCT, after a prefix, sealed.
// The terms of the client are its proof, the terms of the server are the answer. Little endian.
//
//   before the seal, 48 bytes; sealed, 64
//     0  u32  data DCTN (24 bit)
//     4  u32  maximum size of a message that the sender receives, in bytes
//     8  u64  data DC key
//    16  u64  control DC key
//    24  u32  index of the receiver in the sender's peer table, for the prefix of each message
//    28  u32  token of that index
//    32  u16  credits: the nominal window, by which grants count (credits.h)
//    34  u16  the window in use: data messages that may be sent before the first grant. 0: none until the peer requests a
//             window (window_words.h)
//    36  u8   maximum reads in flight that the sender serves
//    37  u8   path MTU of its queues, as enum ibv_mtu
//    38  u8   service level of its path, 0 to 15
//    39  u8   refusal code. If it is not 0, there is no connection, and the other fields are zero. Exception:
//             with kPathMtu, 32 (u32) is the sender's path MTU in bytes
//    40  u64  maximum size of a message that the sender reads from lent memory; 0: none
#ifndef SLUICE_TRANSPORT_PEER_TERMS_H_
#define SLUICE_TRANSPORT_PEER_TERMS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "transport/peer/crypto.h"
#include "transport/peer/refusal.h"

namespace sluice::peer {

inline constexpr size_t kTermsBytes = 48;
inline constexpr size_t kSealedTermsBytes = kTermsBytes + kTagBytes;
// Minimum that options allow: enough for a header and an error.
inline constexpr uint32_t kMinMessageBytes = 64;
inline constexpr uint32_t kMaxCredits = INT16_MAX;
inline constexpr uint64_t kMaxLargeBytes = INT32_MAX;  // limit of protobuf

struct Terms {
  uint32_t data_dctn = 0;
  uint32_t max_message_bytes = 0;
  uint64_t data_key = 0;
  uint64_t control_key = 0;
  uint32_t peer_index = 0;
  uint32_t token = 0;    // never 0
  uint32_t credits = 0;  // nominal window; in a refusal: its number
  uint32_t window = 0;   // window in use: at most `credits`
  uint8_t reads = 0;
  uint8_t mtu = 0;  // enum ibv_mtu: 1 is 256 bytes, 5 is 4096
  uint32_t mtu_bytes() const { return 128u << mtu; }
  uint8_t service_level = 0;
  RefusalCode refusal = RefusalCode::kNone;
  uint64_t max_large_bytes = 0;

  friend bool operator==(const Terms&, const Terms&) = default;
};

// Seals the terms. `prefix` is sent before them in the clear and is authenticated with them. Use each key once.
std::array<std::byte, kSealedTermsBytes> SealTerms(const Terms& terms, const Key& key,
                                                   Bytes prefix);

// Opens sealed terms. UNAUTHENTICATED: they were not sealed by this key for this prefix. INVALID_ARGUMENT: the key is right, but a value
// is invalid.
absl::StatusOr<Terms> OpenTerms(Bytes sealed, const Key& key, Bytes prefix);

// Limits that both sides support.
struct Agreement {
  uint32_t max_message_bytes = 0;  // to the peer
  uint64_t max_large_bytes = 0;    // in both directions; 0: no large messages
  uint8_t reads = 0;               // in flight to the peer
};
Agreement Agree(const Terms& own, const Terms& other);

// Returns "this side's path MTU is 1024 bytes, the other side's 512". All peers share this side's queues, which have one path MTU. The
// device of a peer with another path MTU refuses requests of more than one packet, so such peers are not connected
// (docs/decisions/0062).
std::string UnlikeMtus(uint32_t own_bytes, uint32_t other_bytes);

}  // namespace sluice::peer

#endif  // SLUICE_TRANSPORT_PEER_TERMS_H_
