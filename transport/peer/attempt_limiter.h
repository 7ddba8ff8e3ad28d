// SPDX-License-Identifier: Apache-2.0
//
// AttemptLimiter: how many handshakes of one address may fail in a second, before its requests are
// refused without being looked at.
//
// What it is    A bucket of tokens for each address that has failed lately; a failure takes one, a second brings
//               `per_second` back, and that many are in a full bucket. Handshakes that succeed take none.
// Who owns it   The endpoint.
// Which thread  The polling thread.
// Bound         kMaxAddresses buckets. When all are in use by others that have failed within the last second, the
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
  static constexpr size_t kMaxAddresses = 1024;

  explicit AttemptLimiter(uint32_t per_second) : per_second_(per_second) {}

  // `address`: "host:port" or "host"; the port does not count, a client has a new one each time.
  bool Allowed(const std::string& address, int64_t now_ns);
  void Failed(const std::string& address, int64_t now_ns);

  size_t size() const { return buckets_.size(); }

 private:
  struct Bucket {
    int64_t missing_ns = 0;  // time until it is full again, as of `at_ns`
    int64_t at_ns = 0;
  };

  int64_t MissingNs(const Bucket& bucket, int64_t now_ns) const;
  Bucket* Find(const std::string& host);
  void DropFull(int64_t now_ns);

  const uint32_t per_second_;
  absl::flat_hash_map<std::string, Bucket> buckets_;
  Bucket shared_;
};

}  // namespace sluice::peer

#endif  // SLUICE_TRANSPORT_PEER_ATTEMPT_LIMITER_H_
