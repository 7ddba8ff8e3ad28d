// SPDX-License-Identifier: Apache-2.0
#include "transport/peer/attempt_limiter.h"

#include <algorithm>

namespace sluice::peer {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;

std::string HostOf(const std::string& address) {
  // "[2001:db8::1]:7471", "192.0.2.1:7471", "2001:db8::1"
  if (!address.empty() && address.front() == '[') return address.substr(0, address.find(']') + 1);
  const size_t colon = address.find(':');
  return colon == address.rfind(':') ? address.substr(0, colon) : address;
}

}  // namespace

// A bucket is full when nothing is missing, and empty when less than one token's time is there.
int64_t AttemptLimiter::MissingNs(const Bucket& bucket, int64_t now_ns) const {
  return std::max<int64_t>(bucket.missing_ns - std::max<int64_t>(now_ns - bucket.at_ns, 0), 0);
}

AttemptLimiter::Bucket* AttemptLimiter::Find(const std::string& host) {
  const auto found = buckets_.find(host);
  if (found != buckets_.end()) return &found->second;
  return buckets_.size() >= kMaxAddresses ? &shared_ : nullptr;
}

bool AttemptLimiter::Allowed(const std::string& address, int64_t now_ns) {
  const Bucket* bucket = Find(HostOf(address));
  if (bucket == nullptr) return true;
  return MissingNs(*bucket, now_ns) + kSecondNs / per_second_ <= kSecondNs;
}

void AttemptLimiter::Failed(const std::string& address, int64_t now_ns) {
  const std::string host = HostOf(address);
  if (buckets_.size() >= kMaxAddresses && !buckets_.contains(host)) DropFull(now_ns);
  Bucket* bucket = Find(host);
  if (bucket == nullptr) bucket = &buckets_[host];
  bucket->missing_ns = std::min(MissingNs(*bucket, now_ns) + kSecondNs / per_second_, kSecondNs);
  bucket->at_ns = now_ns;
}

void AttemptLimiter::DropFull(int64_t now_ns) {
  absl::erase_if(buckets_, [&](const auto& entry) { return MissingNs(entry.second, now_ns) == 0; });
}

}  // namespace sluice::peer
