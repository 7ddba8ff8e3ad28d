// SPDX-License-Identifier: Apache-2.0
//
// ManualClock: time that moves only when a test says so.
#ifndef SLUICE_TESTS_SUPPORT_MANUAL_CLOCK_H_
#define SLUICE_TESTS_SUPPORT_MANUAL_CLOCK_H_

#include <cstdint>

#include "transport/base/clock.h"

namespace sluice::testing_support {

class ManualClock final : public base::Clock {
 public:
  explicit ManualClock(int64_t start_ns = 1'000'000'000) : now_ns_(start_ns) {}
  int64_t NowNs() override { return now_ns_; }
  void Advance(int64_t by_ns) { now_ns_ += by_ns; }

 private:
  int64_t now_ns_;
};

}  // namespace sluice::testing_support

#endif  // SLUICE_TESTS_SUPPORT_MANUAL_CLOCK_H_
