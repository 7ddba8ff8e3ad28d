// SPDX-License-Identifier: Apache-2.0
//
// Srq: a shared receive queue: the owner's side of the ring in shared memory, under a lock.
#ifndef SLUICE_TRANSPORT_SOFTDC_MODEL_SRQ_H_
#define SLUICE_TRANSPORT_SOFTDC_MODEL_SRQ_H_

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "transport/softdc/shm/spin_lock.h"
#include "transport/softdc/shm/srq_owner.h"

namespace sluice::softdc {

class Context;

inline constexpr uint32_t kMaxSrqSges = 16;

class Srq {
 public:
  // `base` is what the user holds; it must stay first.
  ibv_srq base{};
  static Srq* From(ibv_srq* srq) { return reinterpret_cast<Srq*>(srq); }

  // Null with errno set. Rewrites attr with the real sizes.
  static std::unique_ptr<Srq> Create(Context& context, ibv_srq_attr* attr);
  ~Srq();

  int Post(ibv_recv_wr* wr, ibv_recv_wr** bad_wr);
  int Modify(const ibv_srq_attr& attr, int mask);
  int Query(ibv_srq_attr* attr);

  // A completion names this WQE: its wr_id, and the place is free again. Nothing: no such WQE is
  // outstanding.
  std::optional<uint64_t> Complete(uint32_t wqe_index) {
    SpinLockHolder hold(lock_);
    return owner_->Complete(wqe_index);
  }
  // A sender claimed the WQE and gave it back.
  void Repost(uint32_t wqe_index);

  uint32_t id() const { return id_; }
  uint64_t offset() const { return offset_; }
  std::atomic<int>& users() { return users_; }
  SpinLock& lock() { return lock_; }
  shm::SrqOwner& owner() { return *owner_; }  // under lock()

 private:
  Srq(Context& context, const ibv_srq_attr& attr) : context_(context), attr_(attr) {}

  Context& context_;
  ibv_srq_attr attr_;
  uint32_t id_ = 0;
  uint64_t offset_ = 0;
  uint64_t size_bytes_ = 0;
  std::atomic<int> users_{0};
  SpinLock lock_;
  std::array<shm::Sge, kMaxSrqSges> sges_;  // under lock_: room for one WQE's pieces
  std::unique_ptr<shm::SrqOwner> owner_;
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_SRQ_H_
