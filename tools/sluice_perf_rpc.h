// SPDX-License-Identifier: Apache-2.0
//
// `sluice_perf rpc`: calls in a closed loop, timed from the start of a call to the end of it.
#ifndef SLUICE_TOOLS_SLUICE_PERF_RPC_H_
#define SLUICE_TOOLS_SLUICE_PERF_RPC_H_

#include "absl/status/statusor.h"
#include "proto/bench_result.pb.h"
#include "tools/sluice_perf_options.h"

namespace sluice::tools {

// Failed calls are counted in the result; an error is what kept it from measuring at all.
absl::StatusOr<BenchResult> MeasureRpc(const PerfOptions& options, const std::string& server);

// For people.
std::string ResultText(const BenchResult& result);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_SLUICE_PERF_RPC_H_
