// SPDX-License-Identifier: Apache-2.0
//
// AttemptLimiter: how many handshakes of one source may come to nothing in a second. A source without tokens is not
// locked out: its hellos must carry a cookie (cookies.h).
//
// What it is    A bucket of tokens for each source that has asked lately. A hello takes a token before anything is done for
//               it; a handshake that succeeds gives it back. A second brings `per_second` back, and that many are in a
//               full bucket.
// Who owns it   The endpoint.
// Which thread  The polling thread.
// Bound         kMaxSources buckets. When all are in use by others that have asked within the last second, the
//               newcomers share one.
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

  // `source`: of SourceOf(). Whether it has a token.
  bool Has(const std::string& source, int64_t now_ns);
  // Takes a token. False: there is none to take.
  bool Take(const std::string& source, int64_t now_ns);
  // A token that was taken was not needed.
  void GiveBack(const std::string& source, int64_t now_ns);

  size_t size() const { return buckets_.size(); }

 private:
  static constexpr int64_t kSecondNs = 1'000'000'000;

  struct Bucket {
    int64_t missing_ns = 0;  // time until it is full again, as of `at_ns`
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
