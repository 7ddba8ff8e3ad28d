// SPDX-License-Identifier: Apache-2.0
//
// RunTrial: a server, honest clients and one hostile peer in virtual time; and what the oracle says.
//
// Oracle
//   no crash            the sanitizers' and the assertions'
//   nothing lost        each call of an honest client ends once, with OK and its own bytes; each number of its stream comes back
//                       once, in order; no honest client loses its connection
//   time                p99 of the honest calls is at most 1.5 times that of the same world without the hostile peer; a slow server may be
//                       late by the time for the hostile peer's credits, and any server after a flood by that for a full receive queue
//   memory              what one pass of the server allocates, and what the hostile peer leaves behind, are bounded
//   work                things that the server's passes do, and entries that it looks at within one, for each message that comes
//   the end             each connection of the hostile peer is ended, with a reason; a new honest client is welcome
//   credits             a flood of more than eight windows ends its peer at the first message beyond one window (runs without lanes)
//   contract            what the endpoint tells its user (victim.h)
// The same options are the same run.
#ifndef SLUICE_TESTS_HOSTILE_TRIAL_H_
#define SLUICE_TESTS_HOSTILE_TRIAL_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/hostile/grammar.h"

namespace sluice::hostile {

// Worlds differ in what is switched on.
struct World {
  bool tenants = false;  // the hostile peer's, and another one
  bool lanes = false;
  bool large = false;
  bool streams = true;  // of DCIs
  bool slow =
      false;  // the server: whoever sends at the rate of the network fills its receive queue

  static constexpr uint32_t kCount = 10;
  static World Of(uint64_t seed);
};

struct TrialResult {
  std::vector<std::string> violations;
  uint64_t honest_calls = 0;
  int64_t p50_ns = 0;
  int64_t p99_ns = 0;
  uint64_t hostile_messages = 0;
  uint64_t hostile_bytes = 0;
  uint64_t hostile_connections = 0;  // that came up
  uint64_t steps = 0;                // things that the server's passes did
  uint64_t large_steps = 0;          // entries of what waits for large messages that it looked at
  size_t largest_pass_bytes = 0;     // that one of them allocated
  int64_t left_bytes = 0;            // more than before, at the end
  uint64_t floods = 0;               // peers that exceeded their credits, and were ended for it
  std::vector<std::string> reasons;  // why the server ended the hostile peer's connections
  uint64_t digest = 0;               // of the network's events

  bool ok() const { return violations.empty(); }
};

// `limit`: no more than so many of the script's acts.
TrialResult RunTrial(uint64_t seed, bool withhold = true, size_t limit = SIZE_MAX);
std::string ToString(uint64_t seed, const TrialResult& result);

}  // namespace sluice::hostile

#endif  // SLUICE_TESTS_HOSTILE_TRIAL_H_
