// SPDX-License-Identifier: Apache-2.0
//
// One handshake, as bytes: computed apart from the code under test, from the page that defines it
// (docs/decisions/0011, 0049).
#ifndef SLUICE_TESTS_TRANSPORT_PEER_HANDSHAKE_SAMPLES_H_
#define SLUICE_TESTS_TRANSPORT_PEER_HANDSHAKE_SAMPLES_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "transport/peer/handshake.h"
#include "transport/peer/secrets.h"
#include "transport/peer/terms.h"

namespace sluice::peer {

inline constexpr char kSampleSecret[] = "correct horse battery staple";

inline constexpr std::string_view kGoldenHello =
    "534c434506010000887766554433221170f901a9ffffff001011121314151617"
    "18191a1b1c1d1e1f35eabcc055795941f04240af130166f7";
inline constexpr std::string_view kGoldenOpenHello =  // without a secret
    "534c434506010100010000000000000000000000050000001011121314151617"
    "18191a1b1c1d1e1fdf8779de435615fdc7d54a197b903d8e";
inline constexpr std::string_view kGoldenCookieHello =  // with a cookie
    "534c434506010400887766554433221170f901a9ffffff001011121314151617"
    "c0c1c2c3c4c5c6c74614802a97b59f0dc208d7dec4ae6f10";
inline constexpr std::string_view kGoldenWelcome =
    "534c43450602000000ffeeddccbbaa9970f901a90b0a0000a0a1a2a3a4a5a6a7"
    "a8a9aaabacadaeafa7bd41c01d75630754ea2c6d8bdec8e1b0973543b5000ece"
    "d9d7e0fecf3f9838";
inline constexpr std::string_view kGoldenProof =
    "070000000100008040000000040000001d1569e4183304f202d5d62e9265d75b"
    "725ca58c52b2defd0cf1d3b47e0037f7baad9c329e429d9947576a157c669985"
    "ef1780577cc5ad9f9821f9bcef29d5d9";

inline std::string Hex(Bytes bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : bytes) {
    text += kDigits[static_cast<size_t>(byte) >> 4];
    text += kDigits[static_cast<size_t>(byte) & 15];
  }
  return text;
}

inline std::vector<std::byte> FromHex(std::string_view text) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

inline Secrets SampleSecrets(const std::string& text = kSampleSecret) {
  return *Secrets::FromTexts({text});
}

inline Nonce CountingNonce(uint8_t first) {
  Nonce nonce;
  for (size_t i = 0; i < nonce.size(); ++i) nonce[i] = static_cast<std::byte>(first + i);
  return nonce;
}

inline Greeting SampleHello(SecretId id) {
  return {.epoch = 0x1122334455667788,
          .secret_id = id,
          .control_dctn = 0xffffff,
          .nonce = CountingNonce(0x10)};
}

inline constexpr Cookie kSampleCookie = {std::byte{0xc0}, std::byte{0xc1}, std::byte{0xc2},
                                         std::byte{0xc3}, std::byte{0xc4}, std::byte{0xc5},
                                         std::byte{0xc6}, std::byte{0xc7}};

inline Greeting SampleWelcome(SecretId id) {
  return {.epoch = 0x99aabbccddeeff00,
          .secret_id = id,
          .control_dctn = 0x000a0b,
          .nonce = CountingNonce(0xa0)};
}

inline constexpr ControlAccess kSampleAccess = {
    .key = 0xdeadbeefcafef00d, .peer_index = 7, .token = 0x80000001};

inline constexpr Terms kSampleTerms = {.data_dctn = 0x1234,
                                       .max_message_bytes = 16384,
                                       .data_key = 0x0102030405060708,
                                       .control_key = 0x1112131415161718,
                                       .peer_index = 3,
                                       .token = 0x55,
                                       .credits = 64,
                                       .window = 48,
                                       .reads = 16,
                                       .mtu = 3,
                                       .service_level = 5,
                                       .max_large_bytes = 128 << 20};

}  // namespace sluice::peer

#endif  // SLUICE_TESTS_TRANSPORT_PEER_HANDSHAKE_SAMPLES_H_
