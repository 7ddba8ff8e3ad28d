// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/model/srq.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <vector>

#include "transport/softdc/model/context.h"
#include "transport/softdc/model/cq.h"
#include "transport/softdc/model/memory_region.h"
#include "transport/softdc/model/mkey_area.h"
#include "transport/softdc/model/mutation.h"

namespace sluice::softdc {

Srq::Srq(Context& context, ibv_pd* pd, const ibv_srq_attr& attr)
    : context_(context), pd_(Pd::From(pd)->number), max_wr_(attr.max_wr), max_sge_(attr.max_sge) {
  base.context = pd->context;
  base.pd = pd;
}

int Srq::Make(uint32_t capacity, uint32_t max_sge) {
  size_bytes_ = shm::SrqOwner::Bytes(capacity, max_sge);
  offset_ = context_.arena().Allocate(size_bytes_);
  id_ = offset_ == 0 ? 0 : context_.TakeSrqId();
  if (id_ == 0) return ENOMEM;
  auto owner =
      shm::SrqOwner::Create(context_.arena().At(offset_), size_bytes_, id_, capacity, max_sge);
  if (!owner) return EINVAL;
  owner_ = std::make_unique<shm::SrqOwner>(std::move(*owner));
  base.handle = id_;
  context_.AddSrq(id_, this);  // last, because it is used from now on
  return 0;
}

std::unique_ptr<Srq> Srq::Create(ibv_pd* pd, ibv_srq_attr* attr) {
  if (attr->max_wr == 0 || attr->max_wr > Context::From(pd->context)->dials().limits.max_srq_wr ||
      attr->max_sge == 0 || attr->max_sge > kMaxSrqSges) {
    errno = EINVAL;
    return nullptr;
  }
  attr->max_wr = std::max(shm::kMinSrqCapacity, std::bit_ceil(attr->max_wr));
  attr->srq_limit = 0;
  auto srq = std::unique_ptr<Srq>(new Srq(*Context::From(pd->context), pd, *attr));
  errno = srq->Make(attr->max_wr, attr->max_sge);
  return errno == 0 ? std::move(srq) : nullptr;
}

std::unique_ptr<Srq> Srq::CreateReceiveQueue(ibv_pd* pd, uint32_t max_wr, uint32_t max_sge) {
  if (max_wr > shm::kMaxSrqCapacity || max_sge > kMaxSrqSges) {
    errno = EINVAL;
    return nullptr;
  }
  const ibv_srq_attr attr{.max_wr = max_wr, .max_sge = max_sge, .srq_limit = 0};
  auto srq = std::unique_ptr<Srq>(new Srq(*Context::From(pd->context), pd, attr));
  errno = srq->Make(std::max(shm::kMinSrqCapacity, std::bit_ceil(max_wr)),
                    std::max<uint32_t>(max_sge, 1));
  return errno == 0 ? std::move(srq) : nullptr;
}

// Hides the SRQ first, so that no event is posted after its events were retired.
Srq::~Srq() {
  if (id_ != 0) context_.RemoveSrq(id_);
  context_.async_events().Retire(&base);
  if (offset_ != 0) context_.arena().Retire(offset_, size_bytes_);
}

int Srq::Post(ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  int error = 0;
  SpinLockHolder hold(lock_);
  shm::SrqOwner& owner = *owner_;
  for (; wr != nullptr; wr = wr->next) {
    if (wr->num_sge < 0 || static_cast<uint32_t>(wr->num_sge) > max_sge_) {
      error = EINVAL;
      break;
    }
    const auto count = static_cast<uint32_t>(wr->num_sge);
    bool posted = owner.outstanding() < max_wr_;
    if (posted && count == 1) {
      posted = owner.PostOne(SharedPlace(context_, *wr->sg_list, pd_), wr->wr_id);
    } else if (posted) {
      for (uint32_t i = 0; i < count; ++i) sges_[i] = SharedPlace(context_, wr->sg_list[i], pd_);
      posted = owner.Post(std::span(sges_.data(), count), wr->wr_id);
    }
    if (!posted) {
      error = ENOMEM;
      break;
    }
  }
  owner.Ring();
  if (error != 0 && bad_wr != nullptr) *bad_wr = wr;
  return error;
}

int Srq::Modify(const ibv_srq_attr& attr, int mask) {
  if ((mask & ~IBV_SRQ_LIMIT) != 0) return EINVAL;  // no resize, as on mlx5
  if ((mask & IBV_SRQ_LIMIT) == 0) return 0;
  if (attr.srq_limit >= max_wr_) return EINVAL;
  SpinLockHolder hold(lock_);
  if (owner_->ArmLimit(Mutated(Mutation::kLimitNeverFires) ? 0 : attr.srq_limit)) PostLimitEvent();
  return 0;
}

int Srq::Query(ibv_srq_attr* attr) {
  SpinLockHolder hold(lock_);
  *attr = {.max_wr = max_wr_, .max_sge = max_sge_, .srq_limit = owner_->armed_limit()};
  return 0;
}

std::optional<TakenReceive> Srq::Take(std::span<ibv_sge> pieces) {
  SpinLockHolder hold(lock_);
  bool limit_reached = false;
  const std::optional<uint32_t> index = owner_->Take(&limit_reached);
  if (limit_reached && owner_->CollectLimit()) PostLimitEvent();
  if (!index) return std::nullopt;
  TakenReceive taken{.srq_id = id_, .wqe_index = *index};
  taken.sge_count =
      owner_->Pieces(*index, std::span(sges_.data(), std::min(sges_.size(), pieces.size())));
  for (uint32_t i = 0; i < taken.sge_count; ++i) {
    const shm::Sge& sge = sges_[i];
    if (IsMkey(sge.key)) {  // the fabric resolves the key
      pieces[i] = {.addr = sge.offset, .length = sge.length, .lkey = sge.key};
      continue;
    }
    const shm::MemoryRegionEntry* region = FindSharedPlace(context_, sge);
    if (region == nullptr && sge.length != 0) taken.status = IBV_WC_LOC_PROT_ERR;
    pieces[i] = {.addr = region == nullptr ? 0 : region->address + sge.offset,
                 .length = region == nullptr ? 0 : sge.length,
                 .lkey = sge.key};
  }
  return taken;
}

void Srq::FlushTo(Cq& cq, uint32_t qp_number) {
  SpinLockHolder hold(lock_);
  flush_cq_ = &cq;
  flush_qp_ = qp_number;
}

std::optional<FlushedReceive> Srq::NextFlushed() {
  SpinLockHolder hold(lock_);
  if (flush_cq_ == nullptr) return std::nullopt;
  bool limit_reached = false;
  const std::optional<uint32_t> index = owner_->Take(&limit_reached);
  if (!index) return std::nullopt;
  return FlushedReceive{.wr_id = *owner_->Complete(*index), .qp_number = flush_qp_};
}

void Srq::Forget() {
  SpinLockHolder hold(lock_);
  flush_cq_ = nullptr;
  bool limit_reached = false;
  while (const std::optional<uint32_t> index = owner_->Take(&limit_reached)) {
    owner_->Complete(*index);
  }
  // Also drops WQEs that dead senders had taken: no repair finds them later.
  std::vector<uint64_t> ended;
  owner_->DrainTo(&ended);
}

std::optional<FlushedReceive> Srq::Return(uint32_t wqe_index) {
  SpinLockHolder hold(lock_);
  if (flush_cq_ == nullptr) {
    if (owner_->Repost(wqe_index)) owner_->Ring();
    return std::nullopt;
  }
  const std::optional<uint64_t> wr_id = owner_->Complete(wqe_index);
  if (!wr_id) return std::nullopt;
  return FlushedReceive{.wr_id = *wr_id, .qp_number = flush_qp_};
}

void Srq::CollectLimit() {
  SpinLockHolder hold(lock_);
  if (owner_->CollectLimit()) PostLimitEvent();
}

void Srq::LookAtLimit() {
  Cq* flush_cq = nullptr;
  {
    SpinLockHolder hold(lock_);
    if (owner_->LookAtLimit()) PostLimitEvent();
    flush_cq = flush_cq_;
  }
  if (flush_cq != nullptr) flush_cq->FlushReceives(*this);
}

void Srq::PostLimitEvent() {
  ibv_async_event event{};
  event.event_type = IBV_EVENT_SRQ_LIMIT_REACHED;
  event.element.srq = &base;
  context_.PostAsyncEvent(event);
}

}  // namespace sluice::softdc
