// SPDX-License-Identifier: Apache-2.0
//
// Workload: what the programs of a run send to one another: bursts of messages of many sizes, pauses, and replies.
#ifndef SLUICE_TESTS_SIMULATION_WORKLOAD_H_
#define SLUICE_TESTS_SIMULATION_WORKLOAD_H_

#include <algorithm>
#include <cstdint>

#include "transport/softdc/sim/random.h"

namespace sluice::simulation {

struct Workload {
  uint32_t usual_bytes = 64;   // most messages are no longer
  uint32_t long_ppm = 10'000;  // others are of any size up to the limit
  uint32_t most_in_burst = 64;
  int64_t most_pause_ns = 100'000;  // between bursts
  uint32_t reply_ppm = 100'000;     // messages that are answered with one
  uint32_t report_ppm = 10'000;     // messages whose sender wants to know soon
  uint32_t leave_ppm = 0;           // callbacks that disconnect their peer, which is dialled again

  uint32_t DrawBytes(softdc::sim::Random& random, uint32_t most_bytes) const {
    const uint32_t most = random.Chance(long_ppm) ? most_bytes : std::min(usual_bytes, most_bytes);
    return static_cast<uint32_t>(random.Below(most + uint64_t{1}));
  }
  uint32_t DrawBurst(softdc::sim::Random& random) const {
    return 1 + static_cast<uint32_t>(random.Below(most_in_burst));
  }
  int64_t DrawPauseNs(softdc::sim::Random& random) const {
    return static_cast<int64_t>(random.Below(static_cast<uint64_t>(most_pause_ns) + 1));
  }
};

}  // namespace sluice::simulation

#endif  // SLUICE_TESTS_SIMULATION_WORKLOAD_H_
