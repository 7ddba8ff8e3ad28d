// SPDX-License-Identifier: Apache-2.0
//
// Clock: time as a constructor argument, so that everything above the seam can run in virtual time.
//
// Threads       RealClock: any.
#ifndef SLUICE_TRANSPORT_BASE_CLOCK_H_
#define SLUICE_TRANSPORT_BASE_CLOCK_H_

#include <cstdint>

namespace sluice::base {

class Clock {
 public:
  virtual ~Clock() = default;
  // Returns nanoseconds since an arbitrary origin. Never decreases.
  virtual int64_t NowNs() = 0;
};

// CLOCK_MONOTONIC (man clock_gettime).
class RealClock final : public Clock {
 public:
  int64_t NowNs() override;
};

}  // namespace sluice::base

#endif  // SLUICE_TRANSPORT_BASE_CLOCK_H_
