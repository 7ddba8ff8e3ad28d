// SPDX-License-Identifier: Apache-2.0
//
// The options of `sluice_perf rpc` and `sluice_perf flow`, and their fields in the result.
#ifndef SLUICE_TOOLS_SLUICE_PERF_OPTIONS_H_
#define SLUICE_TOOLS_SLUICE_PERF_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "middleware/api/options.h"
#include "proto/bench_result.pb.h"
#include "tools/command_line.h"

namespace sluice::tools {

struct PerfOptions {
  static constexpr uint32_t kOpenWindow = 1'024;

  std::string server;  // empty: a process of our own
  std::string device = "auto";
  std::string secret_file;  // empty: no authentication
  std::string lanes = "auto";
  uint32_t window = 0;  // 0: 1, or kOpenWindow with a rate
  uint32_t rate = 0;    // calls a second by a schedule; 0: a closed loop
  uint32_t size_bytes = 64;
  absl::Duration duration = absl::Seconds(5);
  absl::Duration warmup = absl::Milliseconds(500);
  absl::Duration deadline = absl::Seconds(1);
  std::string cpus;  // "CLIENT" or "CLIENT,SERVER"; empty: not pinned
  std::string json;
  std::string html;
  bool raw = false;  // measure the limit of the machine first
  std::vector<std::string> arguments;
  // Flows only.
  uint32_t flows = 1;
  uint32_t replies = 1;  // 0: nothing comes back but the report of delivery

  void AddRpcTo(CommandLine* line);
  void AddFlowTo(CommandLine* line);
  // Checks what goes together, and `cpus`.
  absl::Status Finish();
  // Parsed `cpus`: client first.
  std::vector<int> cpu_list;
  // Parsed `lanes`.
  Lanes use_lanes = Lanes::kAuto;
};

BenchConfig ConfigOf(const PerfOptions& options, const std::string& server);
BenchHost ThisHost();

// "auto", "off" or "on"; INVALID_ARGUMENT for anything else.
absl::StatusOr<Lanes> LanesFrom(const std::string& text);

// So that payloads of this size travel as they are where that is possible; larger ones do with any limit.
void MakeRoomFor(uint32_t payload_bytes, EndpointLimits* limits);

// Ties the calling thread, and those it starts later, to one CPU.
absl::Status PinToCpu(int cpu);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_SLUICE_PERF_OPTIONS_H_
