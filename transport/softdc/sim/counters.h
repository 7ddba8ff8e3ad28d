// SPDX-License-Identifier: Apache-2.0
//
// Counters of the events in a simulation.
#ifndef SLUICE_TRANSPORT_SOFTDC_SIM_COUNTERS_H_
#define SLUICE_TRANSPORT_SOFTDC_SIM_COUNTERS_H_

#include <cstdint>

namespace sluice::softdc::sim {

struct Counters {
  uint64_t sent = 0;       // messages put on the wire, retransmissions included
  uint64_t delivered = 0;  // executed at their target
  uint64_t lost = 0;       // by chance, a cut link, a port that is down, or a missing target
  uint64_t timeouts = 0;
  uint64_t not_ready = 0;
};

}  // namespace sluice::softdc::sim

#endif  // SLUICE_TRANSPORT_SOFTDC_SIM_COUNTERS_H_
