// SPDX-License-Identifier: Apache-2.0
//
// SlowCalls: the last calls that took longer than a threshold.
//
// Bound         kKept; the eldest goes.
// Which thread  The engine's.
#ifndef SLUICE_MIDDLEWARE_OBSERVE_SLOW_CALLS_H_
#define SLUICE_MIDDLEWARE_OBSERVE_SLOW_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace sluice::observe {

struct SlowCall {
  std::string method;
  std::string peer;
  int64_t received_ns = 0;  // of the server's clock
  int64_t took_ns = 0;
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string tenant;  // of the caller; empty: there are no tenants, or the caller has gone
};

class SlowCalls {
 public:
  static constexpr size_t kKept = 32;

  void Add(SlowCall call) {
    if (kept_.size() == kKept) kept_.pop_front();
    kept_.push_back(std::move(call));
    ++seen_;
  }
  // The eldest first.
  const std::deque<SlowCall>& kept() const { return kept_; }
  uint64_t seen() const { return seen_; }

 private:
  std::deque<SlowCall> kept_;
  uint64_t seen_ = 0;
};

}  // namespace sluice::observe

#endif  // SLUICE_MIDDLEWARE_OBSERVE_SLOW_CALLS_H_
