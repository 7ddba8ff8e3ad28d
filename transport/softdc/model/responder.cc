// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/model/responder.h"

#include <atomic>
#include <cerrno>
#include <utility>

#include "transport/softdc/model/context.h"
#include "transport/softdc/model/cq.h"
#include "transport/softdc/model/srq.h"
#include "transport/softdc/shm/kill_point.h"

namespace sluice::softdc {

std::unique_ptr<Responder> Responder::Create(Context& context, Cq& cq, Srq& srq,
                                             std::shared_ptr<QpLife> life) {
  const uint64_t offset = context.arena().Allocate(sizeof(shm::TargetDescriptor));
  if (offset == 0) {
    errno = ENOMEM;
    return nullptr;
  }
  return std::unique_ptr<Responder>(new Responder(context, cq, srq, std::move(life), offset));
}

Responder::Responder(Context& context, Cq& cq, Srq& srq, std::shared_ptr<QpLife> life,
                     uint64_t offset)
    : context_(context),
      cq_(cq),
      srq_(srq),
      life_(std::move(life)),
      descriptor_offset_(offset),
      descriptor_(context.arena().At<shm::TargetDescriptor>(offset)) {}

Responder::~Responder() {
  Close();
  // Accepted requests end before their queues are destroyed.
  context_.WaitForCopies();
  context_.arena().Retire(descriptor_offset_, sizeof(shm::TargetDescriptor));
}

void Responder::Open(const Terms& terms) {
  descriptor_->type = static_cast<uint32_t>(terms.type);
  descriptor_->qp_num = terms.number;
  descriptor_->pd = terms.pd;
  descriptor_->srq_id = srq_.id();
  descriptor_->cq_id = cq_.id();
  descriptor_->srq_offset = srq_.offset();
  descriptor_->armed_offset = cq_.armed_offset();
  descriptor_->path_mtu = terms.path_mtu;
  descriptor_->pkey = terms.pkey;
  Change(terms.access, terms.min_rnr_timer, terms.key);
  SOFTDC_KILL_POINT(kTargetHalfWritten);
  descriptor_->state.store(static_cast<uint32_t>(shm::TargetState::kReadyToReceive),
                           std::memory_order_release);
  SOFTDC_KILL_POINT(kTargetPublished);
  if (!std::exchange(open_, true)) context_.AddResponder(terms.number, this);
}

void Responder::Change(uint32_t access, uint8_t min_rnr_timer, uint64_t key) {
  descriptor_->access.store(access, std::memory_order_relaxed);
  descriptor_->min_rnr_timer.store(min_rnr_timer, std::memory_order_relaxed);
  descriptor_->key.store(key, std::memory_order_relaxed);
}

void Responder::Close() {
  if (!std::exchange(open_, false)) return;
  descriptor_->state.store(static_cast<uint32_t>(shm::TargetState::kGone),
                           std::memory_order_seq_cst);
  SOFTDC_KILL_POINT(kTargetGone);
  context_.RemoveResponder(descriptor_->qp_num);
}

}  // namespace sluice::softdc
