// SPDX-License-Identifier: Apache-2.0
//
// Tally: a number that one thread counts and any thread reads.
//
// Threads       Add(), Set(): one thread at a time, with a happens-before edge between two calls. value(): any; it may return an older
//               value.
// Cost          An addition in memory: no locked instruction, no fence.
#ifndef SLUICE_TRANSPORT_BASE_TALLY_H_
#define SLUICE_TRANSPORT_BASE_TALLY_H_

#include <atomic>
#include <cstdint>

namespace sluice::base {

class Tally {
 public:
  void Add(uint64_t more = 1) {
#ifdef __x86_64__
    // One instruction without a lock prefix. GCC compiles the line below to three instructions.
    __asm__("addq %1, %0" : "+m"(value_) : "er"(more) : "cc");
#else
    Set(value() + more);
#endif
  }
  void Set(uint64_t value) { value_.store(value, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

}  // namespace sluice::base

#endif  // SLUICE_TRANSPORT_BASE_TALLY_H_
