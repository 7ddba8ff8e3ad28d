// SPDX-License-Identifier: Apache-2.0
//
// A histogram of latencies in nanoseconds, for people and as protobuf.
#ifndef SLUICE_TOOLS_LATENCY_REPORT_H_
#define SLUICE_TOOLS_LATENCY_REPORT_H_

#include <cstdint>
#include <string>

#include "proto/bench_result.pb.h"
#include "transport/base/histogram.h"

namespace sluice::tools {

// Three digits and a unit: "973 ns", "1.23 us", "45.6 ms".
std::string FormatNs(double ns);

// "p50 1.02 us   p99 …   p99.9 …   max …".
std::string PercentileLine(const base::Histogram& histogram);

// At most kMaxRows lines with bars, the bounds growing by a constant factor; what is above
// the 99.9th percentile is one line. Empty for an empty histogram.
inline constexpr int kMaxRows = 16;
std::string HistogramText(const base::Histogram& histogram);

// Standard deviation and buckets included.
LatencySummary Summarise(const base::Histogram& histogram);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_LATENCY_REPORT_H_
