// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/model/cq.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "transport/softdc/model/context.h"
#include "transport/softdc/model/dci.h"
#include "transport/softdc/model/srq.h"
#include "transport/softdc/model/wqe.h"

namespace sluice::softdc {
namespace {

// What the requester's completion of each work request says (man ibv_poll_cq).
ibv_wc_opcode RequesterOpcode(uint8_t opcode) {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return IBV_WC_RDMA_WRITE;
    case IBV_WR_RDMA_READ:
      return IBV_WC_RDMA_READ;
    default:
      return IBV_WC_SEND;
  }
}

}  // namespace

Cq::Cq(Context& context, int cqe)
    : context_(context),
      ring_capacity_(
          std::max(shm::kMinCqeRingCapacity, std::bit_ceil(static_cast<uint32_t>(cqe)) * 2)),
      sends_(std::bit_ceil(static_cast<uint32_t>(cqe))) {}

std::unique_ptr<Cq> Cq::Create(Context& context, int cqe, CompletionChannel* channel,
                               void* cq_context) {
  if (cqe <= 0 || cqe > kMaxCqe) {
    errno = EINVAL;
    return nullptr;
  }
  auto cq = std::unique_ptr<Cq>(new Cq(context, cqe));
  cq->armed_offset_ = context.arena().Allocate(shm::ArmedWord::Bytes());
  if (cq->armed_offset_ != 0) {
    auto armed =
        shm::ArmedWord::Create(context.arena().At(cq->armed_offset_), shm::ArmedWord::Bytes());
    cq->armed_ = std::make_unique<shm::ArmedWord>(*armed);
    cq->id_ = context.AddCq(cq.get());
  }
  if (cq->id_ == 0) {
    errno = ENOMEM;
    return nullptr;
  }
  cq->base.context = context.base();
  cq->base.cq_context = cq_context;
  cq->base.cqe = static_cast<int>(cq->sends_.size());
  cq->base.handle = cq->id_;
  if (channel != nullptr) {
    cq->base.channel = &channel->base;
    std::lock_guard lock(channel->mutex);
    channel->cqs.push_back(cq.get());
    ++channel->base.refcnt;
  }
  return cq;
}

Cq::~Cq() {
  if (base.channel != nullptr) {
    auto* channel = CompletionChannel::From(base.channel);
    std::lock_guard lock(channel->mutex);
    std::erase(channel->cqs, this);
    --channel->base.refcnt;
  }
  if (id_ != 0) context_.RemoveCq(id_);
  for (const auto& ring : rings_) {
    context_.arena().Retire(ring->place.offset, ring->place.size_bytes);
  }
  context_.arena().Retire(armed_offset_, shm::ArmedWord::Bytes());
}

int Cq::Poll(int max, ibv_wc* wc) {
  SpinLockHolder hold(lock_);
  int count = PollSends(max, wc);
  const size_t rings = rings_.size();
  for (size_t i = 0; i < rings && count < max; ++i) {
    const size_t index = next_ring_ + i < rings ? next_ring_ + i : next_ring_ + i - rings;
    count += PollRing(*rings_[index], max - count, wc + count);
  }
  if (++next_ring_ >= rings) next_ring_ = 0;
  if (dead_rings_ != 0) RemoveEmptyDeadRings();
  return count;
}

int Cq::PollSends(int max, ibv_wc* wc) {
  int count = 0;
  Dci* last = nullptr;
  uint64_t sequence = 0;
  for (; count < max && send_head_ != send_tail_; ++count, ++send_head_) {
    const SendCompletion& completion = sends_[send_head_ & (sends_.size() - 1)];
    wc[count] = completion.wc;
    if (last != nullptr && last != completion.dci) last->Release(sequence);
    last = completion.dci;
    sequence = completion.sequence;
  }
  if (last != nullptr) last->Release(sequence);
  return count;
}

int Cq::PollRing(Ring& ring, int max, ibv_wc* wc) {
  int count = 0;
  shm::Cqe cqe;
  while (count < max && ring.consumer.Poll(&cqe)) {
    if (Translate(cqe, &wc[count])) ++count;
  }
  return count;
}

bool Cq::Translate(const shm::Cqe& cqe, ibv_wc* wc) {
  Srq* srq = context_.FindSrq(cqe.srq_id);
  if (srq == nullptr) return false;
  if ((cqe.flags & shm::kCqeUnused) != 0) {
    srq->Repost(cqe.wqe_index);
    return false;
  }
  const std::optional<uint64_t> wr_id = srq->Complete(cqe.wqe_index);
  if (!wr_id) return false;
  *wc = {};
  wc->wr_id = *wr_id;
  wc->status = static_cast<ibv_wc_status>(cqe.status);
  wc->opcode = static_cast<ibv_wc_opcode>(cqe.opcode);
  wc->vendor_err = cqe.vendor_err;
  wc->byte_len = cqe.byte_len;
  wc->imm_data = cqe.imm_data;
  wc->qp_num = cqe.qp_num;
  wc->src_qp = cqe.src_qp;
  wc->wc_flags = cqe.wc_flags;
  return true;
}

