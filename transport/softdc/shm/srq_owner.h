// SPDX-License-Identifier: Apache-2.0
//
// SrqOwner: the receiving process's side of a shared receive queue. Posts WQEs, frees them when their
// completion was polled, and reposts WQEs that a dead sender held.
//
// Ownership     The caller owns the memory, which must outlive the object.
// Threads       Not thread-safe: the SRQ lock of the caller covers every call.
// Errors        Indices from peers are checked here. A peer cannot make the owner access memory outside its
//               own tables or loop without end. A broken peer that overwrites the shared words can still
//               corrupt the contents of this SRQ, but it has the receive buffers of the owner mapped anyway.
#ifndef SLUICE_TRANSPORT_SOFTDC_SHM_SRQ_OWNER_H_
#define SLUICE_TRANSPORT_SOFTDC_SHM_SRQ_OWNER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "transport/softdc/shm/srq_area.h"

namespace sluice::softdc::shm {

class SrqOwner {
 public:
  // capacity: a power of two in [kMinSrqCapacity, kMaxSrqCapacity]. max_sge in [1, kMaxSrqSge].
  static constexpr size_t Bytes(uint32_t capacity, uint32_t max_sge) {
    return internal::SrqBytes(capacity, max_sge);
  }

  // Creates an empty SRQ. Returns nullopt if the shape is out of range, or the memory is too small or not
  // aligned. Allocates the private table; no other call allocates it.
  static std::optional<SrqOwner> Create(void* base, size_t size_bytes, uint32_t srq_id,
                                        uint32_t capacity, uint32_t max_sge);

  // Writes a WQE. Senders see it at the next Ring(). Returns false without effect if the SRQ is full (man
  // ibv_post_srq_recv: ENOMEM) or sges.size() > max_sge (EINVAL). A WQE without SGE has length 0.
  bool Post(std::span<const Sge> sges, uint64_t wr_id) {
    if (full() || sges.size() > max_sge_) return false;
    if (sges.size() == 1) return PostOne(sges[0], wr_id);
    const uint32_t index = FreeIndex();
    DescribeInTable(sges, index, wr_id);
    WriteSlot(index);
    return true;
  }
  // Does the same for one SGE, which is stored in the slot itself if it fits.
  bool PostOne(const Sge& sge, uint64_t wr_id) {
    if (full()) return false;
    const uint32_t index = FreeIndex();
    if (sge.offset <= internal::kMaxSlotOffset && sge.key <= internal::kMaxSlotKey) {
      Wqe& wqe = wqes_[index];
      wqe.wr_id = wr_id;
      wqe.place = uint64_t{sge.key} << internal::kOffsetBits | sge.offset;
      wqe.word = uint64_t{sge.length} << 32 | index;
    } else {
      DescribeInTable({&sge, 1}, index, wr_id);
    }
    WriteSlot(index);
    return true;
  }
  // Makes all WQEs posted since the last Ring() visible to senders.
  void Ring();

  // Frees the index of a WQE whose CQE was polled, and returns its wr_id. Returns nullopt if no such WQE is
  // outstanding: the CQE is invalid, and the caller must drop and count it.
  std::optional<uint64_t> Complete(uint32_t wqe_index) {
    if (wqe_index >= used_) return std::nullopt;
    Wqe& wqe = wqes_[wqe_index];
    if (wqe.ticket == kNoTicket) return std::nullopt;
    wqe.ticket = kNoTicket;
    free_[free_count_++] = wqe_index;
    return wqe.wr_id;
  }

  // Posts a WQE again that a sender claimed and returned unused (a CQE of kCqeUnused). It goes behind the
  // others and keeps its wr_id and SGEs. Visible at the next Ring(). Returns false if no such WQE is
  // outstanding.
  bool Repost(uint32_t wqe_index);

  // Takes the oldest WQE as a sender does, for a delivery inside this process. Returns nullopt if no WQE is
  // posted. The WQE stays outstanding until Complete or Repost, and Repair ignores it. Sets *limit_reached to
  // whether this call reached the limit.
  std::optional<uint32_t> Take(bool* limit_reached);
  // Pieces copies the SGEs of an outstanding WQE to out and returns the number written. WrId returns its
  // wr_id.
  uint32_t Pieces(uint32_t wqe_index, std::span<Sge> out) const;
  uint64_t WrId(uint32_t wqe_index) const { return wqes_[wqe_index].wr_id; }

