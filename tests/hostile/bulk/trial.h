// SPDX-License-Identifier: Apache-2.0
//
// RunBulkTrial: a bulk port, honest ports and a hostile one in virtual time; and what the oracle says.
//
// Oracle
//   no crash            the sanitizers' and the assertions'; memory that was returned is freed, and must not be written
//   honest transfers    each ends once with OK, with its bytes at both ends, and is told of at the other end, in order; no honest
//                       peer is ended
//   guests' transfers   each transfer to the hostile port ends, soon after its deadline
//   memory              what one pass of the port allocates, and what the hostile port leaves behind, are bounded
//   the end             a port that does what no honest port does is ended, with a reason; so is each port that the user
//                       disconnects; all memory comes back; a new honest port is welcome
//   contract            what the port tells its user (port_host.h)
// The same seed is the same run.
#ifndef SLUICE_TESTS_HOSTILE_BULK_TRIAL_H_
#define SLUICE_TESTS_HOSTILE_BULK_TRIAL_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace sluice::hostile::bulk_port {

struct BulkResult {
  std::vector<std::string> violations;
  uint64_t honest_transfers = 0;
  uint64_t guest_transfers = 0;  // to the hostile port
  int64_t p50_ns = 0;
  int64_t p99_ns = 0;
  uint64_t joined = 0;  // peers of the hostile port
  uint64_t words = 0;
  uint64_t writes = 0;
  size_t largest_pass_bytes = 0;     // that one pass of the victim allocated
  int64_t left_bytes = 0;            // more than before, at the end
  std::vector<std::string> reasons;  // why the victim ended its guests
  uint64_t digest = 0;               // of the network's events

  bool ok() const { return violations.empty(); }
};

// `withhold`: without what is known to break. `limit`: no more than so many of the script's acts.
// Known: hostile peers that announce queue pairs and never connect or close them use up max_signed_peers; protected transfers
// that this side alone wants to make to honest peers then wait for ever, or until their deadlines.
BulkResult RunBulkTrial(uint64_t seed, bool withhold = true, size_t limit = SIZE_MAX);
std::string ToString(uint64_t seed, const BulkResult& result);

}  // namespace sluice::hostile::bulk_port

#endif  // SLUICE_TESTS_HOSTILE_BULK_TRIAL_H_
