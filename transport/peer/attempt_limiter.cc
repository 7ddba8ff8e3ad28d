// SPDX-License-Identifier: Apache-2.0
#include "transport/peer/attempt_limiter.h"

#include <algorithm>

namespace sluice::peer {

// Returns the time until the bucket is full. A bucket is empty if it has less than the time of one token.
int64_t AttemptLimiter::MissingNs(const Bucket& bucket, int64_t now_ns) {
  return std::max<int64_t>(bucket.missing_ns - std::max<int64_t>(now_ns - bucket.at_ns, 0), 0);
}

AttemptLimiter::Bucket* AttemptLimiter::Find(const std::string& source) {
  const auto found = buckets_.find(source);
  if (found != buckets_.end()) return &found->second;
  return buckets_.size() >= kMaxSources ? &shared_ : nullptr;
}

bool AttemptLimiter::Has(const std::string& source, int64_t now_ns) {
  const Bucket* bucket = Find(source);
  return bucket == nullptr || MissingNs(*bucket, now_ns) + token_ns_ <= kSecondNs;
}

bool AttemptLimiter::Take(const std::string& source, int64_t now_ns) {
  if (buckets_.size() >= kMaxSources && !buckets_.contains(source)) DropFull(now_ns);
  Bucket* bucket = Find(source);
  if (bucket == nullptr) bucket = &buckets_[source];
  const int64_t missing_ns = MissingNs(*bucket, now_ns) + token_ns_;
  if (missing_ns > kSecondNs) return false;
  *bucket = {.missing_ns = missing_ns, .at_ns = now_ns};
  return true;
}

void AttemptLimiter::GiveBack(const std::string& source, int64_t now_ns) {
  Bucket* bucket = Find(source);
  if (bucket == nullptr) return;  // the bucket was full and was dropped
  *bucket = {.missing_ns = std::max<int64_t>(MissingNs(*bucket, now_ns) - token_ns_, 0),
             .at_ns = now_ns};
}

void AttemptLimiter::DropFull(int64_t now_ns) {
  absl::erase_if(buckets_, [&](const auto& entry) { return MissingNs(entry.second, now_ns) == 0; });
}

}  // namespace sluice::peer
