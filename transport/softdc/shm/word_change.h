// SPDX-License-Identifier: Apache-2.0
//
// WordChange: an atomic operation on one word of registered memory: compare-and-swap or fetch-and-add. A
// process that has the word mapped applies it: the sender if the memory is shared, otherwise the owner
// (bounce.h).
#ifndef SLUICE_TRANSPORT_SOFTDC_SHM_WORD_CHANGE_H_
#define SLUICE_TRANSPORT_SOFTDC_SHM_WORD_CHANGE_H_

#include <atomic>
#include <cstdint>

namespace sluice::softdc::shm {

struct WordChange {
  uint64_t compares = 0;  // 1: compare-and-swap; 0: fetch-and-add
  uint64_t compare_add = 0;
  uint64_t swap = 0;

  // Applies the operation atomically and returns the old value. The address must be aligned.
  uint64_t ApplyTo(uint64_t* at) const {
    std::atomic_ref word(*at);
    if (compares == 0) return word.fetch_add(compare_add);
    uint64_t before = compare_add;
    word.compare_exchange_strong(before, swap);
    return before;
  }
};
static_assert(sizeof(WordChange) == 24, "it crosses processes");

}  // namespace sluice::softdc::shm

#endif  // SLUICE_TRANSPORT_SOFTDC_SHM_WORD_CHANGE_H_
