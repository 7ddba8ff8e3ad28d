// SPDX-License-Identifier: Apache-2.0
//
// Pacing: the time of the next attempt to connect to a peer.
//
// Purpose       After each failure in a row, the pause before the next attempt doubles, up to a maximum. A random part of up to a half
//               is subtracted, so that clients that failed together do not return together. In addition, attempts to one peer are
//               limited by a rate with a burst; an attempt beyond it is delayed.
// Threads       The polling thread.
// Limits        One number for each peer. A new peer above `max_peers` removes the peers whose burst is complete again.
#ifndef SLUICE_TRANSPORT_CM_PACING_H_
#define SLUICE_TRANSPORT_CM_PACING_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "transport/base/random.h"

namespace sluice::cm {

struct PacingOptions {
  int64_t first_delay_ns = 50'000'000;
  int64_t max_delay_ns = 2'000'000'000;
  uint32_t attempts_per_second = 10;  // to one peer; 0: no limit
  uint32_t burst = 10;
};

class Pacing {
 public:
  Pacing(PacingOptions options, base::Random& random, size_t max_peers)
      : options_(options), random_(random), max_peers_(max_peers) {}
  Pacing(const Pacing&) = delete;
  Pacing& operator=(const Pacing&) = delete;

  // Returns the pause after `failures` (at least 1) failures in a row.
  int64_t DelayNs(uint32_t failures);

  // Counts an attempt to `peer` and returns when it may start: `now_ns`, or later if the rate limit delays it.
  int64_t TakeTurnNs(const std::string& peer, int64_t now_ns);

  size_t peers() const { return full_at_ns_.size(); }
  uint64_t throttled() const { return throttled_; }  // attempts that were delayed

 private:
  const PacingOptions options_;
  base::Random& random_;
  const size_t max_peers_;
  // Per peer: time at which its burst is complete again if no further attempt comes (a leaky bucket in one number).
  absl::flat_hash_map<std::string, int64_t> full_at_ns_;
  uint64_t throttled_ = 0;
};

}  // namespace sluice::cm

#endif  // SLUICE_TRANSPORT_CM_PACING_H_
