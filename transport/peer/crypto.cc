// SPDX-License-Identifier: Apache-2.0
#include "transport/peer/crypto.h"

#include <sodium.h>

#include <cstdio>
#include <cstdlib>

namespace sluice::peer {
namespace {

static_assert(Key::kBytes == crypto_aead_chacha20poly1305_ietf_KEYBYTES);
static_assert(Key::kBytes >= crypto_generichash_KEYBYTES_MIN &&
              Key::kBytes <= crypto_generichash_KEYBYTES_MAX);
static_assert(kMacBytes >= crypto_generichash_BYTES_MIN);
static_assert(kTagBytes == crypto_aead_chacha20poly1305_ietf_ABYTES);

constexpr unsigned char kZeroNonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES] = {};

// Selects the code for this CPU. Runs once, on the first thread that calls it.
void EnsureReady() {
  static const bool kReady = [] {
    if (sodium_init() >= 0) return true;
    std::fputs("libsodium: sodium_init() failed\n", stderr);
    std::abort();  // without it, authentication would not work
  }();
  (void)kReady;
}

const unsigned char* In(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}
unsigned char* Out(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }

}  // namespace

Key::~Key() { Wipe(bytes_.data(), bytes_.size()); }

void Wipe(void* data, size_t size_bytes) { sodium_memzero(data, size_bytes); }

Key KeyFromText(std::string_view text) {
  EnsureReady();
  Key key;
  crypto_generichash(Out(key.data()), Key::kBytes,
                     reinterpret_cast<const unsigned char*>(text.data()), text.size(), nullptr, 0);
  return key;
}

Key Derive(const Key& key, std::string_view label, Bytes context, Bytes more) {
  EnsureReady();
  crypto_generichash_state state;
  crypto_generichash_init(&state, In(key.data()), Key::kBytes, Key::kBytes);
  crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(label.data()),
                            label.size());
  const unsigned char end = 0;
  crypto_generichash_update(&state, &end, 1);
  crypto_generichash_update(&state, In(context.data()), context.size());
  crypto_generichash_update(&state, In(more.data()), more.size());
  Key derived;
  crypto_generichash_final(&state, Out(derived.data()), Key::kBytes);
  Wipe(&state, sizeof(state));
  return derived;
}

Mac MacOf(const Key& key, Bytes bytes) {
  EnsureReady();
  Mac mac;
  crypto_generichash(Out(mac.data()), mac.size(), In(bytes.data()), bytes.size(), In(key.data()),
                     Key::kBytes);
  return mac;
}

bool Equal(const Mac& mac, const std::byte* other) {
  return sodium_memcmp(mac.data(), other, mac.size()) == 0;
}

void Seal(const Key& key, Bytes associated, Bytes plain, std::byte* sealed) {
  EnsureReady();
  crypto_aead_chacha20poly1305_ietf_encrypt(Out(sealed), nullptr, In(plain.data()), plain.size(),
                                            In(associated.data()), associated.size(), nullptr,
                                            kZeroNonce, In(key.data()));
}

bool Open(const Key& key, Bytes associated, Bytes sealed, std::byte* plain) {
  if (sealed.size() < kTagBytes) return false;
  EnsureReady();
  const size_t plain_bytes = sealed.size() - kTagBytes;
  return crypto_aead_chacha20poly1305_ietf_decrypt_detached(
             Out(plain), nullptr, In(sealed.data()), plain_bytes, In(sealed.data()) + plain_bytes,
             In(associated.data()), associated.size(), kZeroNonce, In(key.data())) == 0;
}

}  // namespace sluice::peer
