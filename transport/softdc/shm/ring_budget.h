// SPDX-License-Identifier: Apache-2.0
//
// RingBudget: sets the size of the completion ring of the next sender, so that the total size of all rings of
// a context is limited for any number of senders. With few senders, rings are as large as their CQ needs, up
// to an eighth of kWideRingBytes. With many senders, later rings are smaller, down to kNarrowCapacity. A
// sender whose ring is smaller than its CQ waits when the ring is full, instead of overrunning the CQ.
//
// Threads       Any.
#ifndef SLUICE_TRANSPORT_SOFTDC_SHM_RING_BUDGET_H_
#define SLUICE_TRANSPORT_SOFTDC_SHM_RING_BUDGET_H_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <mutex>

#include "transport/softdc/shm/arena.h"
#include "transport/softdc/shm/cqe_ring.h"

namespace sluice::softdc::shm {

// Total size of all rings larger than kNarrowCapacity. Together with 2,000 narrow rings, this is less than
// 256 MiB.
inline constexpr uint64_t kWideRingBytes = uint64_t{96} << 20;
inline constexpr uint32_t kNarrowCapacity = 1024;  // CQEs; 72 KiB

class RingBudget {
 public:
  static uint64_t Bytes(uint32_t capacity) { return Arena::Rounded(CqeConsumer::Bytes(capacity)); }

  // Returns the capacity of a new ring for which the caller wants `wanted`, a power of two. Call GiveBack
  // when the ring is no longer used.
  uint32_t Take(uint32_t wanted) {
    if (wanted <= kNarrowCapacity) return wanted;
    std::lock_guard lock(mutex_);
    // At most an eighth of the remaining bytes, so that no sender gets all of them.
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
  uint64_t taken_bytes_ = 0;  // by wide rings
};

}  // namespace sluice::softdc::shm

#endif  // SLUICE_TRANSPORT_SOFTDC_SHM_RING_BUDGET_H_
