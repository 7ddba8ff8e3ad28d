// SPDX-License-Identifier: Apache-2.0
//
// The layout of an SRQ in the arena of its owner. Used by srq_owner.h and srq_claimer.h only.
//
//   head | posted | claim | slot[capacity] | sge[capacity][max_sge]
//
// A ticket is the position of a posted WQE over the whole life of the SRQ: a u64 that never wraps. Its slot
// is ticket % capacity. Only the owner writes `posted`. `claim` is the next ticket to take; senders move it
// by CAS. Tickets in [claim, posted) can be taken. The owner arms `limit`, and the process that finds fewer
// WQEs left than `limit` takes it. `limit` shares a line with constants, so reading it costs nothing.
//
// A slot is two words, so four WQEs share a cache line. For a WQE of one SGE, a sender needs only the slot:
//   word 0: bits 63..40 key       39..0 offset
//   word 1: bits 63..32 length    31..24 sge_count (0: the SGE is in this slot)   23..0 wqe_index
// Other WQEs (several SGEs, or an SGE whose key or offset is too wide) have their SGEs in the table at
// wqe_index. The owner may overwrite a row of the table only while it owns that WQE. A sender therefore reads
// the row after it has won the claim.
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

// Location of a piece of a receive buffer: a registered region of the owner, and a byte range in it. The user
// of the piece looks the key up at each use, so that it does not write to a deregistered region.
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
inline constexpr uint32_t kLimitReached = UINT32_MAX;  // an event of the owner is due
inline constexpr uint32_t kWqeIndexMask = (1u << 24) - 1;

struct SrqSlot {
  std::atomic<uint64_t> place;
  std::atomic<uint64_t> wqe;
};
static_assert(sizeof(SrqSlot) == 16);

struct SrqHead {
  std::atomic<uint32_t> magic;  // written last, so that an incomplete area is refused
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

// Called by the process that has moved `claim` to this value, or has armed the limit. Returns true if too few
// WQEs are left and this caller must report it. The load is seq_cst, like the CAS on `claim` and the store
// that arms the limit: the later of the two sees the earlier.
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
