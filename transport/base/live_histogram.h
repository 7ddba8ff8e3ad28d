// SPDX-License-Identifier: Apache-2.0
//
// LiveHistogram: counts non-negative integers in log-linear buckets. One thread counts while others read. HistogramCopy is the result
// of a read. For measurements that end, histogram.h is more precise.
//
// Threads       Record(): as Tally::Add(). Copy(): any; a copy may miss values that are counted during the copy.
// Precision     Values below 8 are exact. Above, a bucket is at most 1/8 of its lower bound wide: a quantile is at most 12.5 % above
//               the true value, and never below it. Values of 2^40 and more share the last bucket.
// Cost          2.4 KB.
#ifndef SLUICE_TRANSPORT_BASE_LIVE_HISTOGRAM_H_
#define SLUICE_TRANSPORT_BASE_LIVE_HISTOGRAM_H_

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/base/tally.h"

namespace sluice::base {

class LiveHistogram;

class HistogramCopy {
 public:
  HistogramCopy();

  void Merge(const HistogramCopy& other);
  uint64_t count() const { return count_; }
  uint64_t sum() const { return sum_; }
  // Returns the smallest last value v of a bucket such that at least `quantile` (0 to 1) of all values are <= v. Returns 0 if the
  // histogram is empty.
  int64_t Quantile(double quantile) const;
  // Returns the number of values in buckets whose last value is <= `value`: a lower bound of the number of values <= `value`.
  uint64_t CountUpTo(int64_t value) const;

  struct Bucket {
    int64_t first;  // lowest and highest value of the bucket
    int64_t last;
    uint64_t count;
  };
  // Returns the non-empty buckets in ascending order.
  std::vector<Bucket> Buckets() const;
  // Adds a bucket that Buckets() of another copy returned, for example in another process. Does nothing if no bucket starts at `first`.
  void Add(int64_t first, uint64_t count);

 private:
  friend class LiveHistogram;
  std::vector<uint64_t> counts_;
  uint64_t count_ = 0;
  uint64_t sum_ = 0;  // approximate after Add(), which counts each value as `first`
};

class LiveHistogram {
 public:
  static constexpr int kPrecisionBits = 3;
  static constexpr int kTopPower = 40;
  static constexpr size_t kPerPower = size_t{1} << kPrecisionBits;
  static constexpr size_t kBuckets = (kTopPower - kPrecisionBits + 1) * kPerPower + 1;

  // Negative values count as 0.
  void Record(int64_t value, uint32_t times = 1) {
    if (value < 0) value = 0;
    counts_[IndexOf(static_cast<uint64_t>(value))].Add(times);
    sum_.Add(static_cast<uint64_t>(value) * times);
  }
  HistogramCopy Copy() const;

  static size_t IndexOf(uint64_t value) {
    if (value < kPerPower) return value;
    if (value >> kTopPower != 0) return kBuckets - 1;
    const int shift = static_cast<int>(std::bit_width(value)) - 1 - kPrecisionBits;
    return (static_cast<size_t>(shift) + 1) * kPerPower + ((value >> shift) - kPerPower);
  }
  static int64_t FirstOf(size_t index);
  static int64_t LastOf(size_t index);

 private:
  std::array<Tally, kBuckets> counts_;
  Tally sum_;
};

}  // namespace sluice::base

#endif  // SLUICE_TRANSPORT_BASE_LIVE_HISTOGRAM_H_
