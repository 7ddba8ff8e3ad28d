// SPDX-License-Identifier: Apache-2.0
//
// Cookies: what a client must bring back before a loaded server does anything for its hello. A cookie is in the hello,
// under the MAC: whoever brings it back to its source's address holds the secret now. A recorded hello has none, or an old one.
//
// What it is    8 bytes: a MAC over the source, under a key of its time bucket, derived from random bytes. Nothing is
//               kept for a cookie that was given. A cookie is good in its bucket and in the next.
// Who owns it   The endpoint. Those who share a listener share the seed: a client may come back to another of them.
// Which thread  The polling thread.
// Bound         kMostUsed hellos are remembered for each of two buckets, so that the same hello counts once; a hello gets
//               there only with the secret. Beyond that, replays within a bucket are not noticed.
#ifndef SLUICE_TRANSPORT_PEER_COOKIES_H_
#define SLUICE_TRANSPORT_PEER_COOKIES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/container/flat_hash_set.h"
#include "transport/peer/crypto.h"

namespace sluice::peer {

inline constexpr size_t kCookieBytes = 8;
using Cookie = std::array<std::byte, kCookieBytes>;

class Cookies {
 public:
  static constexpr int64_t kBucketNs = 4'000'000'000;
  static constexpr size_t kMostUsed = 8192;

  // `seed`: random, and nobody else's.
  explicit Cookies(const Key& seed) : seed_(seed) {}

  Cookie For(std::string_view source, int64_t now_ns) const;
  // In a time that does not depend on where they differ.
  bool Good(const Cookie& cookie, std::string_view source, int64_t now_ns) const;

  // Notes a hello with a good cookie and a good MAC. False: it was noted before.
  bool Use(const Mac& hello_mac, int64_t now_ns);

 private:
  Cookie Make(std::string_view source, int64_t bucket) const;

  const Key seed_;
  int64_t bucket_ = 0;
  absl::flat_hash_set<uint64_t> used_, used_before_;  // in this bucket, in the one before
};

}  // namespace sluice::peer

#endif  // SLUICE_TRANSPORT_PEER_COOKIES_H_
