// SPDX-License-Identifier: Apache-2.0
//
// The layout of an SRQ in the owner's arena. Used by srq_owner.h and srq_claimer.h only.
//
//   head | posted | claim | slot[capacity] | sge[capacity][max_sge]
//
// A ticket is the position of a posted WQE in the SRQ's whole life: u64, never wraps; its slot is
// ticket % capacity. `posted` is written by the owner alone; `claim` is the next ticket to take,
// moved by the senders' CAS. Tickets in [claim, posted) are free for the taking.
//
// A slot is two words, so four WQEs share a cache line, and a sender needs nothing else for a WQE
// of one SGE:
//   word 0: bits 63..44 segment   43..0 offset
//   word 1: bits 63..32 length    31..24 sge_count (0: the SGE is in this slot)   23..0 wqe_index
// Other WQEs (several SGEs, or one whose segment or offset is too wide) have their SGEs in the
// table at wqe_index. The owner may overwrite a table row only while that WQE is its own, so a
// sender reads the row after it has won the claim.
#ifndef SLUICE_TRANSPORT_SOFTDC_SHM_SRQ_AREA_H_
#define SLUICE_TRANSPORT_SOFTDC_SHM_SRQ_AREA_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transport/softdc/shm/area.h"

namespace sluice::softdc::shm {

inline constexpr uint32_t kMinSrqCapacity = 2;
inline constexpr uint32_t kMaxSrqCapacity = 1u << 16;
inline constexpr uint32_t kMaxSrqSge = 255;

// Where one piece of a receive buffer is: a segment of the owner (an index the Link resolves), and
// bytes in it.
struct Sge {
  uint64_t offset = 0;
  uint32_t segment = 0;
  uint32_t length = 0;

  bool operator==(const Sge&) const = default;
};
static_assert(sizeof(Sge) == 16);

namespace internal {

inline constexpr uint32_t kSrqMagic = 0x51525331;  // "1SRQ": the version is part of it
inline constexpr int kOffsetBits = 44;
inline constexpr uint64_t kMaxSlotOffset = (uint64_t{1} << kOffsetBits) - 1;
inline constexpr uint32_t kMaxSlotSegment = (1u << 20) - 1;
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
  alignas(kLineBytes) std::atomic<uint64_t> posted;
  alignas(kLineBytes) std::atomic<uint64_t> claim;
  alignas(kLineBytes) SrqSlot slots[];

  Sge* sges() { return reinterpret_cast<Sge*>(slots + capacity); }
};
static_assert(sizeof(SrqHead) == 3 * kLineBytes);
static_assert(sizeof(SrqHead) % alignof(SrqSlot) == 0);

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
