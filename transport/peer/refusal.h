// SPDX-License-Identifier: Apache-2.0
//
// The refusal: answer of the server in place of a welcome, in the private data of an RDMA_CM reject. At most 148 bytes.
//
//     0  u32  magic, 4 u8 version, 5 u8 kind = 3, 6 u8 code, 7 u8 text length, 8 text
//
// With code 8 the text is a cookie of 8 bytes: the client repeats its hello at once, with the cookie (handshake.h).
//
// It is not authenticated: any host that can send a reject can make a connect fail. Adding a code: here, its
// status in DecodeRefusal, a test that provokes it.
#ifndef SLUICE_TRANSPORT_PEER_REFUSAL_H_
#define SLUICE_TRANSPORT_PEER_REFUSAL_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "transport/peer/cookies.h"
#include "transport/peer/crypto.h"

namespace sluice::peer {

inline constexpr size_t kMaxRefusalText = 140;

enum class RefusalCode : uint8_t {
  kNone = 0,
  kGarbage = 1,   // the bytes are not a hello
  kVersion = 2,   // a version that this side does not speak
  kFull = 3,      // no room for another peer
  kShutdown = 4,  // the server is shutting down
  kInternal = 5,
  kUnauthenticated = 6,  // no secret, an unknown secret, or a wrong MAC
  kTooOften = 7,         // too many handshakes of that address have failed
  kCookie = 8,           // the server is under load: repeat the hello with this cookie
  kPlace = 9,            // another device, port or address than that of the server's queues
  kPathMtu = 10,         // the path MTUs of the two sides are not the same
  kTransport = 11,       // one side has DC, the other RC queue pairs
};

// Returns the code for a hello or a welcome that was refused with `why`.
RefusalCode CodeFor(const absl::Status& why);
std::vector<std::byte> EncodeRefusal(RefusalCode code, std::string_view text);
std::vector<std::byte> EncodeRefusal(const absl::Status& why);
std::vector<std::byte> EncodeRefusal(const Cookie& cookie);

// Returns the status that the refused side reports, or `fallback` if the bytes are not a refusal.
absl::Status DecodeRefusal(Bytes bytes, const std::string& peer, const absl::Status& fallback);
// Returns the cookie for the repeated hello. Returns nullopt if the bytes are another refusal or none.
std::optional<Cookie> CookieIn(Bytes bytes);
// Returns whether the bytes are a refusal with that code.
bool IsRefusalWith(Bytes bytes, RefusalCode code);
// Returns the status of a refusal with this code and cause.
absl::Status RefusalStatus(RefusalCode code, const std::string& peer, const std::string& cause);

}  // namespace sluice::peer

#endif  // SLUICE_TRANSPORT_PEER_REFUSAL_H_
