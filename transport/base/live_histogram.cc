// SPDX-License-Identifier: Apache-2.0
#include "transport/base/live_histogram.h"

#include <algorithm>
#include <cmath>

namespace sluice::base {

int64_t LiveHistogram::FirstOf(size_t index) {
  if (index < kPerPower) return static_cast<int64_t>(index);
  const size_t shift = index / kPerPower - 1;
  return static_cast<int64_t>((kPerPower + index % kPerPower) << shift);
}

int64_t LiveHistogram::LastOf(size_t index) {
  return index + 1 < kBuckets ? FirstOf(index + 1) - 1 : INT64_MAX;
}

HistogramCopy LiveHistogram::Copy() const {
  HistogramCopy copy;
  for (size_t i = 0; i < kBuckets; ++i) {
    copy.counts_[i] = counts_[i].value();
    copy.count_ += copy.counts_[i];
  }
  copy.sum_ = sum_.value();
  return copy;
}

HistogramCopy::HistogramCopy() : counts_(LiveHistogram::kBuckets, 0) {}

void HistogramCopy::Merge(const HistogramCopy& other) {
  for (size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
  count_ += other.count_;
  sum_ += other.sum_;
}

int64_t HistogramCopy::Quantile(double quantile) const {
  if (count_ == 0) return 0;
  const double wanted = std::ceil(std::clamp(quantile, 0.0, 1.0) * static_cast<double>(count_));
  const uint64_t rank = std::max<uint64_t>(static_cast<uint64_t>(wanted), 1);
  uint64_t seen = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    seen += counts_[i];
    if (seen >= rank) return LiveHistogram::LastOf(i);
  }
  return LiveHistogram::LastOf(counts_.size() - 1);
}

uint64_t HistogramCopy::CountUpTo(int64_t value) const {
  uint64_t seen = 0;
  for (size_t i = 0; i < counts_.size() && LiveHistogram::LastOf(i) <= value; ++i)
    seen += counts_[i];
  return seen;
}

std::vector<HistogramCopy::Bucket> HistogramCopy::Buckets() const {
  std::vector<Bucket> buckets;
  for (size_t i = 0; i < counts_.size(); ++i) {
    if (counts_[i] != 0) {
      buckets.push_back({LiveHistogram::FirstOf(i), LiveHistogram::LastOf(i), counts_[i]});
    }
  }
  return buckets;
}

void HistogramCopy::Add(int64_t first, uint64_t count) {
  if (first < 0) return;
  const size_t index = LiveHistogram::IndexOf(static_cast<uint64_t>(first));
  if (LiveHistogram::FirstOf(index) != first) return;
  counts_[index] += count;
  count_ += count;
  sum_ += static_cast<uint64_t>(first) * count;
}

}  // namespace sluice::base
