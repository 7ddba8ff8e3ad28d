// SPDX-License-Identifier: Apache-2.0
//
// OpenLoop: starts calls by a schedule, whether or not earlier calls have ended, like users who know nothing of each other. The latency of a
// call counts from its intended start. So it includes the delay of calls that could not be started while the server stalled.
//
// Threads       One. Time is an argument. The caller starts the calls and reports their ends.
#ifndef SLUICE_TOOLS_OPEN_LOOP_H_
#define SLUICE_TOOLS_OPEN_LOOP_H_

#include <algorithm>
#include <cstdint>

#include "transport/base/histogram.h"

namespace sluice::tools {

class OpenLoop {
 public:
  struct Plan {
    double per_second = 1'000;  // evenly spaced; above 0
    int64_t start_ns = 0;
    int64_t duration_ns = 1'000'000'000;
    uint32_t most_outstanding = 1'024;  // others wait for a place, and their time runs
  };

  explicit OpenLoop(const Plan& plan)
      : plan_(plan),
        scheduled_(
            static_cast<uint64_t>(plan.per_second * 1e-9 * static_cast<double>(plan.duration_ns))) {
  }

  uint64_t scheduled() const { return scheduled_; }
  uint64_t started() const { return started_; }
  uint32_t outstanding() const { return outstanding_; }
  const base::Histogram& latencies_ns() const { return latencies_ns_; }

  // When the next one is to start; INT64_MAX: none is left.
  int64_t NextNs() const { return started_ == scheduled_ ? INT64_MAX : IntendedNs(started_); }
  bool done() const { return started_ == scheduled_ && outstanding_ == 0; }

  // start(intended_ns) for each that is due and has a place; it may End() at once.
  template <typename Start>
  void StartDue(int64_t now_ns, Start start) {
    while (outstanding_ < plan_.most_outstanding && NextNs() <= now_ns) {
      const int64_t intended_ns = IntendedNs(started_);
      ++started_;
      ++outstanding_;
      start(intended_ns);
    }
  }
  // Of each that was started, once. Only what succeeded has a latency.
  void End(int64_t intended_ns, int64_t now_ns, bool ok) {
    --outstanding_;
    if (ok) latencies_ns_.Record(std::max<int64_t>(now_ns - intended_ns, 0));
  }

 private:
  int64_t IntendedNs(uint64_t call) const {
    return plan_.start_ns +
           static_cast<int64_t>(static_cast<double>(call) * 1e9 / plan_.per_second);
  }

  const Plan plan_;
  const uint64_t scheduled_;
  uint64_t started_ = 0;
  uint32_t outstanding_ = 0;
  base::Histogram latencies_ns_;
};

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_OPEN_LOOP_H_