Cq::SendCompletion Cq::SendCompletionOf(Dci& dci, const Wqe& wqe, uint64_t sequence) {
  SendCompletion completion{.wc = {}, .dci = &dci, .sequence = sequence};
  ibv_wc& wc = completion.wc;
  wc.wr_id = wqe.wr_id;
  wc.status = static_cast<ibv_wc_status>(wqe.status);
  wc.opcode = RequesterOpcode(wqe.opcode);
  wc.vendor_err = wqe.vendor_error;
  wc.qp_num = dci.qp_ex.qp_base.qp_num;
  if (wqe.opcode == IBV_WR_RDMA_READ) wc.byte_len = wqe.length_bytes;
  if (wqe.opcode == IBV_WR_SEND_WITH_IMM || wqe.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
    wc.wc_flags = IBV_WC_WITH_IMM;
  }
  return completion;
}

void Cq::PushSendCompletion(Dci& dci, const Wqe& wqe, uint64_t sequence) {
  bool lost = false, first_lost = false;
  {
    SpinLockHolder hold(lock_);
    lost = send_tail_ - send_head_ == sends_.size();
    first_lost = lost && !overrun_;
    overrun_ |= lost;
    if (!lost) sends_[send_tail_++ & (sends_.size() - 1)] = SendCompletionOf(dci, wqe, sequence);
  }
  if (first_lost) {
    ibv_async_event event{};
    event.event_type = IBV_EVENT_CQ_ERR;
    event.element.cq = &base;
    context_.PostAsyncEvent(event);
  }
  if (lost || base.channel == nullptr) return;
  const bool solicited = wqe.status != IBV_WC_SUCCESS || (wqe.flags & IBV_SEND_SOLICITED) != 0;
  if (armed_->TryTake(shm::ArmedWord::kOwnerLink, solicited)) Fire();
}

void Cq::Purge(const Dci* dci) {
  SpinLockHolder hold(lock_);
  uint64_t kept = send_head_;
  for (uint64_t i = send_head_; i != send_tail_; ++i) {
    const SendCompletion completion = sends_[i & (sends_.size() - 1)];
    if (completion.dci != dci) sends_[kept++ & (sends_.size() - 1)] = completion;
  }
  send_tail_ = kept;
}

int Cq::RequestNotify(bool solicited_only) {
  // An event that fired and was not asked for yet keeps its place: the word is needed for the next
  // one.
  if (armed_->CollectEvent()) unfetched_events_.fetch_add(1);
  armed_->Arm(solicited_only ? shm::ArmedWord::Mode::kSolicited : shm::ArmedWord::Mode::kAny);
  return 0;
}

bool Cq::TakeEvent() {
  int events = unfetched_events_.load();
  while (events > 0) {
    if (unfetched_events_.compare_exchange_weak(events, events - 1)) return true;
  }
  return armed_->CollectEvent();
}

void Cq::Fire() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(base.channel->fd, &one, sizeof(one));
}

Cq::RingPlace Cq::RingFor(uint32_t link_id) {
  SpinLockHolder hold(lock_);
  for (const auto& ring : rings_) {
    if (ring->link_id == link_id) return ring->place;
  }
  RingPlace place{.offset = 0,
                  .size_bytes = shm::CqeConsumer::Bytes(ring_capacity_),
                  .capacity = ring_capacity_};
  place.offset = context_.arena().Allocate(place.size_bytes);
  if (place.offset == 0) return {};
  auto consumer =
      shm::CqeConsumer::Create(context_.arena().At(place.offset), place.size_bytes, ring_capacity_);
  rings_.push_back(
      std::make_unique<Ring>(Ring{.link_id = link_id, .place = place, .consumer = *consumer}));
  return place;
}

void Cq::LinkDied(uint32_t link_id) {
  bool unread = false;
  {
    SpinLockHolder hold(lock_);
    for (const auto& ring : rings_) {
      if (ring->link_id != link_id || ring->dead) continue;
      ring->dead = true;
      ++dead_rings_;
      unread = !ring->consumer.Empty();
    }
  }
  if (base.channel != nullptr && armed_->OwesAfterDeath(link_id, unread)) Fire();
}

void Cq::RemoveEmptyDeadRings() {
  for (auto it = rings_.begin(); it != rings_.end();) {
    if ((*it)->dead && (*it)->consumer.Empty()) {
      context_.arena().Free((*it)->place.offset, (*it)->place.size_bytes);
      it = rings_.erase(it);
      --dead_rings_;
    } else {
      ++it;
    }
  }
  next_ring_ = 0;
}

void Cq::AppendConsumers(std::vector<const shm::CqeConsumer*>* consumers) const {
  for (const auto& ring : rings_) consumers->push_back(&ring->consumer);
}

}  // namespace sluice::softdc
