// SPDX-License-Identifier: Apache-2.0
//
// PerfPage(): results of sluice_perf as one HTML page without scripts and outside resources: a table, the distribution of latencies,
// percentiles, and the rate over time. It shows several results side by side.
//
// Threads       Any: pure functions.
#ifndef SLUICE_TOOLS_PERF_PAGE_H_
#define SLUICE_TOOLS_PERF_PAGE_H_

#include <span>
#include <string>

#include "absl/status/status.h"
#include "proto/bench_result.pb.h"

namespace sluice::tools {

// A page has a colour for each of so many results. PerfPage() leaves out the rest.
inline constexpr size_t kMostResults = 6;

// `results`: 1 to kMostResults.
std::string PerfPage(std::span<const BenchResult> results);

// The table of the page for a terminal: a column for each result.
std::string PerfTable(std::span<const BenchResult> results);

absl::Status WritePerfPage(std::span<const BenchResult> results, const std::string& path);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_PERF_PAGE_H_
