// SPDX-License-Identifier: Apache-2.0
//
// The first two messages of the handshake, in the private data of RDMA_CM. Little endian. docs/decisions/0011 explains their purpose.
// terms.h has the other two messages, refusal.h the refusal.
//
//   Hello, 56 bytes (all that a request can carry)
//     0  u32  magic "SLCE"
//     4  u8   protocol version
//     5  u8   kind: 1 hello (request), 2 welcome (response), 3 refusal (reject)
//     6  u16  flags: 1 unauthenticated, 2 no DC: the handshake ends with the welcome, 4 (hello) a cookie, 8 RC; the others zero
//     8  u64  epoch: drawn at random when the endpoint starts; names this incarnation
//    16  u32  secret id; 0 exactly if unauthenticated
//    20  u32  control DCTN (24 bit); 0 exactly if there is no DC. With flag 8 the number of this side's RC queue pair
//    24  16 B nonce; with flag 4 its last 8 bytes are the cookie of a refusal (refusal.h), returned. With flag 8 the first
//             packet sequence numbers are bits 0 to 23 (of the client) and 32 to 55 (of the server) of the hello's nonce
//    40  16 B MAC of the bytes before
//
//   Welcome, 72 bytes
//     0  the same up to the nonce
//    40  16 B sealed: control DC key u64, index u32 and token u32 of the receiver in the sender's peer table; zero
//             if there is no DC
//    56  16 B tag, over hello and welcome
//
// The first eight bytes keep their meaning in all versions, so that any version can refuse any
// other. Adding a field: a new version, its size here, Encode, Decode, golden bytes and fuzz target
// under tests/transport/peer, docs/decisions.
#ifndef SLUICE_TRANSPORT_PEER_HANDSHAKE_H_
#define SLUICE_TRANSPORT_PEER_HANDSHAKE_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "transport/base/random.h"
#include "transport/peer/cookies.h"
#include "transport/peer/crypto.h"
#include "transport/peer/secrets.h"

namespace sluice::peer {

inline constexpr uint32_t kMagic = 0x45434c53;  // "SLCE" in byte order
inline constexpr uint8_t kProtocolVersion = 6;
inline constexpr size_t kHelloBytes = 56;
inline constexpr size_t kWelcomeBytes = 72;
inline constexpr size_t kNonceBytes = 16;
inline constexpr uint32_t kMaxQpn = (1u << 24) - 1;

enum class HandshakeKind : uint8_t { kHello = 1, kWelcome = 2, kRefusal = 3 };

using HelloMessage = std::array<std::byte, kHelloBytes>;
using WelcomeMessage = std::array<std::byte, kWelcomeBytes>;
using Nonce = std::array<std::byte, kNonceBytes>;

Nonce DrawNonce(base::Random& random);

// The unencrypted fields of both messages.
struct Greeting {
  uint64_t epoch = 0;
  SecretId secret_id = 0;
  uint32_t control_dctn = 0;  // 0: without DC; with `rc`: number of the queue pair
  Nonce nonce = {};
  bool has_cookie = false;  // hello only: the end of the nonce is a cookie
  bool rc = false;          // messages go over an RC queue pair

  // Return and set the cookie in the nonce.
  Cookie cookie() const;
  void Bring(const Cookie& cookie);

  // Returns whether the handshake is without DC. It then ends with the welcome, and no messages follow.
  bool without_dc() const { return control_dctn == 0; }

  friend bool operator==(const Greeting&, const Greeting&) = default;
};

// Access of the client to the server's control DCT.
struct ControlAccess {
  uint64_t key = 0;
  uint32_t peer_index = 0;
  uint32_t token = 0;  // 0 exactly if there is no DC

  friend bool operator==(const ControlAccess&, const ControlAccess&) = default;
};

// Keys of one connection. Each key seals one message.
struct SessionKeys {
  Key welcome;
  Key proof;   // the client's terms
  Key answer;  // the server's terms
};

// Encodes a hello. `hello.secret_id` must be the id of `secret`.
HelloMessage EncodeHello(const Greeting& hello, const Secret& secret);

// Decodes a hello without a check of its MAC: see Proven(). `bytes` may be longer (zero padded). INVALID_ARGUMENT: not a handshake of
// Sluice. FAILED_PRECONDITION: another version; the message names both.
absl::StatusOr<Greeting> DecodeHello(Bytes bytes);

// Returns whether this hello (of at least kHelloBytes) was created with the secret. It may be a recorded hello, unless its cookie is valid.
bool Proven(Bytes hello, const Secret& secret);
// Returns the MAC in a hello.
Mac MacIn(const HelloMessage& hello);
// First packet sequence numbers of an RC connection.
struct Psns {
  uint32_t client = 0;
  uint32_t server = 0;
};
Psns PsnsOf(const HelloMessage& hello);

// Encodes the welcome, and derives the keys for the next messages. `greeting.secret_id` must be the id of `secret`.
WelcomeMessage EncodeWelcome(const Greeting& greeting, const ControlAccess& access, Bytes hello,
                             const Secret& secret, SessionKeys* keys);

struct Welcome {
  Greeting greeting;
  ControlAccess access;
};
// Decodes a welcome; errors as in DecodeHello(). UNAUTHENTICATED: the welcome was not created for this hello with the secret of the hello.
absl::StatusOr<Welcome> DecodeWelcome(Bytes bytes, Bytes hello, const Secret& secret,
                                      SessionKeys* keys);

}  // namespace sluice::peer

#endif  // SLUICE_TRANSPORT_PEER_HANDSHAKE_H_
