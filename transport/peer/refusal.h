// SPDX-License-Identifier: Apache-2.0
//
// The server's answer instead of a welcome, in the private data of an RDMA_CM reject; 148 bytes at most.
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
  kGarbage = 1,   // the bytes are no hello
  kVersion = 2,   // a version that this side does not speak
  kFull = 3,      // no room for another peer
  kShutdown = 4,  // closing
  kInternal = 5,
  kUnauthenticated = 6,  // no secret, an unknown one, or its MAC is wrong
  kTooOften = 7,         // too many handshakes of that address have failed
  kCookie = 8,           // the server is under load: hello again, with this cookie
  kPlace = 9,            // over a device, port or address that the server's queues are not at
  kPathMtu = 10,         // the path MTUs of the two sides are not the same
  kTransport = 11,       // one side has DC, the other RC queue pairs
};

// What to answer to a hello or a welcome that was refused with `why`.
RefusalCode CodeFor(const absl::Status& why);
std::vector<std::byte> EncodeRefusal(RefusalCode code, std::string_view text);
std::vector<std::byte> EncodeRefusal(const absl::Status& why);
std::vector<std::byte> EncodeRefusal(const Cookie& cookie);

// The status that the refused side reports; `fallback` if the bytes are no refusal.
absl::Status DecodeRefusal(Bytes bytes, const std::string& peer, const absl::Status& fallback);
// The cookie to say hello again with; nothing: it is another refusal, or none.
std::optional<Cookie> CookieIn(Bytes bytes);
// Whether it is a refusal with that code.
bool IsRefusalWith(Bytes bytes, RefusalCode code);
// The same as DecodeRefusal() for a code alone.
absl::Status RefusalStatus(RefusalCode code, const std::string& peer, const std::string& cause);

}  // namespace sluice::peer

#endif  // SLUICE_TRANSPORT_PEER_REFUSAL_H_
