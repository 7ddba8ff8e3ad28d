// SPDX-License-Identifier: Apache-2.0
//
// RateOverTime: the number of calls that ended in each interval of a measurement.
//
// Ownership     The load that counts.
// Threads       One.
// Limits        One number for each interval of the measurement; kIntervals, and more only if the measurement takes longer than
//               planned.
#ifndef SLUICE_TOOLS_RATE_OVER_TIME_H_
#define SLUICE_TOOLS_RATE_OVER_TIME_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "proto/bench_result.pb.h"

namespace sluice::tools {

class RateOverTime {
 public:
  static constexpr int64_t kIntervals = 100;
  static constexpr int64_t kLeastIntervalNs = 1'000'000;

  // Forgets what was counted, and begins a measurement of `duration_ns`.
  void Start(int64_t now_ns, int64_t duration_ns) {
    interval_ns_ = std::max(kLeastIntervalNs, duration_ns / kIntervals);
    end_ns_ = now_ns + interval_ns_;
    current_ = 0;
    ended_.clear();
  }

  // A call has ended. `now_ns` does not fall.
  void Count(int64_t now_ns) {
    if (now_ns >= end_ns_) NextInterval(now_ns);
    ++current_;
  }

  void AddTo(BenchResult* result) const {
    for (size_t i = 0; i < ended_.size(); ++i) {
      RateSample* sample = result->add_rates();
      sample->set_end_seconds(static_cast<double>(interval_ns_) * static_cast<double>(i + 1) / 1e9);
      sample->set_calls(ended_[i]);
    }
  }

 private:
  void NextInterval(int64_t now_ns) {
    for (; now_ns >= end_ns_; end_ns_ += interval_ns_) {
      ended_.push_back(current_);
      current_ = 0;
    }
  }

  int64_t interval_ns_ = kLeastIntervalNs;
  int64_t end_ns_ = INT64_MAX;  // of the current interval; until Start() there is one
  uint64_t current_ = 0;
  std::vector<uint64_t> ended_;
};

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_RATE_OVER_TIME_H_
