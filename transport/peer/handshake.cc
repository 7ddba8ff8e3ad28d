// SPDX-License-Identifier: Apache-2.0
#include "transport/peer/handshake.h"

#include <algorithm>
#include <string>

#include "transport/base/error.h"
#include "transport/peer/wire.h"

namespace sluice::peer {
namespace {

constexpr uint16_t kUnauthenticated = 1;
constexpr uint16_t kWithoutDc = 2;
constexpr uint16_t kHasCookie = 4;
constexpr uint16_t kRc = 8;
constexpr size_t kClearBytes = 40;  // of both
constexpr size_t kAccessBytes = 16;
static_assert(kHelloBytes == kClearBytes + kMacBytes);
static_assert(kWelcomeBytes == kClearBytes + kAccessBytes + kTagBytes);

absl::Status Garbage(const char* cause) {
  return base::Error(absl::StatusCode::kInvalidArgument,
                     "the other side's handshake is not one of Sluice",
                     {.layer = "peer",
                      .operation = "handshake",
                      .cause = cause,
                      .remedy = "check that the program at that port is a Sluice endpoint"});
}

absl::Status Unproven(const char* cause) {
  return base::Error(absl::StatusCode::kUnauthenticated, "the server has not proved the secret",
                     {.layer = "peer",
                      .operation = "handshake",
                      .cause = cause,
                      .remedy = "give both sides the same secret; if both sides have it, another "
                                "process answers at that address"});
}

uint16_t FlagsOf(const Greeting& greeting) {
  return (greeting.secret_id == 0 ? kUnauthenticated : 0) |
         (greeting.without_dc() ? kWithoutDc : 0) | (greeting.has_cookie ? kHasCookie : 0) |
         (greeting.rc ? kRc : 0);
}

void EncodeClear(std::byte* out, const Greeting& greeting, HandshakeKind kind) {
  Store<uint32_t>(out, kMagic);
  Store<uint8_t>(out + 4, kProtocolVersion);
  Store<uint8_t>(out + 5, static_cast<uint8_t>(kind));
  Store<uint16_t>(out + 6, FlagsOf(greeting));
  Store(out + 8, greeting.epoch);
  Store(out + 16, greeting.secret_id);
  Store(out + 20, greeting.control_dctn);
  std::copy(greeting.nonce.begin(), greeting.nonce.end(), out + 24);
}

absl::StatusOr<Greeting> DecodeClear(Bytes bytes, HandshakeKind kind, size_t size_bytes) {
  if (bytes.size() < 8) return Garbage("it is shorter than any handshake");
  const std::byte* in = bytes.data();
  if (Load<uint32_t>(in) != kMagic) return Garbage("it does not begin with Sluice's magic number");
  const uint8_t version = Load<uint8_t>(in + 4);
  if (version != kProtocolVersion) {
    return base::Error(absl::StatusCode::kFailedPrecondition,
                       "protocol version mismatch: this side speaks version " +
                           std::to_string(kProtocolVersion) + ", the other side version " +
                           std::to_string(version),
                       {.layer = "peer",
                        .operation = "handshake",
                        .cause = "the two programs were built from different releases of Sluice",
                        .remedy = "run the same release on both sides"});
  }
  if (Load<uint8_t>(in + 5) != static_cast<uint8_t>(kind)) {
    return Garbage("it is of a kind that does not belong here");
  }
  if (bytes.size() < size_bytes) return Garbage("it is cut short");
  Greeting greeting;
  greeting.epoch = Load<uint64_t>(in + 8);
  greeting.secret_id = Load<uint32_t>(in + 16);
  greeting.control_dctn = Load<uint32_t>(in + 20);
  std::copy_n(in + 24, kNonceBytes, greeting.nonce.begin());
  const auto flags = Load<uint16_t>(in + 6);
  greeting.has_cookie = kind == HandshakeKind::kHello && (flags & kHasCookie) != 0;
  greeting.rc = (flags & kRc) != 0 && !greeting.without_dc();
  if (flags != FlagsOf(greeting)) {
    return Garbage("its flags are unknown, or don't go with its secret id and DCT number");
  }
  if (greeting.control_dctn > kMaxQpn) {
    return Garbage("a DCT number is out of range");
  }
  return greeting;
}

SessionKeys DeriveKeys(const Secret& secret, Bytes hello, Bytes welcome) {
  const Key session =
      Derive(secret.master, "sluice session", hello.first(kHelloBytes), welcome.first(kClearBytes));
  return {.welcome = Derive(session, "welcome"),
          .proof = Derive(session, "proof"),
          .answer = Derive(session, "answer")};
}

Mac HelloMac(Bytes hello, const Secret& secret) {
  return MacOf(Derive(secret.master, "sluice hello"), hello.first(kClearBytes));
}

}  // namespace

Nonce DrawNonce(base::Random& random) {
  Nonce nonce;
  for (size_t i = 0; i < kNonceBytes; i += 8) Store(nonce.data() + i, random.Next64());
  return nonce;
}

Cookie Greeting::cookie() const {
  Cookie cookie;
  std::copy_n(nonce.end() - kCookieBytes, kCookieBytes, cookie.begin());
  return cookie;
}

void Greeting::Bring(const Cookie& cookie) {
  has_cookie = true;
  std::copy(cookie.begin(), cookie.end(), nonce.end() - kCookieBytes);
}

HelloMessage EncodeHello(const Greeting& hello, const Secret& secret) {
  HelloMessage out;
  EncodeClear(out.data(), hello, HandshakeKind::kHello);
  const Mac mac = HelloMac(out, secret);
  std::copy(mac.begin(), mac.end(), out.begin() + kClearBytes);
  return out;
}

absl::StatusOr<Greeting> DecodeHello(Bytes bytes) {
  return DecodeClear(bytes, HandshakeKind::kHello, kHelloBytes);
}

bool Proven(Bytes hello, const Secret& secret) {
  return Equal(HelloMac(hello, secret), hello.data() + kClearBytes);
}

Mac MacIn(const HelloMessage& hello) {
  Mac mac;
  std::copy_n(hello.begin() + kClearBytes, mac.size(), mac.begin());
  return mac;
}

Psns PsnsOf(const HelloMessage& hello) {
  return {.client = Load<uint32_t>(hello.data() + 24) & kMaxQpn,
          .server = Load<uint32_t>(hello.data() + 28) & kMaxQpn};
}

WelcomeMessage EncodeWelcome(const Greeting& greeting, const ControlAccess& access, Bytes hello,
                             const Secret& secret, SessionKeys* keys) {
  WelcomeMessage out;
  EncodeClear(out.data(), greeting, HandshakeKind::kWelcome);
  *keys = DeriveKeys(secret, hello, out);
  std::array<std::byte, kAccessBytes> plain;
  Store(plain.data(), access.key);
  Store(plain.data() + 8, access.peer_index);
  Store(plain.data() + 12, access.token);
  // The key depends on every clear byte of both messages: no further associated data.
  Seal(keys->welcome, {}, plain, out.data() + kClearBytes);
  return out;
}

absl::StatusOr<Welcome> DecodeWelcome(Bytes bytes, Bytes hello, const Secret& secret,
                                      SessionKeys* keys) {
  auto greeting = DecodeClear(bytes, HandshakeKind::kWelcome, kWelcomeBytes);
  if (!greeting.ok()) return greeting.status();
  if (greeting->secret_id != secret.id) {
    return Unproven(greeting->secret_id == 0
                        ? "it goes without a secret, and this side has one"
                        : "it answers with another secret than it was asked with");
  }
  *keys = DeriveKeys(secret, hello, bytes);
  std::array<std::byte, kAccessBytes> plain;
  if (!Open(keys->welcome, {}, bytes.subspan(kClearBytes, kAccessBytes + kTagBytes),
            plain.data())) {
    return Unproven("its answer was not made with the secret, or not for this request");
  }
  Welcome welcome{.greeting = *greeting,
                  .access = {.key = Load<uint64_t>(plain.data()),
                             .peer_index = Load<uint32_t>(plain.data() + 8),
                             .token = Load<uint32_t>(plain.data() + 12)}};
  if ((welcome.access.token == 0) != greeting->without_dc()) {
    return Garbage("its token does not go with its DCT number");
  }
  return welcome;
}

}  // namespace sluice::peer
