// SPDX-License-Identifier: Apache-2.0
//
// The layout of an SRQ in the owner's arena. Used by srq_owner.h and srq_claimer.h only.
//
//   head | posted | claim | slot[capacity] | sge[capacity][max_sge]
//
// A ticket is the position of a posted WQE in the SRQ's whole life: u64, never wraps; its slot is
// ticket % capacity. `posted` is written by the owner alone; `claim` is the next ticket to take,
// moved by the senders' CAS. Tickets in [claim, posted) are free for the taking. `limit` is armed by
// the owner and taken by the process that finds fewer WQEs left than that; it shares a line with
// constants, so looking at it costs nothing.
//
// A slot is two words, so four WQEs share a cache line, and a sender needs nothing else for a WQE
// of one SGE:
//   word 0: bits 63..40 key       39..0 offset
//   word 1: bits 63..32 length    31..24 sge_count (0: the SGE is in this slot)   23..0 wqe_index
// Other WQEs (several SGEs, or one whose key or offset is too wide) have their SGEs in the table at
// wqe_index. The owner may overwrite a table row only while that WQE is its own, so a sender reads the
// row after it has won the claim.
#ifndef SLUICE_TRANSPORT_SOFTDC_SHM_SRQ_AREA_H_
#define SLUICE_TRANSPORT_SOFTDC_SHM_SRQ_AREA_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transport/softdc/shm/area.h"
#include "transport/softdc/shm/kill_point.h"

namespace sluice::softdc::shm {

inline constexpr uint32_t kMinSrqCapacity = 2;
inline constexpr uint32_t kMaxSrqCapacity = 1u << 16;
inline constexpr uint32_t kMaxSrqSge = 255;

// Where one piece of a receive buffer is: a registered region of the owner, and bytes in it. Whoever
// uses it looks the key up at that moment, so a region that was deregistered is not written to.
struct Sge {
  uint64_t offset = 0;  // from the start of the region
  uint32_t key = 0;     // lkey; 0: the owner posted a key that covers nothing
  uint32_t length = 0;

  bool operator==(const Sge&) const = default;
};
static_assert(sizeof(Sge) == 16);

namespace internal {

inline constexpr uint32_t kSrqMagic = 0x51525331;  // "1SRQ": the version is part of it
inline constexpr int kOffsetBits = 40;
inline constexpr uint64_t kMaxSlotOffset = (uint64_t{1} << kOffsetBits) - 1;
inline constexpr uint32_t kMaxSlotKey = (1u << 24) - 1;
inline constexpr uint32_t kLimitReached = UINT32_MAX;  // the owner owes its user an event
inline constexpr uint32_t kWqeIndexMask = (1u << 24) - 1;

struct SrqSlot {
  std::atomic<uint64_t> place;
  std::atomic<uint64_t> wqe;
};
static_assert(sizeof(SrqSlot) == 16);

struct SrqHead {
  std::atomic<uint32_t> magic;  // written last, so a half-made area is refused
  uint32_t srq_id;
  uint32_t capacity;
  uint32_t max_sge;
  std::atomic<uint32_t> limit;  // 0, the armed limit, or kLimitReached
  alignas(kLineBytes) std::atomic<uint64_t> posted;
  alignas(kLineBytes) std::atomic<uint64_t> claim;
  alignas(kLineBytes) SrqSlot slots[];

  Sge* sges() { return reinterpret_cast<Sge*>(slots + capacity); }
};
static_assert(sizeof(SrqHead) == 3 * kLineBytes);
static_assert(sizeof(SrqHead) % alignof(SrqSlot) == 0);

// Whoever has moved `claim` to this, or has armed the limit, looks here. True: too few WQEs are left,
// and this caller is the one to say so. seq_cst as the CAS on `claim` and the owner's arming: of the
// two, the later one sees the other.
inline bool TakeLimit(SrqHead* area, uint64_t claim) {
  uint32_t limit = area->limit.load(std::memory_order_seq_cst);
  if (limit == 0 || limit == kLimitReached) return false;
  const auto left = static_cast<int64_t>(area->posted.load(std::memory_order_acquire) - claim);
  if (left >= static_cast<int64_t>(limit) ||
      !area->limit.compare_exchange_strong(limit, kLimitReached, std::memory_order_acq_rel,
                                           std::memory_order_relaxed)) {
    return false;
  }
  SOFTDC_KILL_POINT(kLimitTaken);
  return true;
}

constexpr bool ValidSrqShape(uint32_t srq_id, uint32_t capacity, uint32_t max_sge) {
  return srq_id < (1u << 20) && IsPowerOfTwo(capacity) && capacity >= kMinSrqCapacity &&
         capacity <= kMaxSrqCapacity && max_sge >= 1 && max_sge <= kMaxSrqSge;
}

constexpr size_t SrqBytes(uint32_t capacity, uint32_t max_sge) {
  return RoundUpToLine(sizeof(SrqHead) + size_t{capacity} * sizeof(SrqSlot) +
                       size_t{capacity} * max_sge * sizeof(Sge));
}

}  // namespace internal
}  // namespace sluice::softdc::shm

#endif  // SLUICE_TRANSPORT_SOFTDC_SHM_SRQ_AREA_H_
