// SPDX-License-Identifier: Apache-2.0
//
// The time in which a cache line goes from one CPU to another and back, without a library: the limit of the machine for a call.
#ifndef SLUICE_TOOLS_CACHE_LINE_ROUND_TRIP_H_
#define SLUICE_TOOLS_CACHE_LINE_ROUND_TRIP_H_

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace sluice::tools {

// Measures for `duration` with two threads, one pinned to each CPU, and returns the lowest median of several windows in ns. Blocks;
// the calling thread is not pinned. Errors: FAILED_PRECONDITION if the CPUs are the same, or what sched_setaffinity() reports.
absl::StatusOr<double> CacheLineRoundTripNs(int client_cpu, int server_cpu,
                                            absl::Duration duration);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_CACHE_LINE_ROUND_TRIP_H_
