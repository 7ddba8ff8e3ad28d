// SPDX-License-Identifier: Apache-2.0
//
// Way: how message_cost moves messages. Run() moves a batch of them, there and back where that is what is counted.
#ifndef SLUICE_BENCHMARKS_WAY_H_
#define SLUICE_BENCHMARKS_WAY_H_

#include <cstdint>

namespace sluice::benchmarks {

inline constexpr uint32_t kMessageBytes = 64;
inline constexpr uint32_t kMaxBatch = 64;

class Way {
 public:
  virtual ~Way() = default;
  virtual void Run(uint32_t batch) = 0;
  // Runs as it will when it is counted.
  virtual bool Ready() { return true; }
};

}  // namespace sluice::benchmarks

#endif  // SLUICE_BENCHMARKS_WAY_H_
