// SPDX-License-Identifier: Apache-2.0
//
// What the publisher sends: numbered prices. Both programs run on one kind of machine, so this is simply its bytes.
#ifndef SLUICE_EXAMPLES_FLOW_TICKS_H_
#define SLUICE_EXAMPLES_FLOW_TICKS_H_

#include <cstdint>

namespace sluice::examples::flow {

inline constexpr char kTicks[] = "ticks";  // the end's name

struct Tick {
  uint64_t number = 0;  // from 0, +1 each
  uint64_t price = 0;
};

}  // namespace sluice::examples::flow

#endif  // SLUICE_EXAMPLES_FLOW_TICKS_H_
