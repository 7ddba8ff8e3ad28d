// SPDX-License-Identifier: Apache-2.0
//
// Heat: how busy a peer was recently, in four bytes, so that every idle peer can have one.
//
// Purpose       A count that is halved in each period. Periods are counted in messages, and end early when the process sleeps: a
//               process that sleeps between messages has no hot peers, and does not need them.
// Ownership     A value in the record of a peer.
#ifndef SLUICE_TRANSPORT_LANE_HEAT_H_
#define SLUICE_TRANSPORT_LANE_HEAT_H_

#include <algorithm>
#include <cstdint>

namespace sluice::lane {

class Heat {
 public:
  static constexpr uint32_t kPeriodMessages = 4096;

  // Counts a message. Returns the count, which is halved for each period that has passed.
  uint32_t Add(uint16_t period) {
    const uint16_t passed = period - period_;
    period_ = period;
    count_ = static_cast<uint16_t>(count_ >> std::min<uint16_t>(passed, 15));
    if (count_ != UINT16_MAX) ++count_;
    return count_;
  }
  void Cool() { count_ = 0; }

 private:
  uint16_t count_ = 0;
  uint16_t period_ = 0;
};

}  // namespace sluice::lane

#endif  // SLUICE_TRANSPORT_LANE_HEAT_H_
