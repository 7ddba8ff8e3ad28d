// SPDX-License-Identifier: Apache-2.0
//
// RetryPolicy, RetryBudget: when a call that failed is tried once more.
//
// A call is tried again if it ended UNAVAILABLE and either no handler has seen it (the server said so, kFlagNotRun), or its
// method is declared idempotent. A streaming call only if no handler has seen it and its client has sent one message. Its
// deadline is that of all attempts; the server is told which one it sees.
//
// The budget keeps retries from making an overload worse: each takes one token, each success gives a part of one back.
// With the bucket empty calls fail at their first error.
#ifndef SLUICE_MIDDLEWARE_CALL_RETRY_H_
#define SLUICE_MIDDLEWARE_CALL_RETRY_H_

#include <algorithm>
#include <cstdint>

#include "transport/base/random.h"

namespace sluice::call {

// The key of a request's metadata that says which attempt it is, from the second one on.
inline constexpr char kAttemptKey[] = "sluice-attempt";

struct RetryPolicy {
  static constexpr uint32_t kMaxAttempts = 16;

  uint32_t max_attempts = 1;  // the first one included; 1: none is tried again
  int64_t pause_min_ns = 5'000'000;
  int64_t pause_max_ns = 500'000'000;
  uint32_t budget = 10;                   // tokens at most, and at the start
  uint32_t budget_per_thousand_ok = 100;  // tokens that a thousand successes give back

  // Before the attempt that follows `attempt` (1: the first): between a half and all of a time that doubles.
  int64_t Pause(uint32_t attempt, base::Random* random) const {
    const int64_t longest = std::min(pause_max_ns, pause_min_ns << std::min(attempt - 1, 20u));
    return longest / 2 +
           static_cast<int64_t>(random->Below(static_cast<uint64_t>(longest / 2) + 1));
  }
};

class RetryBudget {
 public:
  explicit RetryBudget(const RetryPolicy& policy)
      : most_(uint64_t{policy.budget} * 1000),
        per_ok_(policy.budget_per_thousand_ok),
        tokens_(most_) {}
  void Succeeded() { tokens_ = std::min(most_, tokens_ + per_ok_); }
  bool Take() {
    if (tokens_ < 1000) return false;
    tokens_ -= 1000;
    return true;
  }

 private:
  const uint64_t most_;  // in thousandths
  const uint64_t per_ok_;
  uint64_t tokens_;
};

}  // namespace sluice::call

#endif  // SLUICE_MIDDLEWARE_CALL_RETRY_H_
