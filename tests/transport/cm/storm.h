// SPDX-License-Identifier: Apache-2.0
//
// RunStorm: connects, disconnects and reconnects between simulated hosts whose CM messages get lost,
// doubled, delayed and refused, and whose programs answer late, badly or never. Everything follows
// from the seed. After each step it checks what must hold at any time; at the end, that nothing is
// left behind.
#ifndef SLUICE_TESTS_TRANSPORT_CM_STORM_H_
#define SLUICE_TESTS_TRANSPORT_CM_STORM_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "transport/cm/connection_manager.h"
#include "transport/softdc/config/dials.h"

namespace sluice::cm {

struct StormOptions {
  uint64_t seed = 1;
  int connects = 10;
  uint32_t hosts = 3;  // each connects to each
  softdc::Dials dials;
  Options cm;
};

struct StormResult {
  std::vector<std::string> violations;
  uint64_t connects = 0;
  uint64_t up = 0;
  uint64_t given_up = 0;                         // by the program that asked
  std::map<absl::StatusCode, uint64_t> refused;  // connects that ended in a status, by its code
  uint64_t accepted = 0;                         // up at the server
  Metrics cm;                                    // of all hosts together
  uint64_t stale = 0;                            // refused as stale by some host
  uint64_t numbers_taken = 0;
  uint64_t numbers_reserved = 0;  // of those
  uint64_t numbers_taken_again = 0;
  uint64_t mapped = 0;
  uint64_t unmapped = 0;
  uint64_t agreed_ece = 0;  // connections whose peer offered options
  uint64_t digest = 0;      // of all that happened
  int64_t virtual_ns = 0;
};

StormResult RunStorm(const StormOptions& options);

void Add(const StormResult& one, StormResult* sum);
std::string ToString(const StormResult& result);

}  // namespace sluice::cm

#endif  // SLUICE_TESTS_TRANSPORT_CM_STORM_H_
