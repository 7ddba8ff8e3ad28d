// SPDX-License-Identifier: Apache-2.0
//
// SlowCalls: the last calls that took longer than a threshold.
//
// Ownership     An engine.
// Threads       The engine's.
// Limits        kKept calls for each tenant; a further one replaces the oldest of the same tenant.
#ifndef SLUICE_MIDDLEWARE_OBSERVE_SLOW_CALLS_H_
#define SLUICE_MIDDLEWARE_OBSERVE_SLOW_CALLS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"

namespace sluice::observe {

struct SlowCall {
  std::string method;
  std::string peer;
  int64_t received_ns = 0;  // of the server's clock
  int64_t took_ns = 0;
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string tenant;  // of the caller; empty: no tenants, or the caller has disconnected
};

class SlowCalls {
 public:
  static constexpr size_t kKept = 32;

  void Add(SlowCall call) {
    std::deque<SlowCall>& kept = kept_[call.tenant];
    if (kept.size() == kKept) kept.pop_front();
    kept.push_back(std::move(call));
    ++seen_;
  }
  // Returns the kept calls of all tenants, in the order of their ends.
  std::vector<SlowCall> kept() const {
    std::vector<SlowCall> all;
    for (const auto& [tenant, kept] : kept_) all.insert(all.end(), kept.begin(), kept.end());
    std::stable_sort(all.begin(), all.end(), [](const SlowCall& a, const SlowCall& b) {
      return a.received_ns + a.took_ns < b.received_ns + b.took_ns;
    });
    return all;
  }
  uint64_t seen() const { return seen_; }

 private:
  absl::flat_hash_map<std::string, std::deque<SlowCall>> kept_;  // by tenant
  uint64_t seen_ = 0;
};

}  // namespace sluice::observe

#endif  // SLUICE_MIDDLEWARE_OBSERVE_SLOW_CALLS_H_
