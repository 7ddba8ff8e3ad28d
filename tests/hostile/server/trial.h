// SPDX-License-Identifier: Apache-2.0
//
// RunServerTrial: clients that call an honest server and a hostile one in virtual time; and what the oracle says.
//
// Oracle
//   no crash       the sanitizers' and the assertions'
//   honest server  each call to it ends once, with OK and its own bytes; no client loses its connection; p99 of these calls is
//                  at most 1.5 times that of the same world without the hostile server, and the time for the messages of its credits
//   hostile server each call to it ends once, soon after its deadline
//   memory         what one pass of a client allocates, and what the hostile server leaves behind, are bounded
//   work           entries that clients look at for large messages, for each message that the hostile server sends
// The same seed is the same run.
#ifndef SLUICE_TESTS_HOSTILE_SERVER_TRIAL_H_
#define SLUICE_TESTS_HOSTILE_SERVER_TRIAL_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/hostile/grammar.h"

namespace sluice::hostile::server {

struct ServerResult {
  std::vector<std::string> violations;
  uint64_t honest_calls = 0;
  uint64_t other_calls = 0;  // to the hostile server, or to either
  uint64_t other_ok = 0;
  int64_t p50_ns = 0;
  int64_t p99_ns = 0;
  uint64_t hostile_messages = 0;
  uint64_t hostile_connections = 0;  // that came up
  size_t largest_pass_bytes = 0;     // that one pass of a client allocated
  int64_t left_bytes = 0;            // more than before, at the end
  uint64_t large_steps = 0;
  uint64_t digest = 0;  // of the network's events

  bool ok() const { return violations.empty(); }
};

Script DrawServer(uint64_t seed);
// `limit`: no more than so many of the script's acts.
ServerResult RunServerTrial(uint64_t seed, size_t limit = SIZE_MAX);
std::string ToString(uint64_t seed, const ServerResult& result);

}  // namespace sluice::hostile::server

#endif  // SLUICE_TESTS_HOSTILE_SERVER_TRIAL_H_
