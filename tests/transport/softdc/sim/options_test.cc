// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/sim/options.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace sluice::softdc::sim {
namespace options_test {

using Change = std::function<void(Options*)>;

TEST(OptionsTest, DefaultsAreAccepted) { EXPECT_TRUE(Options().Validate().ok()); }

TEST(OptionsTest, ImpossibleSettingIsRefusedWithTheReason) {
  const std::vector<std::pair<Change, std::string>> table = {
      {[](Options* o) { o->nodes = 0; }, "nodes is 0"},
      {[](Options* o) { o->nodes = kMaxNodes + 1; }, "nodes is 49152"},
      {[](Options* o) { o->rate_bits_per_second = 0; }, "rate_bits_per_second is 0"},
      {[](Options* o) { o->latency_ns = -1; }, "latency_ns is -1"},
      {[](Options* o) { o->jitter_ns = INT64_MAX; }, "jitter_ns"},
      {[](Options* o) { o->dc_connect_ns = -5; }, "dc_connect_ns"},
      {[](Options* o) { o->block_gap_ns = -5; }, "block_gap_ns"},
      {[](Options* o) { o->arena_bytes = 1; }, "arena_bytes is 1"},
      {[](Options* o) { o->dials_by_node[2] = Dials{}; }, "dials for node 2: there are 2"},
      {[](Options* o) { o->faults.messages.loss_ppm = 1'000'001; }, "message loss is 1000001"},
      {[](Options* o) { o->faults.messages.delay_ppm = 5; }, "messages are to be delayed"},
      {[](Options* o) { o->faults.cm.delay_ppm = 5; }, "CM messages are to be delayed"},
      {[](Options* o) { o->faults.cm.reject_ppm = 2'000'000; }, "CM reject is 2000000"},
      {[](Options* o) { o->faults.timed = {{.at_ns = 0, .node = 9}}; }, "node 9: there are 2"},
      {[](Options* o) { o->faults.timed = {{.at_ns = -1}}; }, "before the start"},
      {[](Options* o) { o->faults.timed = {{.what = Happening::kCutLink, .node = 1, .peer = 1}}; },
       "no link to itself"},
      {[](Options* o) { o->faults.requests = {{.peer = 3}}; }, "peer 3: there are 2"},
      {[](Options* o) { o->faults.requests = {{.count = 0}}; }, "count 0"},
      {[](Options* o) { o->faults.requests = {{.status = IBV_WC_SUCCESS}}; }, "no failure"},
      {[](Options* o) { o->faults.requests = {{.lands_late_ns = 10}}; }, "only an RDMA WRITE"},
  };
  for (const auto& [change, reason] : table) {
    Options options;
    change(&options);
    const absl::Status status = options.Validate();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << reason;
    EXPECT_NE(status.message().find(reason), std::string::npos) << status;
  }
}

}  // namespace options_test
}  // namespace sluice::softdc::sim
