// SPDX-License-Identifier: Apache-2.0
#include "transport/base/clock.h"

#include <time.h>

namespace sluice::base {

int64_t RealClock::NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace sluice::base
