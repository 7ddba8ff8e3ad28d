// SPDX-License-Identifier: Apache-2.0
//
// What a hostile peer says instead of the truth.
#ifndef SLUICE_TESTS_HOSTILE_LIES_H_
#define SLUICE_TESTS_HOSTILE_LIES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/base/random.h"

namespace sluice::hostile {

inline bool OneIn(base::SeededRandom& dice, uint64_t count) { return dice.Below(count) == 0; }

// A lie about `truth`, or the truth: once more, skipped, backwards, nothing, the largest, anything.
inline uint64_t Twist(uint64_t truth, base::SeededRandom& dice) {
  switch (dice.Below(9)) {
    case 0:
      return truth + 1;
    case 1:
      return truth - 1;
    case 2:
      return truth + 1 + dice.Below(100);
    case 3:
      return 0;
    case 4:
      return UINT64_MAX;
    case 5:
      return uint64_t{1} << dice.Below(64);
    case 6:
      return truth ^ uint64_t { 1 } << dice.Below(64);
    case 7:
      return dice.Next64();
    default:
      return truth;
  }
}

inline std::vector<std::byte> RandomBytes(size_t count, base::SeededRandom& dice) {
  std::vector<std::byte> bytes(count);
  for (std::byte& one : bytes) one = static_cast<std::byte>(dice.Next64());
  return bytes;
}

}  // namespace sluice::hostile

#endif  // SLUICE_TESTS_HOSTILE_LIES_H_
