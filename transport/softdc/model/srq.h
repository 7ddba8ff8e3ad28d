// SPDX-License-Identifier: Apache-2.0
//
// Srq: a receive queue: the owner's side of the ring in shared memory, under a lock. It is a user's
// SRQ, or the receive queue of one RC, UC or UD queue pair.
//
// Senders in other processes take WQEs from the ring by themselves (shm/srq_claimer.h); a fabric
// inside this process uses Take. Both complete with a Cqe that names srq_id and wqe_index.
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

// A receive WQE in the hands of a fabric of this process.
struct TakenReceive {
  uint32_t srq_id = 0;  // these two go into the Cqe
  uint32_t wqe_index = 0;
  uint32_t sge_count = 0;
  // SUCCESS, or LOC_PROT_ERR: a piece names memory that is not registered (any more).
  ibv_wc_status status = IBV_WC_SUCCESS;
};

// A receive WQE that ends unused, since its queue pair is in error.
struct FlushedReceive {
  uint64_t wr_id = 0;
  uint32_t qp_number = 0;
};

class Srq {
 public:
  // `base` is what the user holds; it must stay first.
  ibv_srq base{};
  static Srq* From(ibv_srq* srq) { return reinterpret_cast<Srq*>(srq); }

  // Null with errno set. Rewrites attr with the real sizes.
  static std::unique_ptr<Srq> Create(ibv_pd* pd, ibv_srq_attr* attr);
  // The receive queue of a queue pair. Nothing can be posted if max_wr is 0.
  static std::unique_ptr<Srq> CreateReceiveQueue(ibv_pd* pd, uint32_t max_wr, uint32_t max_sge);
  ~Srq();

  int Post(ibv_recv_wr* wr, ibv_recv_wr** bad_wr);
  int Modify(const ibv_srq_attr& attr, int mask);
  int Query(ibv_srq_attr* attr);

  // The oldest WQE, with its pieces in this process's address space. Nothing: receiver not ready. It
  // is given back by Cq::PushReceive: as a completion, or with kCqeUnused.
  std::optional<TakenReceive> Take(std::span<ibv_sge> pieces);

  // The receive queue of a queue pair that is in error: from now on until Forget, WQEs that nobody has taken
  // are Cq::FlushReceives' to end, and so are those that senders give back later.
  void FlushTo(Cq& cq, uint32_t qp_number);
  // The oldest of them. Under the lock of that CQ.
  std::optional<FlushedReceive> NextFlushed();
  // Empties the queue. No sender may have a WQE of it.
  void Forget();

  // A completion names this WQE: its wr_id, and the place is free again. Nothing: no such WQE is
  // outstanding.
  std::optional<uint64_t> Complete(uint32_t wqe_index) {
    SpinLockHolder hold(lock_);
    return owner_->Complete(wqe_index);
  }
  // A sender claimed the WQE and gave it back: it is posted again, or has ended. Under the lock of the CQ.
  std::optional<FlushedReceive> Return(uint32_t wqe_index);

  // Firmware thread: a sender may have reached the limit. Posts the event if so.
  void CollectLimit();
  // After a repair: whether what is left has fallen below the limit without anybody noticing. What was
  // posted again is flushed if it has to be.
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
