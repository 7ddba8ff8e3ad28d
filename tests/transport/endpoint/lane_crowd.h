// SPDX-License-Identifier: Apache-2.0
//
// Many peers of one endpoint, a few of them hot, then a few others: whose messages go through lanes, and what memory it takes.
#ifndef SLUICE_TESTS_TRANSPORT_ENDPOINT_LANE_CROWD_H_
#define SLUICE_TESTS_TRANSPORT_ENDPOINT_LANE_CROWD_H_

#include <cstdint>
#include <string>

namespace sluice::endpoint {

struct CrowdPlan {
  uint64_t seed = 1;
  uint32_t peers = 400;
  uint32_t hot = 16;              // twice: those of the first phase, and others in the second
  uint32_t lanes = 16;            // for which there is memory
  uint32_t hot_messages = 1'000;  // of each, in a phase
  uint32_t cold_messages = 4;     // likewise, of each that is not
};

struct CrowdResult {
  uint64_t messages = 0;
  uint64_t buffer_bytes = 0;      // receive buffers, of all peers together
  uint64_t lane_bytes_limit = 0;  // as configured
  uint64_t lane_bytes_most = 0;   // that there ever were
  uint64_t lanes_granted = 0;
  uint64_t lanes_closed = 0;  // for busier peers
  // Of the messages of a phase's hot peers in its second half, those that were written into lanes; and of all others.
  double hot_share[2] = {0, 0};
  double cold_share = 0;
  std::string wrong;  // empty: every message came once, whole, in its order
};

CrowdResult RunLaneCrowd(const CrowdPlan& plan);

}  // namespace sluice::endpoint

#endif  // SLUICE_TESTS_TRANSPORT_ENDPOINT_LANE_CROWD_H_
