// SPDX-License-Identifier: Apache-2.0
//
// Cookies: a loaded server answers a hello with a cookie, and does nothing more until the client returns it. The hello contains the
// cookie under its MAC, so a client that returns it from the same address holds the secret now. A recorded hello has no cookie or an old
// one.
//
// Purpose       8 bytes: a MAC over the source, under a key that is derived from random bytes for each time bucket. The server keeps no
//               state per cookie. A cookie is valid in its bucket and in the next one. An accepted hello is noted for that time
//               (cm/used_names.h), so the same hello is accepted once.
// Ownership     The endpoint. Endpoints that share a listener share the seed, because a client may return to another of them.
// Threads       The polling thread.
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

  // `seed`: random and secret. Only endpoints that share a listener have the same seed.
  explicit Cookies(const Key& seed) : seed_(seed) {}

  Cookie For(std::string_view source, int64_t now_ns) const;
  // Returns whether the cookie is valid now. The time of the comparison does not depend on the position of a difference.
  bool Good(const Cookie& cookie, std::string_view source, int64_t now_ns) const;
  static int64_t BucketOf(int64_t now_ns) { return now_ns / kBucketNs; }

 private:
  Cookie Make(std::string_view source, int64_t bucket) const;

  const Key seed_;
};

}  // namespace sluice::peer

#endif  // SLUICE_TRANSPORT_PEER_COOKIES_H_
