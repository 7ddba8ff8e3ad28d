// SPDX-License-Identifier: Apache-2.0
//
// Random: randomness as a constructor argument, so that a run can be repeated from its seed.
#ifndef SLUICE_TRANSPORT_BASE_RANDOM_H_
#define SLUICE_TRANSPORT_BASE_RANDOM_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace sluice::base {

class Random {
 public:
  virtual ~Random() = default;

  virtual uint64_t Next64() = 0;

  // Returns a number in [0, bound). `bound` must not be 0. The bias is below bound / 2^64.
  uint64_t Below(uint64_t bound) {
    __extension__ using Wide = unsigned __int128;  // not ISO C++; silences -Wpedantic
    return static_cast<uint64_t>((static_cast<Wide>(Next64()) * bound) >> 64);
  }

  uint32_t NonZero32() {
    uint32_t value = 0;
    while (value == 0) value = static_cast<uint32_t>(Next64());
    return value;
  }
};

// Unpredictable numbers from the kernel (man getrandom), fetched in blocks. Suitable for keys.
//
// Threads       One thread.
class SystemRandom final : public Random {
 public:
  uint64_t Next64() override;

 private:
  std::array<uint64_t, 32> block_;
  size_t left_ = 0;
};

// Repeatable numbers from a seed (SplitMix64), for simulations, tests and workloads. Not suitable for keys.
//
// Threads       One thread.
class SeededRandom final : public Random {
 public:
  explicit SeededRandom(uint64_t seed) : state_(seed) {}
  uint64_t Next64() override;

 private:
  uint64_t state_;
};

}  // namespace sluice::base

#endif  // SLUICE_TRANSPORT_BASE_RANDOM_H_
