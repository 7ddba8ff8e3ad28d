// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/shm/srq_owner.h"

#include <algorithm>

#include "transport/softdc/shm/kill_point.h"

namespace sluice::softdc::shm {

using internal::SrqHead;

std::optional<SrqOwner> SrqOwner::Create(void* base, size_t size_bytes, uint32_t srq_id,
                                         uint32_t capacity, uint32_t max_sge) {
  if (base == nullptr || !IsLineAligned(base)) return std::nullopt;
  if (!internal::ValidSrqShape(srq_id, capacity, max_sge)) return std::nullopt;
  if (size_bytes < Bytes(capacity, max_sge)) return std::nullopt;
  auto* area = static_cast<SrqHead*>(base);
  area->magic.store(0, std::memory_order_relaxed);
  area->srq_id = srq_id;
  area->capacity = capacity;
  area->max_sge = max_sge;
  area->limit.store(0, std::memory_order_relaxed);
  area->posted.store(0, std::memory_order_relaxed);
  area->claim.store(0, std::memory_order_relaxed);
  area->magic.store(internal::kSrqMagic, std::memory_order_release);
  return SrqOwner(area, srq_id, capacity, max_sge);
}

SrqOwner::SrqOwner(SrqHead* area, uint32_t srq_id, uint32_t capacity, uint32_t max_sge)
    : area_(area),
      sges_(area->sges()),
      srq_id_(srq_id),
      capacity_(capacity),
      max_sge_(max_sge),
      wqes_(std::make_unique_for_overwrite<Wqe[]>(capacity)),
      free_(std::make_unique_for_overwrite<uint32_t[]>(capacity)) {}

void SrqOwner::DescribeInTable(std::span<const Sge> sges, uint32_t wqe_index, uint64_t wr_id) {
  // A WQE without SGE has length 0 and needs no row.
  std::copy(sges.begin(), sges.end(), sges_ + size_t{wqe_index} * max_sge_);
  wqes_[wqe_index].wr_id = wr_id;
  wqes_[wqe_index].place = 0;
  wqes_[wqe_index].word = uint64_t{sges.size()} << 24 | wqe_index;
}

void SrqOwner::Ring() {
  SOFTDC_KILL_POINT(kSlotWritten);
  area_->posted.store(posted_, std::memory_order_release);
  SOFTDC_KILL_POINT(kPosted);
}

bool SrqOwner::Repost(uint32_t wqe_index) {
  if (wqe_index >= used_ || wqes_[wqe_index].ticket == kNoTicket) return false;
  WriteSlot(wqe_index);
  return true;
}

std::optional<uint32_t> SrqOwner::Take(bool* limit_reached) {
  uint64_t head = area_->claim.load(std::memory_order_acquire);
  for (;;) {
    // WQEs that were posted without Ring() cannot be taken yet.
    const uint64_t shown = area_->posted.load(std::memory_order_relaxed);
    if (shown == head || shown - head > capacity_) return std::nullopt;
    const uint64_t word = area_->slots[head & (capacity_ - 1)].wqe.load(std::memory_order_relaxed);
    const uint32_t index = static_cast<uint32_t>(word) & internal::kWqeIndexMask;
    if (!area_->claim.compare_exchange_strong(head, head + 1, std::memory_order_seq_cst,
                                              std::memory_order_acquire)) {
      continue;
    }
    // A peer corrupted the slot.
    if (index >= used_ || wqes_[index].ticket != head) return std::nullopt;
    wqes_[index].ticket = kTakenHere;
    *limit_reached = internal::TakeLimit(area_, head + 1);
    return index;
  }
}

uint32_t SrqOwner::Pieces(uint32_t wqe_index, std::span<Sge> out) const {
  const Wqe& wqe = wqes_[wqe_index];
  const auto count = static_cast<uint32_t>(wqe.word >> 24) & 0xff;
  if (count != 0) {
    const size_t used = std::min<size_t>(count, out.size());
    std::copy_n(sges_ + size_t{wqe_index} * max_sge_, used, out.begin());
    return static_cast<uint32_t>(used);
  }
  if (out.empty()) return 0;
  out[0] = {.offset = wqe.place & internal::kMaxSlotOffset,
            .key = static_cast<uint32_t>(wqe.place >> internal::kOffsetBits),
            .length = static_cast<uint32_t>(wqe.word >> 32)};
  return 1;
}

bool SrqOwner::ArmLimit(uint32_t limit) {
  area_->limit.store(limit, std::memory_order_seq_cst);
  return LookAtLimit();
}

bool SrqOwner::LookAtLimit() {
  return internal::TakeLimit(area_, area_->claim.load(std::memory_order_seq_cst)) && CollectLimit();
}

bool SrqOwner::CollectLimit() {
  uint32_t reached = internal::kLimitReached;
  return area_->limit.compare_exchange_strong(reached, 0, std::memory_order_acq_rel,
                                              std::memory_order_relaxed);
}

uint32_t SrqOwner::armed_limit() const {
  const uint32_t limit = area_->limit.load(std::memory_order_relaxed);
  return limit == internal::kLimitReached ? 0 : limit;
}

void SrqOwner::DrainTo(std::vector<uint64_t>* wr_ids) {
  for (uint32_t i = 0; i < used_; ++i) {
    if (const auto wr_id = Complete(i)) wr_ids->push_back(*wr_id);
  }
}

uint32_t SrqOwner::Unclaimed() const {
  const uint64_t shown = area_->posted.load(std::memory_order_relaxed);
  const uint64_t unclaimed = shown - area_->claim.load(std::memory_order_relaxed);
  return unclaimed <= capacity_ ? static_cast<uint32_t>(unclaimed) : 0;
}

uint64_t SrqOwner::LoadClaim() const {
  return std::min(area_->claim.load(std::memory_order_acquire), posted_);
}

std::optional<uint64_t> SrqOwner::TicketOf(uint32_t wqe_index) const {
  if (wqe_index >= used_ || wqes_[wqe_index].ticket >= kTakenHere) return std::nullopt;
  return wqes_[wqe_index].ticket;
}

}  // namespace sluice::softdc::shm
