// SPDX-License-Identifier: Apache-2.0
//
// The handshake: what two endpoints tell each other in the private data of RDMA_CM. Little endian.
//
//   Hello / Welcome, 56 bytes (all that a request can carry)
//     0  u32  magic "SLCE"
//     4  u8   protocol version
//     5  u8   kind: 1 hello (request), 2 welcome (response), 3 refusal (reject)
//     6  u16  zero
//     8  u64  epoch: drawn at random when the endpoint starts; names this incarnation
//    16  u32  data DCTN (24 bit)
//    20  u32  control DCTN (24 bit)
//    24  u64  data DC key
//    32  u64  control DC key
//    40  u32  largest message that the sender takes, in bytes
//    44  u32  sender's index for the receiver: goes into the prefix of every message to the sender
//    48  u32  token that goes with the index
//    52  u32  credits: data messages that may be sent before the first grant
//
//   Refusal, 148 bytes at most
//     0  u32  magic, 4 u8 version, 5 u8 kind = 3, 6 u8 code, 7 u8 text length, 8 text
//
// The first eight bytes keep their meaning in all versions, so that any version can refuse any
// other. Adding a field: a new version, its size here, Encode, Decode, the fuzz test, docs.
#ifndef SLUICE_TRANSPORT_PEER_HANDSHAKE_H_
#define SLUICE_TRANSPORT_PEER_HANDSHAKE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice::peer {

inline constexpr uint32_t kMagic = 0x45434c53;  // "SLCE" as the bytes stand
inline constexpr uint8_t kProtocolVersion = 1;
inline constexpr size_t kHelloBytes = 56;
inline constexpr size_t kMaxRefusalText = 140;

enum class HandshakeKind : uint8_t { kHello = 1, kWelcome = 2, kRefusal = 3 };

struct Hello {
  uint64_t epoch = 0;
  uint32_t data_dctn = 0;
  uint32_t control_dctn = 0;
  uint64_t data_key = 0;
  uint64_t control_key = 0;
  uint32_t max_message_bytes = 0;
  uint32_t peer_index = 0;
  uint32_t token = 0;  // never 0
  uint32_t credits = 0;

  friend bool operator==(const Hello&, const Hello&) = default;
};

enum class RefusalCode : uint8_t {
  kGarbage = 1,   // the bytes are no hello
  kVersion = 2,   // a version that this side does not speak
  kFull = 3,      // no room for another peer
  kShutdown = 4,  // closing
  kInternal = 5,
};

std::array<std::byte, kHelloBytes> Encode(const Hello& hello, HandshakeKind kind);

// `bytes` may be longer (zero padded). INVALID_ARGUMENT: not a handshake of Sluice.
// FAILED_PRECONDITION: another version; the message names both.
absl::StatusOr<Hello> Decode(std::span<const std::byte> bytes, HandshakeKind kind);

// What to answer to a hello that Decode() refused with `why`.
RefusalCode CodeFor(const absl::Status& why);
std::vector<std::byte> EncodeRefusal(RefusalCode code, std::string_view text);

// The status that the refused side reports; `fallback` if the bytes are no refusal.
absl::Status DecodeRefusal(std::span<const std::byte> bytes, const std::string& peer,
                           const absl::Status& fallback);

}  // namespace sluice::peer

#endif  // SLUICE_TRANSPORT_PEER_HANDSHAKE_H_
