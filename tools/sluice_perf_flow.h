// SPDX-License-Identifier: Apache-2.0
//
// `sluice_perf flow` and the other end of it.
#ifndef SLUICE_TOOLS_SLUICE_PERF_FLOW_H_
#define SLUICE_TOOLS_SLUICE_PERF_FLOW_H_

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "middleware/api/messenger.h"
#include "proto/bench_result.pb.h"
#include "tools/sluice_perf_options.h"

namespace sluice::tools {

// Messages that failed are counted in the result; an error is what kept it from measuring at all.
absl::StatusOr<BenchResult> MeasureFlows(const PerfOptions& options, const std::string& server);

// Takes messages, and sends them back if the end's name says so.
class FlowSink final : public FlowHandler {
 public:
  static constexpr char kEchoEnd[] = "perf.echo";
  static constexpr char kTakeEnd[] = "perf.take";

  absl::Status AcceptOn(Messenger& messenger, uint32_t window);

  void OnMessage(Flow flow, std::span<const std::byte> message) override;
  void OnWritable(Flow flow) override;
  void OnClosed(Flow flow, const absl::Status& why, const FlowTotals& totals) override;

 private:
  struct Echo {
    bool open = false;
    std::deque<uint32_t>
        unsent;  // sizes of messages that wait for a window. All bytes of a run are alike.
  };
  Echo& Of(Flow flow) { return echoes_[static_cast<uint32_t>(flow.id())]; }

  std::vector<Echo> echoes_;  // by the lower half of a flow's id
};

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_SLUICE_PERF_FLOW_H_
