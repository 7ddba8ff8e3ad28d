// SPDX-License-Identifier: Apache-2.0
//
// RunStorm: connects, disconnects and reconnects between simulated hosts whose CM messages get lost,
// doubled, delayed and refused, and whose programs answer late, badly or never, or are killed and
// started again. Everything follows from the seed. After each step it checks what must hold at any time; at the end, that nothing is
// left behind.
#ifndef SLUICE_TESTS_TRANSPORT_CM_STORM_H_
#define SLUICE_TESTS_TRANSPORT_CM_STORM_H_

#include <cstdint>

#include "tests/transport/cm/storm_result.h"
#include "transport/cm/connection_manager.h"
#include "transport/softdc/config/dials.h"

namespace sluice::cm {

struct StormOptions {
  uint64_t seed = 1;
  int connects = 10;
  uint32_t hosts = 3;  // each connects to each
  uint32_t kills = 0;  // of a host's program, which comes back
  softdc::Dials dials;
  Options cm;
};

StormResult RunStorm(const StormOptions& options);

}  // namespace sluice::cm

#endif  // SLUICE_TESTS_TRANSPORT_CM_STORM_H_
