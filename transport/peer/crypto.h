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

// 32 bytes that are overwritten when they go.
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

// BLAKE2b-256 of a text, unkeyed: what a secret becomes.
Key KeyFromText(std::string_view text);
// BLAKE2b-256 under `key` of the label, a zero byte, and both contexts. Another label, another key.
Key Derive(const Key& key, std::string_view label, Bytes context = {}, Bytes more = {});
// BLAKE2b-128 under `key`.
Mac MacOf(const Key& key, Bytes bytes);
// In a time that does not depend on where they differ.
bool Equal(const Mac& mac, const std::byte* other);

// ChaCha20-Poly1305 (RFC 8439) with the zero nonce: a key must seal one message in its life.
// `sealed` takes plain.size() + kTagBytes.
void Seal(const Key& key, Bytes associated, Bytes plain, std::byte* sealed);
// False: not sealed by this key with this associated data; `plain` has nothing of it then. It takes
// sealed.size() - kTagBytes.
bool Open(const Key& key, Bytes associated, Bytes sealed, std::byte* plain);

// Overwrites what the compiler would think nobody reads any more.
void Wipe(void* data, size_t size_bytes);

}  // namespace sluice::peer

#endif  // SLUICE_TRANSPORT_PEER_CRYPTO_H_
