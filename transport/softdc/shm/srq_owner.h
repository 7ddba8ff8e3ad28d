// SPDX-License-Identifier: Apache-2.0
//
// SrqOwner: the receiving process's side of one shared receive queue. Posts WQEs, takes them back
// when their completion was polled, reposts those that a dead sender held.
//
// The memory belongs to the caller and outlives the object. Not thread-safe: the caller's SRQ lock
// covers every call. Indices that peers hand in are checked here; nothing a peer writes can make
// the owner touch memory outside its own tables or loop without end. (A peer that scribbles over
// the shared words can still spoil this SRQ's contents: it has the owner's receive buffers mapped
// anyhow.)
#ifndef SLUICE_TRANSPORT_SOFTDC_SHM_SRQ_OWNER_H_
#define SLUICE_TRANSPORT_SOFTDC_SHM_SRQ_OWNER_H_

#include <cstddef>
#include <cstdint>
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

  // Makes an empty SRQ there. nullopt: the shape is out of range, or the memory too small or not
  // aligned. Allocates the private table; no other call does.
  static std::optional<SrqOwner> Create(void* base, size_t size_bytes, uint32_t srq_id,
                                        uint32_t capacity, uint32_t max_sge);

  // Writes a WQE; senders see it at the next Ring(). False and no effect: full (man
  // ibv_post_srq_recv: ENOMEM) or sges.size() > max_sge (EINVAL). No SGE at all is a WQE of length
  // 0.
  bool Post(std::span<const Sge> sges, uint64_t wr_id) {
    if (free_count_ == 0 || sges.size() > max_sge_) return false;
    if (sges.size() == 1) return PostOne(sges[0], wr_id);
    const uint32_t index = free_[--free_count_];
    DescribeInTable(sges, index, wr_id);
    WriteSlot(index);
    return true;
  }
  // The same for one SGE, which stands in the slot itself if it fits.
  bool PostOne(const Sge& sge, uint64_t wr_id) {
    if (free_count_ == 0) return false;
    const uint32_t index = free_[--free_count_];
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
  // Shows senders everything posted since the last Ring().
  void Ring();

  // A CQE that names this WQE was polled: returns its wr_id and frees the index. nullopt: no such
  // WQE is outstanding, so the CQE is garbage and is to be dropped and counted.
  std::optional<uint64_t> Complete(uint32_t wqe_index) {
    if (wqe_index >= capacity_) return std::nullopt;
    Wqe& wqe = wqes_[wqe_index];
    if (wqe.ticket == kNoTicket) return std::nullopt;
    wqe.ticket = kNoTicket;
    free_[free_count_++] = wqe_index;
    return wqe.wr_id;
  }

  // The WQE was claimed and comes back unused (a CQE of kCqeUnused): posts it again behind the
  // others, with its wr_id and SGEs. Visible at the next Ring(). False: no such WQE is outstanding.
  bool Repost(uint32_t wqe_index);

  // Takes the oldest WQE as a sender would, for a delivery inside this process; nullopt: none is
  // posted. It stays outstanding until Complete or Repost, and no repair touches it. Sets
  // *limit_reached if this did it.
  std::optional<uint32_t> Take(bool* limit_reached);
  // The pieces and the wr_id of an outstanding WQE; how many pieces were written.
  uint32_t Pieces(uint32_t wqe_index, std::span<Sge> out) const;
  uint64_t WrId(uint32_t wqe_index) const { return wqes_[wqe_index].wr_id; }

  // man ibv_modify_srq: one event when fewer than `limit` WQEs are left; 0 disarms. True: that is
  // already so, and the event is due now.
  bool ArmLimit(uint32_t limit);
  // True, once: the limit is reached. For the owner after a sender's death: one that died between its
  // claim and its look at the limit may have had the newest claim.
  bool LookAtLimit();
  // True, once: some sender's claim has reached the limit.
  bool CollectLimit();
  // What is armed now; 0 when it has been reached.
  uint32_t armed_limit() const;

  // Appends each outstanding wr_id, oldest ticket not guaranteed first, and empties the private
  // table. For destruction, when no sender can reach the area any more.
  void DrainTo(std::vector<uint64_t>* wr_ids);

  // WQEs that a sender could claim now, as SRQ limit events count them. 0 when a peer spoilt the
  // words.
  uint32_t Unclaimed() const;
  uint32_t outstanding() const { return capacity_ - free_count_; }
  uint32_t capacity() const { return capacity_; }
  uint32_t max_sge() const { return max_sge_; }
  uint32_t srq_id() const { return srq_id_; }

  // For repair.h. The next ticket to be claimed, at most `posted`; and the ticket of an outstanding
  // WQE.
  uint64_t LoadClaim() const;
  std::optional<uint64_t> TicketOf(uint32_t wqe_index) const;

 private:
  static constexpr uint64_t kNoTicket = UINT64_MAX;
  static constexpr uint64_t kTakenHere = UINT64_MAX - 1;
  struct Wqe {
    uint64_t ticket = kNoTicket;  // kNoTicket: the index is free; kTakenHere: by Take()
    uint64_t wr_id = 0;
    uint64_t place = 0;  // the slot's two words, kept to repost without trusting
                         // shared memory
    uint64_t word = 0;
  };

  SrqOwner(internal::SrqHead* area, uint32_t srq_id, uint32_t capacity, uint32_t max_sge);
  // Overwrites the slot of ticket posted_ - capacity. Why that is allowed though senders may be
  // reading slots: at most capacity - 1 WQEs are outstanding here, so of the posted_ tickets given
  // out at least posted_ - capacity + 1 were consumed, hence claimed: that older ticket is below
  // `claim`. A sender that is still reading its slot read `claim` before, and its CAS is going to
  // fail. Release on the words (acquire in the sender) carries that knowledge: a sender that sees
  // these new words also sees the `claim` behind them.
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
  uint64_t posted_ = 0;  // what `posted` will be at the next Ring()
  std::vector<Wqe> wqes_;
  std::vector<uint32_t> free_;  // a stack of free_count_
  uint32_t free_count_ = 0;
};

}  // namespace sluice::softdc::shm

#endif  // SLUICE_TRANSPORT_SOFTDC_SHM_SRQ_OWNER_H_
