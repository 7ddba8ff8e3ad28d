// SPDX-License-Identifier: Apache-2.0
//
// RingBudget: how large the completion ring of the next sender may be, so that all rings of a context
// stay within bounds however many senders come. A few senders get all that their CQ can need. Of many,
// the later ones get less, and at last kNarrowCapacity. A sender whose ring is smaller than its CQ waits
// when the ring is full, instead of overrunning the CQ.
//
// Thread-safe.
#ifndef SLUICE_TRANSPORT_SOFTDC_SHM_RING_BUDGET_H_
#define SLUICE_TRANSPORT_SOFTDC_SHM_RING_BUDGET_H_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <mutex>

#include "transport/softdc/shm/arena.h"
#include "transport/softdc/shm/cqe_ring.h"

namespace sluice::softdc::shm {

// Rings wider than kNarrowCapacity share this. With 2,000 narrow ones it comes to less than 256 MiB.
inline constexpr uint64_t kWideRingBytes = uint64_t{96} << 20;
inline constexpr uint32_t kNarrowCapacity = 1024;  // CQEs; 72 KiB

class RingBudget {
 public:
  static uint64_t Bytes(uint32_t capacity) { return Arena::Rounded(CqeConsumer::Bytes(capacity)); }

  // The capacity for one more ring that should have `wanted`, a power of two. Give it back when the ring
  // is not used any more.
  uint32_t Take(uint32_t wanted) {
    if (wanted <= kNarrowCapacity) return wanted;
    std::lock_guard lock(mutex_);
    // An eighth of what is left, so that no sender gets it all.
    const uint64_t entries = (kWideRingBytes - taken_bytes_) / 8 / sizeof(internal::CqeEntry);
    const uint32_t capacity = std::min(wanted, static_cast<uint32_t>(std::bit_floor(entries)));
    if (capacity <= kNarrowCapacity) return kNarrowCapacity;
    taken_bytes_ += Bytes(capacity);
    return capacity;
  }
  void GiveBack(uint32_t capacity) {
    if (capacity <= kNarrowCapacity) return;
    std::lock_guard lock(mutex_);
    taken_bytes_ -= Bytes(capacity);
  }

 private:
  std::mutex mutex_;
  uint64_t taken_bytes_ = 0;  // of wide rings
};

}  // namespace sluice::softdc::shm

#endif  // SLUICE_TRANSPORT_SOFTDC_SHM_RING_BUDGET_H_
