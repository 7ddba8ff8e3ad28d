// SPDX-License-Identifier: Apache-2.0
//
// StormResult: what happened in a storm, in numbers, and what should not have.
#ifndef SLUICE_TESTS_TRANSPORT_CM_STORM_RESULT_H_
#define SLUICE_TESTS_TRANSPORT_CM_STORM_RESULT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "transport/cm/connection_manager.h"

namespace sluice::cm {

struct StormResult {
  std::vector<std::string> violations;
  uint64_t connects = 0;
  uint64_t up = 0;
  uint64_t given_up = 0;                         // by the program that asked
  std::map<absl::StatusCode, uint64_t> refused;  // connects that ended in a status, by its code
  uint64_t accepted = 0;                         // up at the server
  Metrics cm;                                    // of all hosts together
  uint64_t killed = 0;                           // programs
  uint64_t died = 0;                             // connects that ended with the program that asked
  uint64_t stale = 0;                            // refused as stale by some host
  uint64_t numbers_taken = 0;
  uint64_t numbers_reserved = 0;  // of those
  uint64_t numbers_taken_again = 0;
  uint64_t numbers_reissued = 0;  // of a killed program
  uint64_t mapped = 0;
  uint64_t unmapped = 0;
  uint64_t agreed_ece = 0;  // connections whose peer offered options
  uint64_t digest = 0;      // of all that happened
  int64_t virtual_ns = 0;
};

void Add(const StormResult& one, StormResult* sum);
std::string ToString(const StormResult& result);

}  // namespace sluice::cm

#endif  // SLUICE_TESTS_TRANSPORT_CM_STORM_RESULT_H_
