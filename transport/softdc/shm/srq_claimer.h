// SPDX-License-Identifier: Apache-2.0
//
// SrqClaimer: a sending process's side of the SRQ of another process. Takes receive WQEs, several per call.
//
// Threads       Not thread-safe: the lock of the Link covers every call. It also covers a claim together with
//               the publishing of each of its WQEs (claim_journal.h: one open claim per Link). Lock-free
//               towards other processes: Claim tries at most kMaxClaimAttempts times and never waits.
//
// Order of use, per doorbell:  CqeProducer::CanPublish(n) -> Claim(n) -> for each WQE taken: copy, Publish.
// To return a WQE unused, publish a CQE with kCqeUnused for it.
#ifndef SLUICE_TRANSPORT_SOFTDC_SHM_SRQ_CLAIMER_H_
#define SLUICE_TRANSPORT_SOFTDC_SHM_SRQ_CLAIMER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/softdc/shm/claim_journal.h"
#include "transport/softdc/shm/kill_point.h"
#include "transport/softdc/shm/srq_area.h"

namespace sluice::softdc::shm {

struct ClaimedWqe {
  uint32_t wqe_index = 0;  // goes into the CQE
  uint32_t sge_count = 0;  // at least 1
  Sge sge;                 // the first SGE; SrqClaimer::Sges returns all
};

enum class ClaimStatus {
  kOk,         // count >= 1 WQEs taken, fewer than wanted if the queue has no more
  kEmpty,      // no WQE is posted: RNR
  kContended,  // lost kMaxClaimAttempts races; try later
  kBroken,     // the queue of the owner is corrupt: treat the link as dead
};

struct ClaimResult {
  ClaimStatus status = ClaimStatus::kEmpty;
  uint32_t count = 0;
  // This claim reached the limit: the caller notifies the firmware of the owner.
  bool limit_reached = false;
};

class SrqClaimer {
 public:
  static constexpr int kMaxClaimAttempts = 64;

  // Returns nullopt if the memory is not an SRQ of SrqOwner::Create, or the SRQ does not fit into size_bytes.
  static std::optional<SrqClaimer> Attach(void* base, size_t size_bytes) {
    if (base == nullptr || !IsLineAligned(base) || size_bytes < sizeof(internal::SrqHead)) {
      return std::nullopt;
    }
    auto* area = static_cast<internal::SrqHead*>(base);
    if (area->magic.load(std::memory_order_acquire) != internal::kSrqMagic) return std::nullopt;
    // Copies the fields, so that the checked and the used values are the same.
    SrqClaimer claimer(area);
    if (!internal::ValidSrqShape(claimer.srq_id_, claimer.capacity_, claimer.max_sge_) ||
        size_bytes < internal::SrqBytes(claimer.capacity_, claimer.max_sge_)) {
      return std::nullopt;
    }
    return claimer;
  }

  // Takes up to min(want, wqes.size(), kMaxClaim) WQEs and describes them in wqes. want >= 1.
  ClaimResult Claim(uint32_t want, ClaimJournal& journal, std::span<ClaimedWqe> wqes) {
    want = std::min({want, static_cast<uint32_t>(wqes.size()), kMaxClaim, capacity_});
    uint64_t head = area_->claim.load(std::memory_order_acquire);
    bool intent_stands = false;
    ClaimStatus outcome = ClaimStatus::kContended;
    for (int attempt = 0; attempt < kMaxClaimAttempts; ++attempt) {
      auto available = static_cast<int64_t>(posted_seen_ - head);
      if (available < static_cast<int64_t>(want)) {
        posted_seen_ = area_->posted.load(std::memory_order_acquire);
        available = static_cast<int64_t>(posted_seen_ - head);
      }
      if (available <= 0) {
        outcome = ClaimStatus::kEmpty;
        break;
      }
      const auto count = static_cast<uint32_t>(std::min<int64_t>(want, available));
      // Slots are read before the CAS. After the CAS, a slot may change at any time: it is then free for the
      // WQE with ticket + capacity. If a slot changed before the CAS, the CAS fails.
      for (uint32_t i = 0; i < count; ++i) wqes[i] = ReadSlot(head + i);
      journal.Write(srq_id_, head, count);
      intent_stands = true;
      SOFTDC_KILL_POINT(kIntentWritten);
      if (area_->claim.compare_exchange_strong(head, head + count, std::memory_order_seq_cst,
                                               std::memory_order_acquire)) {
        SOFTDC_KILL_POINT(kWqeClaimed);
        __builtin_prefetch(&area_->slots[(head + count) & (capacity_ - 1)]);
        for (uint32_t i = 0; i < count; ++i) {
          if (!Settle(&wqes[i])) return {.status = ClaimStatus::kBroken, .count = 0};
        }
        return {.status = ClaimStatus::kOk,
                .count = count,
                .limit_reached = internal::TakeLimit(area_, head + count)};
      }
      SOFTDC_KILL_POINT(kClaimLost);
    }
    // A journal line that is not cleared would cover tickets of other processes. It would defer the repair of
    // these tickets until the next claim.
    if (intent_stands) {
      journal.Clear();
      SOFTDC_KILL_POINT(kIntentCleared);
    }
    return {.status = outcome, .count = 0};
  }

