// SPDX-License-Identifier: Apache-2.0
//
// Random: the only random number generator of a simulation (SplitMix64). The same seed gives the same numbers
// on every machine. Not for secrets.
//
// Threads       One thread.
#ifndef SLUICE_TRANSPORT_SOFTDC_SIM_RANDOM_H_
#define SLUICE_TRANSPORT_SOFTDC_SIM_RANDOM_H_

#include <cstdint>

namespace sluice::softdc::sim {

inline constexpr uint32_t kMillion = 1'000'000;

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // Returns a number in [0, bound), or 0 if bound is 0. Multiply and shift: the bias of 2^-64 does not matter
  // here.
  uint64_t Below(uint64_t bound) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(Next()) * bound) >> 64);
  }
  // Returns true with a probability of per_million / 1,000,000. Draws no number if the result is certain.
  bool Chance(uint32_t per_million) {
    if (per_million == 0) return false;
    return per_million >= kMillion || Below(kMillion) < per_million;
  }

 private:
  uint64_t state_;
};

}  // namespace sluice::softdc::sim

#endif  // SLUICE_TRANSPORT_SOFTDC_SIM_RANDOM_H_
