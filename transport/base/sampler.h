// SPDX-License-Identifier: Apache-2.0
//
// Sampler: selects one event of `every` at random, for work that is too expensive for each event. The selection is the same in each
// run. Random distances keep it out of step with periodic events.
//
// Threads       One.
#ifndef SLUICE_TRANSPORT_BASE_SAMPLER_H_
#define SLUICE_TRANSPORT_BASE_SAMPLER_H_

#include <cstdint>

namespace sluice::base {

class Sampler {
 public:
  // 1 selects each event.
  explicit Sampler(uint32_t every) : every_(every) {}

  bool Hit() {
    if (--left_ != 0) return false;
    Draw();
    return true;
  }
  // Returns the number of events that each selected event represents on average.
  uint32_t every() const { return every_; }

 private:
  // Draws the next distance, from 1 to 2 * every - 1 with equal probability. The mean is `every`.
  void Draw() {
    state_ = state_ * 1664525u + 1013904223u;
    left_ = 1 + static_cast<uint32_t>((static_cast<uint64_t>(state_) * (2 * every_ - 1)) >> 32);
  }

  const uint32_t every_;
  uint32_t left_ = 1;
  uint32_t state_ = 0;
};

}  // namespace sluice::base

#endif  // SLUICE_TRANSPORT_BASE_SAMPLER_H_
