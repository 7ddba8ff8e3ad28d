// SPDX-License-Identifier: Apache-2.0
//
// Index: the first kPerPower buckets hold one value each. After that every power of two [2^(p),
// 2^(p+1)) has kPerPower buckets of 2^(p - kPrecisionBits) values.
#include "transport/base/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace sluice::base {

Histogram::Histogram() : counts_(kBuckets, 0) {}

size_t Histogram::IndexOf(uint64_t value) {
  if (value < kPerPower) return value;
  const int shift = static_cast<int>(std::bit_width(value)) - 1 - kPrecisionBits;
  return (static_cast<size_t>(shift) + 1) * kPerPower + ((value >> shift) - kPerPower);
}

int64_t Histogram::FirstOf(size_t index) {
  if (index < kPerPower) return static_cast<int64_t>(index);
  const size_t shift = index / kPerPower - 1;
  return static_cast<int64_t>((kPerPower + index % kPerPower) << shift);
}

int64_t Histogram::LastOf(size_t index) {
  return index + 1 < kBuckets ? FirstOf(index + 1) - 1 : kMaxValue;
}

void Histogram::RecordMany(int64_t value, uint64_t times) {
  if (times == 0) return;
  value = std::max<int64_t>(value, 0);
  counts_[IndexOf(static_cast<uint64_t>(value))] += times;
  count_ += times;
  min_ = std::min(min_, value);
  max_ = std::max(max_, value);
  sum_ += static_cast<double>(value) * static_cast<double>(times);
}

void Histogram::Merge(const Histogram& other) {
  for (size_t i = 0; i < kBuckets; ++i) counts_[i] += other.counts_[i];
  count_ += other.count_;
  min_ = std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
  sum_ += other.sum_;
}

void Histogram::Reset() { *this = Histogram(); }

double Histogram::mean() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }

int64_t Histogram::Quantile(double quantile) const {
  if (count_ == 0) return 0;
  const double wanted = std::ceil(std::clamp(quantile, 0.0, 1.0) * static_cast<double>(count_));
  const uint64_t rank = std::max<uint64_t>(static_cast<uint64_t>(wanted), 1);
  uint64_t seen = 0;
  for (size_t i = 0; i < kBuckets; ++i) {
    seen += counts_[i];
    if (seen >= rank) return std::clamp(LastOf(i), min_, max_);
  }
  return max_;
}

std::vector<Histogram::Bucket> Histogram::Buckets() const {
  std::vector<Bucket> buckets;
  for (size_t i = 0; i < kBuckets; ++i) {
    if (counts_[i] != 0) buckets.push_back({FirstOf(i), LastOf(i), counts_[i]});
  }
  return buckets;
}

}  // namespace sluice::base
