// SPDX-License-Identifier: Apache-2.0
//
// AttemptLimiter: limits the failed handshakes of one source per second. A source without tokens is not locked out: its hellos must then
// carry a cookie (cookies.h).
//
// Purpose       A token bucket for each source of a recent hello. A hello takes a token before anything else is done; a handshake that
//               succeeds returns it. Each second adds `per_second` tokens, which is also the size of the bucket.
// Ownership     The endpoint.
// Threads       The polling thread.
// Limits        kMaxSources buckets. If sources of the last second use all of them, new sources share one bucket.
#ifndef SLUICE_TRANSPORT_PEER_ATTEMPT_LIMITER_H_
#define SLUICE_TRANSPORT_PEER_ATTEMPT_LIMITER_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"

namespace sluice::peer {

class AttemptLimiter {
 public:
  static constexpr size_t kMaxSources = 1024;

  explicit AttemptLimiter(uint32_t per_second) : token_ns_(kSecondNs / per_second) {}

  // Returns whether `source` (from SourceOf()) has a token.
  bool Has(const std::string& source, int64_t now_ns);
  // Takes a token. Returns false if there is none.
  bool Take(const std::string& source, int64_t now_ns);
  // Returns a token that was not needed.
  void GiveBack(const std::string& source, int64_t now_ns);

  size_t size() const { return buckets_.size(); }

 private:
  static constexpr int64_t kSecondNs = 1'000'000'000;

  struct Bucket {
    int64_t missing_ns = 0;  // time from `at_ns` until the bucket is full again
    int64_t at_ns = 0;
  };

  static int64_t MissingNs(const Bucket& bucket, int64_t now_ns);
  Bucket* Find(const std::string& source);
  void DropFull(int64_t now_ns);

  const int64_t token_ns_;
  absl::flat_hash_map<std::string, Bucket> buckets_;
  Bucket shared_;
};

}  // namespace sluice::peer

#endif  // SLUICE_TRANSPORT_PEER_ATTEMPT_LIMITER_H_
