// SPDX-License-Identifier: Apache-2.0
//
// ClampedTime(): a time that may be added to the time of a clock without an overflow.
//
// Threads       Any: a pure function.
#ifndef SLUICE_TOOLS_GATEWAY_CLAMPED_TIME_H_
#define SLUICE_TOOLS_GATEWAY_CLAMPED_TIME_H_

#include <algorithm>
#include <chrono>

#include "absl/time/time.h"

namespace sluice::gateway {

// Returns `time`, at least zero and at most 100 years. The clocks of gRPC count nanoseconds in 64 bits: absl::InfiniteDuration()
// after now would be a time in the past.
inline std::chrono::microseconds ClampedTime(absl::Duration time) {
  constexpr absl::Duration kLongest = absl::Hours(24 * 365 * 100);
  return absl::ToChronoMicroseconds(std::clamp(time, absl::ZeroDuration(), kLongest));
}

}  // namespace sluice::gateway

#endif  // SLUICE_TOOLS_GATEWAY_CLAMPED_TIME_H_
