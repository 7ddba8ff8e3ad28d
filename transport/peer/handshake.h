// SPDX-License-Identifier: Apache-2.0
//
// The handshake's first two messages, in the private data of RDMA_CM. Little endian. What they are
// for is drawn in docs/decisions/0011; terms.h has the other two, refusal.h what is said instead.
//
//   Hello, 56 bytes (all that a request can carry)
//     0  u32  magic "SLCE"
//     4  u8   protocol version
//     5  u8   kind: 1 hello (request), 2 welcome (response), 3 refusal (reject)
//     6  u16  flags: 1 unauthenticated, 2 no DC: the handshake ends with the welcome, 4 (hello) a cookie, 8 RC; the others zero
//     8  u64  epoch: drawn at random when the endpoint starts; names this incarnation
//    16  u32  secret id; 0 exactly if unauthenticated
//    20  u32  control DCTN (24 bit); 0 exactly if there is no DC. With flag 8 the number of this side's RC queue pair
//    24  16 B nonce; with flag 4 its last 8 bytes are the cookie of a refusal (refusal.h), brought back. With flag 8 the first
//             packet sequence numbers are bits 0 to 23 (of the client) and 32 to 55 (of the server) of the hello's nonce
//    40  16 B MAC of all that
//
//   Welcome, 72 bytes
//     0  the same up to the nonce
//    40  16 B sealed: control DC key u64, index u32 and token u32 of the reader at the sender; zero
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

inline constexpr uint32_t kMagic = 0x45434c53;  // "SLCE" as the bytes stand
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

// What both messages say in the clear.
struct Greeting {
  uint64_t epoch = 0;
  SecretId secret_id = 0;
  uint32_t control_dctn = 0;  // 0: without DC; with `rc`: of the queue pair
  Nonce nonce = {};
  bool has_cookie = false;  // a hello only: the end of the nonce is one
  bool rc = false;          // messages go over an RC queue pair

  // Of the nonce.
  Cookie cookie() const;
  void Bring(const Cookie& cookie);

  // What both sides can know of each other is in hello and welcome then: no messages follow.
  bool without_dc() const { return control_dctn == 0; }

  friend bool operator==(const Greeting&, const Greeting&) = default;
};

// How the client reaches the server's control DCT.
struct ControlAccess {
  uint64_t key = 0;
  uint32_t peer_index = 0;
  uint32_t token = 0;  // 0 exactly if there is no DC

  friend bool operator==(const ControlAccess&, const ControlAccess&) = default;
};

// Keys of one connection, one for each message that they seal.
struct SessionKeys {
  Key welcome;
  Key proof;   // the client's terms
  Key answer;  // the server's terms
};

// `hello.secret_id` must be that of `secret`.
HelloMessage EncodeHello(const Greeting& hello, const Secret& secret);

// The MAC is not looked at: see Proven(). `bytes` may be longer (zero padded).
// INVALID_ARGUMENT: not a handshake of Sluice. FAILED_PRECONDITION: another version; the message
// names both.
absl::StatusOr<Greeting> DecodeHello(Bytes bytes);

// Whether whoever made this hello (of at least kHelloBytes) has the secret. It may be a recorded
// one, unless its cookie is good.
bool Proven(Bytes hello, const Secret& secret);
// The MAC that a hello carries.
Mac MacIn(const HelloMessage& hello);
// First packet sequence numbers of an RC connection.
struct Psns {
  uint32_t client = 0;
  uint32_t server = 0;
};
Psns PsnsOf(const HelloMessage& hello);

// Makes the welcome, and the keys for the rest. `greeting.secret_id` must be that of `secret`.
WelcomeMessage EncodeWelcome(const Greeting& greeting, const ControlAccess& access, Bytes hello,
                             const Secret& secret, SessionKeys* keys);

struct Welcome {
  Greeting greeting;
  ControlAccess access;
};
// As DecodeHello(). UNAUTHENTICATED: it was not made for this hello, by a holder of the secret that
// the hello was made with.
absl::StatusOr<Welcome> DecodeWelcome(Bytes bytes, Bytes hello, const Secret& secret,
                                      SessionKeys* keys);

}  // namespace sluice::peer

#endif  // SLUICE_TRANSPORT_PEER_HANDSHAKE_H_
