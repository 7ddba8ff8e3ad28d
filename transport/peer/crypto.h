// SPDX-License-Identifier: Apache-2.0
//
// The four cryptographic operations of the handshake, over libsodium. No other file includes its headers.
//
// Threads       Any: pure functions.
#ifndef SLUICE_TRANSPORT_PEER_CRYPTO_H_
#define SLUICE_TRANSPORT_PEER_CRYPTO_H_

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

namespace sluice::peer {

inline constexpr size_t kMacBytes = 16;
inline constexpr size_t kTagBytes = 16;

using Bytes = std::span<const std::byte>;
using Mac = std::array<std::byte, kMacBytes>;

// 32 bytes. The destructor overwrites them.
class Key {
 public:
  static constexpr size_t kBytes = 32;

  Key() = default;
  Key(const Key&) = default;
  Key& operator=(const Key&) = default;
  ~Key();

  std::byte* data() { return bytes_.data(); }
  const std::byte* data() const { return bytes_.data(); }

 private:
  std::array<std::byte, kBytes> bytes_ = {};
};

// Returns the key of a secret: BLAKE2b-256 of its text, unkeyed.
Key KeyFromText(std::string_view text);
// Returns BLAKE2b-256 under `key` of the label, a zero byte, and both contexts. Different labels give different keys.
Key Derive(const Key& key, std::string_view label, Bytes context = {}, Bytes more = {});
// Returns BLAKE2b-128 under `key`.
Mac MacOf(const Key& key, Bytes bytes);
// Compares in a time that does not depend on the position of a difference.
bool Equal(const Mac& mac, const std::byte* other);

// Seals with ChaCha20-Poly1305 (RFC 8439) and a zero nonce: use each key for one message only. `sealed` has room for
// plain.size() + kTagBytes.
void Seal(const Key& key, Bytes associated, Bytes plain, std::byte* sealed);
// Returns false if `sealed` was not sealed by this key with this associated data; `plain` then has no part of the text. `plain` has room
// for sealed.size() - kTagBytes.
bool Open(const Key& key, Bytes associated, Bytes sealed, std::byte* plain);

// Overwrites memory. The compiler does not remove this, even if the memory is not read later.
void Wipe(void* data, size_t size_bytes);

}  // namespace sluice::peer

#endif  // SLUICE_TRANSPORT_PEER_CRYPTO_H_
