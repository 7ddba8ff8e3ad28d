// SPDX-License-Identifier: Apache-2.0
//
// Histogram: counts non-negative integers (latencies in nanoseconds, sizes in bytes) in log-linear buckets.
//
// Threads       One. Merge the histograms of several threads afterwards.
// Precision     Values below 128 are exact. Above, a bucket is at most 1/128 of its lower bound wide: a quantile is at most 0.79 %
//               above the true value, and never below it. Minimum, maximum, count and sum are exact.
#ifndef SLUICE_TRANSPORT_BASE_HISTOGRAM_H_
#define SLUICE_TRANSPORT_BASE_HISTOGRAM_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice::base {

class Histogram {
 public:
  static constexpr int kPrecisionBits = 7;
  static constexpr int64_t kMaxValue = INT64_MAX;

  Histogram();

  // Negative values count as 0. Never allocates.
  void Record(int64_t value) { RecordMany(value, 1); }
  void RecordMany(int64_t value, uint64_t times);
  void Merge(const Histogram& other);
  void Reset();

  uint64_t count() const { return count_; }
  int64_t min() const { return count_ == 0 ? 0 : min_; }
  int64_t max() const { return count_ == 0 ? 0 : max_; }
  double mean() const;

  // Returns the smallest value v such that at least `quantile` (0 to 1) of all values are <= v, with the precision of a bucket.
  // Returns 0 if the histogram is empty.
  int64_t Quantile(double quantile) const;

  struct Bucket {
    int64_t first;  // lowest and highest value of the bucket
    int64_t last;
    uint64_t count;
  };
  // Returns the non-empty buckets in ascending order.
  std::vector<Bucket> Buckets() const;

 private:
  static constexpr size_t kPerPower = size_t{1} << kPrecisionBits;
  static constexpr size_t kBuckets = (63 - kPrecisionBits + 1) * kPerPower;

  static size_t IndexOf(uint64_t value);
  static int64_t FirstOf(size_t index);
  static int64_t LastOf(size_t index);

  std::vector<uint64_t> counts_;
  uint64_t count_ = 0;
  int64_t min_ = kMaxValue;
  int64_t max_ = 0;
  double sum_ = 0;
};

}  // namespace sluice::base

#endif  // SLUICE_TRANSPORT_BASE_HISTOGRAM_H_