  // Arms the limit (man ibv_modify_srq): one event when fewer than `limit` WQEs are left. 0 disarms. Returns
  // true if fewer are left already, so that the event is due now.
  bool ArmLimit(uint32_t limit);
  // Returns true once if the limit is reached. For the owner after the death of a sender, which may have made
  // the newest claim and died before it checked the limit.
  bool LookAtLimit();
  // Returns true once if the claim of a sender has reached the limit.
  bool CollectLimit();
  // Returns the armed limit, or 0 if it was reached.
  uint32_t armed_limit() const;

  // Appends each outstanding wr_id, in no guaranteed order, and empties the private table. For destruction,
  // when no sender can reach the area.
  void DrainTo(std::vector<uint64_t>* wr_ids);

  // Returns the number of WQEs that a sender could claim now, as SRQ limit events count them. Returns 0 if a
  // peer corrupted the words.
  uint32_t Unclaimed() const;
  uint32_t outstanding() const { return used_ - free_count_; }
  uint32_t capacity() const { return capacity_; }
  uint32_t max_sge() const { return max_sge_; }
  uint32_t srq_id() const { return srq_id_; }

  // For repair.h. LoadClaim returns the next ticket to be claimed, at most `posted`. TicketOf returns the
  // ticket of an outstanding WQE.
  uint64_t LoadClaim() const;
  std::optional<uint64_t> TicketOf(uint32_t wqe_index) const;

 private:
  static constexpr uint64_t kNoTicket = UINT64_MAX;
  static constexpr uint64_t kTakenHere = UINT64_MAX - 1;
  struct Wqe {
    uint64_t ticket;  // kNoTicket: the index is free; kTakenHere: by Take()
    uint64_t wr_id;
    // The two words of the slot, kept for Repost, which must not trust shared memory.
    uint64_t place;
    uint64_t word;
  };

  SrqOwner(internal::SrqHead* area, uint32_t srq_id, uint32_t capacity, uint32_t max_sge);
  bool full() const { return free_count_ == 0 && used_ == capacity_; }
  // Returns the index that was freed last, or an index that was never used. The SRQ must not be full.
  uint32_t FreeIndex() { return free_count_ != 0 ? free_[--free_count_] : used_++; }
  // Overwrites the slot of ticket posted_ - capacity. Senders may be reading slots, but the overwrite is safe
  // for this reason. At most capacity - 1 WQEs are outstanding here. So at least posted_ - capacity + 1 of
  // the posted_ tickets were consumed, hence claimed, and the overwritten ticket is below `claim`. A sender
  // that still reads its slot has read `claim` before, so its CAS will fail. The words are stored with
  // release and loaded with acquire, so a sender that sees these new words also sees the `claim` behind them.
  void WriteSlot(uint32_t wqe_index) {
    Wqe& wqe = wqes_[wqe_index];
    wqe.ticket = posted_;
    internal::SrqSlot& slot = area_->slots[posted_ & (capacity_ - 1)];
    slot.place.store(wqe.place, std::memory_order_release);
    SOFTDC_KILL_POINT(kSlotHalfWritten);
    slot.wqe.store(wqe.word, std::memory_order_release);
    ++posted_;
  }
  void DescribeInTable(std::span<const Sge> sges, uint32_t wqe_index, uint64_t wr_id);

  internal::SrqHead* area_;
  Sge* sges_;
  uint32_t srq_id_;
  uint32_t capacity_;
  uint32_t max_sge_;
  uint64_t posted_ = 0;  // value of `posted` after the next Ring()
  // Tables of `capacity_` entries. Entries from `used_` on were never written, so that the kernel allocates pages
  // only for as many WQEs as are outstanding at one time.
  std::unique_ptr<Wqe[]> wqes_;
  std::unique_ptr<uint32_t[]> free_;  // a stack of free_count_
  uint32_t free_count_ = 0;
  uint32_t used_ = 0;
};

}  // namespace sluice::softdc::shm

#endif  // SLUICE_TRANSPORT_SOFTDC_SHM_SRQ_OWNER_H_
