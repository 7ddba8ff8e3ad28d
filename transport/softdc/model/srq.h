// SPDX-License-Identifier: Apache-2.0
//
// Srq: the owner's side of a receive queue, whose ring is in shared memory. It is an SRQ of the user, or the receive queue of one RC, UC or
// UD queue pair.
//
// Senders in other processes take WQEs from the ring themselves (shm/srq_claimer.h). A fabric inside this process uses Take. Both complete
// a WQE with a Cqe that names srq_id and wqe_index.
#ifndef SLUICE_TRANSPORT_SOFTDC_MODEL_SRQ_H_
#define SLUICE_TRANSPORT_SOFTDC_MODEL_SRQ_H_

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "absl/base/thread_annotations.h"
#include "transport/softdc/shm/spin_lock.h"
#include "transport/softdc/shm/srq_owner.h"

namespace sluice::softdc {

class Context;
class Cq;

inline constexpr uint32_t kMaxSrqSges = 31;

// A receive WQE that a fabric of this process has taken.
struct TakenReceive {
  uint32_t srq_id = 0;  // this and wqe_index go into the Cqe
  uint32_t wqe_index = 0;
  uint32_t sge_count = 0;
  // SUCCESS, or LOC_PROT_ERR: a piece names memory that is not registered.
  ibv_wc_status status = IBV_WC_SUCCESS;
};

// A receive WQE that ends unused, because its queue pair is in error.
struct FlushedReceive {
  uint64_t wr_id = 0;
  uint32_t qp_number = 0;
};

class Srq {
 public:
  // `base` is the user's handle; it must stay first.
  ibv_srq base{};
  static Srq* From(ibv_srq* srq) { return reinterpret_cast<Srq*>(srq); }

  // Returns null with errno on failure. Sets `attr` to the real sizes.
  static std::unique_ptr<Srq> Create(ibv_pd* pd, ibv_srq_attr* attr);
  // Creates the receive queue of a queue pair. If max_wr is 0, nothing can be posted.
  static std::unique_ptr<Srq> CreateReceiveQueue(ibv_pd* pd, uint32_t max_wr, uint32_t max_sge);
  ~Srq();

  int Post(ibv_recv_wr* wr, ibv_recv_wr** bad_wr);
  int Modify(const ibv_srq_attr& attr, int mask);
  int Query(ibv_srq_attr* attr);

  // Takes the oldest WQE; its pieces are in the address space of this process. Returns nullopt if there is none: receiver not ready. The
  // caller gives the WQE back with Cq::PushReceive: as a completion, or with kCqeUnused.
  std::optional<TakenReceive> Take(std::span<ibv_sge> pieces);

  // Called when the queue pair of a receive queue is in error. Until Forget, Cq::FlushReceives ends the WQEs that no sender has taken, and
  // Return ends the WQEs that senders give back.
  void FlushTo(Cq& cq, uint32_t qp_number);
  // Takes the oldest WQE to flush. Called under the lock of that CQ.
  std::optional<FlushedReceive> NextFlushed();
  // Empties the queue. No sender may hold a WQE of the queue.
  void Forget();

  // Completes a WQE: returns its wr_id and frees its place. Returns nullopt if no such WQE is outstanding.
  std::optional<uint64_t> Complete(uint32_t wqe_index) {
    SpinLockHolder hold(lock_);
    return owner_->Complete(wqe_index);
  }
  // Called when a sender gave a WQE back that it had claimed: posts the WQE again, or ends it as flushed. Called under the lock of the CQ.
  std::optional<FlushedReceive> Return(uint32_t wqe_index);

  // Posts the event if a sender has reached the limit. Called on the firmware thread.
  void CollectLimit();
  // Called after a repair. Posts the event if the number of WQEs has fallen below the limit without a notice. If the queue pair is in
  // error, flushes the WQEs that the repair posted again.
  void LookAtLimit();

  uint32_t id() const { return id_; }
  uint64_t offset() const { return offset_; }
  std::atomic<int>& users() { return users_; }
  SpinLock& lock() { return lock_; }
  shm::SrqOwner& owner() { return *owner_; }  // under lock()

 private:
  Srq(Context& context, ibv_pd* pd, const ibv_srq_attr& attr);
  int Make(uint32_t capacity, uint32_t max_sge);
  void PostLimitEvent();

  Context& context_;
  const uint32_t pd_;
  const uint32_t max_wr_;
  const uint32_t max_sge_;
  uint32_t id_ = 0;
  uint64_t offset_ = 0;
  uint64_t size_bytes_ = 0;
  std::atomic<int> users_{0};
  SpinLock lock_;
  std::array<shm::Sge, kMaxSrqSges> sges_;  // under lock_: room for one WQE's pieces
  std::unique_ptr<shm::SrqOwner> owner_;
  Cq* flush_cq_ = nullptr;  // under lock_; of a queue pair in error
  uint32_t flush_qp_ = 0;   // under lock_
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_SRQ_H_
