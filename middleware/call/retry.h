// SPDX-License-Identifier: Apache-2.0
//
// RetryPolicy, RetryBudget: decide whether a failed call is retried.
//
// Rule          A call is retried if it ended with UNAVAILABLE, and no handler has seen it (the
//               server reported kFlagNotRun) or its method is declared idempotent. A streaming call
//               is retried only if no handler has seen it and its client has sent one message. The
//               deadline covers all attempts. The server learns the number of the attempt.
// Budget        Keeps retries from increasing an overload: each retry takes one token, each success
//               of a call returns a part of one. Health checks return none. Without tokens, calls
//               fail at their first error.
// Ownership     ClientEngine owns them.
// Threads       The thread that drives the engine.
#ifndef SLUICE_MIDDLEWARE_CALL_RETRY_H_
#define SLUICE_MIDDLEWARE_CALL_RETRY_H_

#include <algorithm>
#include <cstdint>

#include "transport/base/random.h"

namespace sluice::call {

// Key of request metadata with the number of the attempt, from the second attempt on.
inline constexpr char kAttemptKey[] = "sluice-attempt";

struct RetryPolicy {
  static constexpr uint32_t kMaxAttempts = 16;

  uint32_t max_attempts = 1;  // maximum number of attempts, the first included; 1: no retries
  int64_t pause_min_ns = 5'000'000;
  int64_t pause_max_ns = 500'000'000;
  uint32_t budget = 10;                   // maximum number of tokens, and number at the start
  uint32_t budget_per_thousand_ok = 100;  // tokens that a thousand successes return

  bool operator==(const RetryPolicy&) const = default;

  // Pause in nanoseconds after attempt number `attempt` (1: the first): a random time between half
  // of the current maximum, which doubles with each attempt, and all of it.
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
  // Only Take() applies the maximum, so that Uncount() is exact.
  void Succeeded() { tokens_ += per_ok_; }
  // Undoes the latest Succeeded(). Take() must not have been called since then.
  void Uncount() { tokens_ -= per_ok_; }
  bool Take() {
    tokens_ = std::min(most_, tokens_);
    if (tokens_ < 1000) return false;
    tokens_ -= 1000;
    return true;
  }

 private:
  const uint64_t most_;  // in thousandths of a token
  const uint64_t per_ok_;
  uint64_t tokens_;
};

}  // namespace sluice::call

#endif  // SLUICE_MIDDLEWARE_CALL_RETRY_H_
