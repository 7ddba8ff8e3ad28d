// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/model/srq.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <span>

#include "transport/softdc/model/context.h"
#include "transport/softdc/model/memory_region.h"

namespace sluice::softdc {
std::unique_ptr<Srq> Srq::Create(Context& context, ibv_srq_attr* attr) {
  if (attr->max_wr == 0 || attr->max_wr > shm::kMaxSrqCapacity || attr->max_sge == 0 ||
      attr->max_sge > kMaxSrqSges) {
    errno = EINVAL;
    return nullptr;
  }
  attr->max_wr = std::max(shm::kMinSrqCapacity, std::bit_ceil(attr->max_wr));
  attr->srq_limit = 0;
  auto srq = std::unique_ptr<Srq>(new Srq(context, *attr));
  srq->size_bytes_ = shm::SrqOwner::Bytes(attr->max_wr, attr->max_sge);
  srq->offset_ = context.arena().Allocate(srq->size_bytes_);
  srq->id_ = srq->offset_ == 0 ? 0 : context.AddSrq(srq.get());
  if (srq->id_ == 0) {
    errno = ENOMEM;
    return nullptr;
  }
  auto owner = shm::SrqOwner::Create(context.arena().At(srq->offset_), srq->size_bytes_, srq->id_,
                                     attr->max_wr, attr->max_sge);
  if (!owner) {
    errno = EINVAL;
    return nullptr;
  }
  srq->owner_ = std::make_unique<shm::SrqOwner>(std::move(*owner));
  return srq;
}

Srq::~Srq() {
  if (id_ != 0) context_.RemoveSrq(id_);
  context_.arena().Retire(offset_, size_bytes_);
}

int Srq::Post(ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  const uint32_t pd = Pd::From(base.pd)->number;
  int error = 0;
  SpinLockHolder hold(lock_);
  for (; wr != nullptr; wr = wr->next) {
    if (wr->num_sge < 0 || static_cast<uint32_t>(wr->num_sge) > attr_.max_sge) {
      error = EINVAL;
      break;
    }
    uint32_t count = 0;
    for (int i = 0; i < wr->num_sge; ++i) {
      // A key that covers nothing makes a piece of no length: the device would find out when it
      // uses the WQE.
      sges_[count++] = SharedPlace(context_, wr->sg_list[i], pd);
    }
    if (!owner_->Post(std::span(sges_.data(), count), wr->wr_id)) {
      error = ENOMEM;
      break;
    }
  }
  owner_->Ring();
  if (error != 0 && bad_wr != nullptr) *bad_wr = wr;
  return error;
}

int Srq::Modify(const ibv_srq_attr& attr, int mask) {
  if ((mask & IBV_SRQ_MAX_WR) != 0) return EINVAL;  // no resize, as on mlx5
  if ((mask & IBV_SRQ_LIMIT) == 0) return 0;
  SpinLockHolder hold(lock_);
  if (attr.srq_limit >= attr_.max_wr) return EINVAL;
  attr_.srq_limit = attr.srq_limit;
  return 0;
}

int Srq::Query(ibv_srq_attr* attr) {
  SpinLockHolder hold(lock_);
  *attr = attr_;
  return 0;
}

void Srq::Repost(uint32_t wqe_index) {
  SpinLockHolder hold(lock_);
  if (owner_->Repost(wqe_index)) owner_->Ring();
}

}  // namespace sluice::softdc