  // Claims one WQE.
  [[gnu::always_inline]] ClaimResult ClaimOne(ClaimJournal& journal, ClaimedWqe* wqe) {
    uint64_t head = area_->claim.load(std::memory_order_acquire);
    if (static_cast<int64_t>(posted_seen_ - head) < 1) {
      posted_seen_ = area_->posted.load(std::memory_order_acquire);
      if (static_cast<int64_t>(posted_seen_ - head) < 1) return {.status = ClaimStatus::kEmpty};
    }
    *wqe = ReadSlot(head);
    journal.Write(srq_id_, head, 1);
    SOFTDC_KILL_POINT(kIntentWritten);
    if (!area_->claim.compare_exchange_strong(head, head + 1, std::memory_order_seq_cst,
                                              std::memory_order_acquire)) [[unlikely]] {
      SOFTDC_KILL_POINT(kClaimLost);
      return Claim(1, journal, {wqe, 1});  // the journal is cleared at the end of the doorbell
    }
    SOFTDC_KILL_POINT(kWqeClaimed);
    __builtin_prefetch(&area_->slots[(head + 1) & (capacity_ - 1)]);
    if (!Settle(wqe)) return {.status = ClaimStatus::kBroken};
    return {.status = ClaimStatus::kOk,
            .count = 1,
            .limit_reached = internal::TakeLimit(area_, head + 1)};
  }

  // Copies the SGEs of a claimed WQE to out, at most out.size(). Returns the number of SGEs written. Valid
  // until the WQE is published. The user of an SGE checks its key, offset and length against the registered
  // regions of the owner.
  uint32_t Sges(const ClaimedWqe& wqe, std::span<Sge> out) const {
    if (out.empty()) return 0;
    out[0] = wqe.sge;
    const auto count = std::min(wqe.sge_count, static_cast<uint32_t>(out.size()));
    for (uint32_t i = 1; i < count; ++i) out[i] = Row(wqe.wqe_index)[i];
    return count;
  }

  // Returns the number of WQEs that could be claimed now, for SRQ limit events. Returns 0 if the words are
  // invalid.
  uint32_t Unclaimed() const {
    const uint64_t claim = area_->claim.load(std::memory_order_acquire);
    const uint64_t unclaimed = area_->posted.load(std::memory_order_relaxed) - claim;
    return unclaimed <= capacity_ ? static_cast<uint32_t>(unclaimed) : 0;
  }

  uint32_t srq_id() const { return srq_id_; }
  uint32_t capacity() const { return capacity_; }
  uint32_t max_sge() const { return max_sge_; }

 private:
  explicit SrqClaimer(internal::SrqHead* area)
      : area_(area),
        srq_id_(area->srq_id),
        capacity_(area->capacity),
        max_sge_(area->max_sge),
        sges_(reinterpret_cast<const Sge*>(area->slots + capacity_)) {}

  // Acquire on both words: see SrqOwner::WriteSlot.
  ClaimedWqe ReadSlot(uint64_t ticket) const {
    const internal::SrqSlot& slot = area_->slots[ticket & (capacity_ - 1)];
    const uint64_t place = slot.place.load(std::memory_order_acquire);
    const uint64_t word = slot.wqe.load(std::memory_order_acquire);
    ClaimedWqe wqe;
    wqe.wqe_index = static_cast<uint32_t>(word) & internal::kWqeIndexMask;
    wqe.sge_count = static_cast<uint32_t>(word) >> 24;  // 0, in the slot, until Settle
    wqe.sge = {.offset = place & internal::kMaxSlotOffset,
               .key = static_cast<uint32_t>(place >> internal::kOffsetBits),
               .length = static_cast<uint32_t>(word >> 32)};
    return wqe;
  }

  // Call after the claim succeeded, when the sender may read the row of the table. Returns false if the
  // contents of the slot are invalid.
  bool Settle(ClaimedWqe* wqe) const {
    if (wqe->wqe_index >= capacity_ || wqe->sge_count > max_sge_) return false;
    if (wqe->sge_count == 0) {
      wqe->sge_count = 1;
    } else {
      wqe->sge = Row(wqe->wqe_index)[0];
    }
    return true;
  }

  const Sge* Row(uint32_t wqe_index) const { return sges_ + size_t{wqe_index} * max_sge_; }

  internal::SrqHead* area_;
  uint32_t srq_id_;
  uint32_t capacity_;
  uint32_t max_sge_;
  const Sge* sges_;
  uint64_t posted_seen_ = 0;
};

}  // namespace sluice::softdc::shm

#endif  // SLUICE_TRANSPORT_SOFTDC_SHM_SRQ_CLAIMER_H_
