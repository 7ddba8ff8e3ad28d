// SPDX-License-Identifier: Apache-2.0
//
// Options: everything that shapes a simulation. The same options and the same calls give the same
// run.
//
// Threads       A value.
#ifndef SLUICE_TRANSPORT_SOFTDC_SIM_OPTIONS_H_
#define SLUICE_TRANSPORT_SOFTDC_SIM_OPTIONS_H_

#include <cstdint>
#include <map>

#include "absl/status/status.h"
#include "transport/softdc/config/config.h"
#include "transport/softdc/config/dials.h"
#include "transport/softdc/sim/event_log.h"
#include "transport/softdc/sim/fault_plan.h"

namespace sluice::softdc::sim {

inline constexpr uint32_t kMaxNodes = 0xbfff;  // each has a unicast LID

struct Options {
  uint64_t seed = 1;
  uint32_t nodes = 2;

  // Each node's way out; the network between has no bound of its own.
  uint64_t rate_bits_per_second = 100'000'000'000;
  int64_t latency_ns = 1'000;  // one way, from the last bit out to the target's memory
  int64_t jitter_ns = 0;       // on top, even in [0, jitter]
  // A stream, or a DCI without streams, turns to another target: after its last acknowledgement.
  int64_t dc_connect_ns = 300;
  uint32_t header_bytes = 64;  // of each packet of the path MTU
  // Where order is not promised, the blocks of a message land one by one, in chance order, each up
  // to this long after the one before.
  int64_t block_gap_ns = 2'000;

  // Numbers of destroyed queue pairs come back at once, the lowest first; otherwise they go forward.
  bool reissue_freed_numbers = false;

  // Default: the dials of SOFTDC_CONFIG, so that programs that simulate run under a personality (config/personalities/).
  Dials dials = DialsOfThisProcess();
  std::map<uint32_t, Dials> dials_by_node;  // instead of `dials`
  FaultPlan faults;
  LogMode log = LogMode::kDigest;

  // Address space that each opened context reserves for its tables (not memory: pages come when
  // touched).
  uint64_t arena_bytes = uint64_t{64} << 20;

  absl::Status Validate() const;
};

}  // namespace sluice::softdc::sim

#endif  // SLUICE_TRANSPORT_SOFTDC_SIM_OPTIONS_H_
