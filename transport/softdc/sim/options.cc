// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/sim/options.h"

#include "absl/strings/str_cat.h"
#include "transport/softdc/config/config.h"

namespace sluice::softdc::sim {
namespace {

// One hour: sums of a few such values do not overflow.
constexpr int64_t kMaxDelayNs = 3'600'000'000'000;
constexpr uint64_t kMinArenaBytes = uint64_t{4} << 20;
constexpr uint64_t kMaxRate = 100'000'000'000'000;

absl::Status CheckTime(const char* name, int64_t time_ns) {
  if (time_ns >= 0 && time_ns <= kMaxDelayNs) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", time_ns, ": from 0 to ", kMaxDelayNs));
}

}  // namespace

absl::Status Options::Validate() const {
  if (nodes == 0 || nodes > kMaxNodes) {
    return absl::InvalidArgumentError(absl::StrCat("nodes is ", nodes, ": from 1 to ", kMaxNodes));
  }
  if (rate_bits_per_second == 0 || rate_bits_per_second > kMaxRate) {
    return absl::InvalidArgumentError(
        absl::StrCat("rate_bits_per_second is ", rate_bits_per_second, ": from 1 to ", kMaxRate));
  }
  if (arena_bytes < kMinArenaBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("arena_bytes is ", arena_bytes, ": at least ", kMinArenaBytes));
  }
  for (const absl::Status& status :
       {CheckTime("latency_ns", latency_ns), CheckTime("jitter_ns", jitter_ns),
        CheckTime("dc_connect_ns", dc_connect_ns), CheckTime("block_gap_ns", block_gap_ns)}) {
    if (!status.ok()) return status;
  }
  if (absl::Status status = CheckDials(dials); !status.ok()) return status;
  for (const auto& [node, node_dials] : dials_by_node) {
    if (node >= nodes) {
      return absl::InvalidArgumentError(
          absl::StrCat("dials for node ", node, ": there are ", nodes));
    }
    if (absl::Status status = CheckDials(node_dials); !status.ok()) return status;
  }
  return faults.Validate(nodes);
}

}  // namespace sluice::softdc::sim
