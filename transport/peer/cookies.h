// SPDX-License-Identifier: Apache-2.0
//
// Cookies: what a client must bring back before a loaded server does anything for its hello. A cookie is in the hello,
// under the MAC: whoever brings it back to its source's address holds the secret now. A recorded hello has none, or an old one.
//
// What it is    8 bytes: a MAC over the source, under a key of its time bucket, derived from random bytes. Nothing is
//               kept for a cookie that was given. A cookie is good in its bucket and in the next. Who takes a hello notes it
//               for as long (cm/used_names.h), so that the same hello counts once.
// Who owns it   The endpoint. Those who share a listener share the seed: a client may come back to another of them.
// Which thread  The polling thread.
#ifndef SLUICE_TRANSPORT_PEER_COOKIES_H_
#define SLUICE_TRANSPORT_PEER_COOKIES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "transport/peer/crypto.h"

namespace sluice::peer {

inline constexpr size_t kCookieBytes = 8;
using Cookie = std::array<std::byte, kCookieBytes>;

class Cookies {
 public:
  static constexpr int64_t kBucketNs = 4'000'000'000;

  // `seed`: random, and nobody else's.
  explicit Cookies(const Key& seed) : seed_(seed) {}

  Cookie For(std::string_view source, int64_t now_ns) const;
  // In a time that does not depend on where they differ.
  bool Good(const Cookie& cookie, std::string_view source, int64_t now_ns) const;
  static int64_t BucketOf(int64_t now_ns) { return now_ns / kBucketNs; }

 private:
  Cookie Make(std::string_view source, int64_t bucket) const;

  const Key seed_;
};

}  // namespace sluice::peer

#endif  // SLUICE_TRANSPORT_PEER_COOKIES_H_
