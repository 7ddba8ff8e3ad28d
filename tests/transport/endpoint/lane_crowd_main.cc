// SPDX-License-Identifier: Apache-2.0
//
// usage: lane_crowd PEERS HOT MESSAGES
// So many peers of one endpoint, memory for as many lanes as are hot, so many messages of each hot one in each of two phases.
// 1: something was wrong.
#include <cstdio>

#include "absl/strings/numbers.h"
#include "tests/transport/endpoint/lane_crowd.h"

int main(int argc, char** argv) {
  sluice::endpoint::CrowdPlan plan;
  if (argc != 4 || !absl::SimpleAtoi(argv[1], &plan.peers) ||
      !absl::SimpleAtoi(argv[2], &plan.hot) || !absl::SimpleAtoi(argv[3], &plan.hot_messages) ||
      plan.hot == 0 || plan.peers <= 2 * plan.hot) {
    std::fprintf(stderr, "usage: lane_crowd PEERS HOT MESSAGES\n");
    return 2;
  }
  plan.lanes = plan.hot;
  const auto result = sluice::endpoint::RunLaneCrowd(plan);
  std::printf(
      "%lu messages; receive buffers %lu bytes, lanes at most %lu of %lu; %lu lanes granted, %lu "
      "closed\n"
      "through lanes: %.3f of the first who were hot, %.3f of the second, %.5f of the others\n%s\n",
      result.messages, result.buffer_bytes, result.lane_bytes_most, result.lane_bytes_limit,
      result.lanes_granted, result.lanes_closed, result.hot_share[0], result.hot_share[1],
      result.cold_share, result.wrong.empty() ? "all came once, in order" : result.wrong.c_str());
  return result.wrong.empty() && result.lane_bytes_most <= result.lane_bytes_limit ? 0 : 1;
}
