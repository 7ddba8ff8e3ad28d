// SPDX-License-Identifier: Apache-2.0
//
// Options: all parameters of a simulation. The same options and the same calls give the same run.
//
// Threads       Plain data without synchronization.
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

  // Rate of each node's way out. The network between nodes has unlimited bandwidth.
  uint64_t rate_bits_per_second = 100'000'000'000;
  int64_t latency_ns = 1'000;  // one way, from the last bit out to the target's memory
  int64_t jitter_ns = 0;       // added to the latency, uniform in [0, jitter_ns]
  // Time that a stream, or a DCI without streams, needs to switch to another target after its last
  // acknowledgement.
  int64_t dc_connect_ns = 300;
  uint32_t header_bytes = 64;  // per packet of the path MTU
  // Maximum usual gap between two blocks of a message if the device guarantees no order. The blocks then land
  // one by one, in random order. Some gaps are ten times as long.
  int64_t block_gap_ns = 2'000;

  // If true, the lowest free QP number is allocated first, so numbers of destroyed queue pairs are reused at
  // once. If false, numbers are allocated in ascending order.
  bool reissue_freed_numbers = false;

  // Default: the dials of SOFTDC_CONFIG, so that programs that simulate run under a personality
  // (config/personalities/).
  Dials dials = DialsOfThisProcess();
  std::map<uint32_t, Dials> dials_by_node;  // instead of `dials`
  FaultPlan faults;
  LogMode log = LogMode::kDigest;

  // Address space that each opened context reserves for its tables. A page uses memory only after its first
  // access.
  uint64_t arena_bytes = uint64_t{64} << 20;

  absl::Status Validate() const;
};

}  // namespace sluice::softdc::sim

#endif  // SLUICE_TRANSPORT_SOFTDC_SIM_OPTIONS_H_
