// SPDX-License-Identifier: Apache-2.0
//
// What is said instead of a welcome, in the private data of an RDMA_CM reject; 148 bytes at most.
//
//     0  u32  magic, 4 u8 version, 5 u8 kind = 3, 6 u8 code, 7 u8 text length, 8 text
//
// It is not authenticated: whoever can reject can make a connect fail. Adding a code: here, its
// status in DecodeRefusal, a test that provokes it.
#ifndef SLUICE_TRANSPORT_PEER_REFUSAL_H_
#define SLUICE_TRANSPORT_PEER_REFUSAL_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "transport/peer/crypto.h"

namespace sluice::peer {

inline constexpr size_t kMaxRefusalText = 140;

enum class RefusalCode : uint8_t {
  kNone = 0,
  kGarbage = 1,   // the bytes are no hello
  kVersion = 2,   // a version that this side does not speak
  kFull = 3,      // no room for another peer
  kShutdown = 4,  // closing
  kInternal = 5,
  kUnauthenticated = 6,  // no secret, an unknown one, or its MAC is wrong
  kTooOften = 7,         // too many handshakes of that address have failed
};

// What to answer to a hello or a welcome that was refused with `why`.
RefusalCode CodeFor(const absl::Status& why);
std::vector<std::byte> EncodeRefusal(RefusalCode code, std::string_view text);
std::vector<std::byte> EncodeRefusal(const absl::Status& why);

// The status that the refused side reports; `fallback` if the bytes are no refusal.
absl::Status DecodeRefusal(Bytes bytes, const std::string& peer, const absl::Status& fallback);
// The same for a code alone.
absl::Status RefusalStatus(RefusalCode code, const std::string& peer, const std::string& cause);

}  // namespace sluice::peer

#endif  // SLUICE_TRANSPORT_PEER_REFUSAL_H_
