// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/model/cq.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <optional>

#include "transport/softdc/model/context.h"
#include "transport/softdc/model/mutation.h"
#include "transport/softdc/model/srq.h"
#include "transport/softdc/model/wqe.h"

namespace sluice::softdc {
namespace {

// Initial size of the private ring, which grows up to the requested size. Programs request far more entries than they ever leave unread.
constexpr uint32_t kFirstLocalEntries = 256;

uint32_t RingCapacity(uint32_t cqe) {
  // A producer may see a free quarter of the ring as used. `cqe` entries must fit nevertheless.
  return std::clamp(std::bit_ceil(cqe) * 2, shm::kMinCqeRingCapacity, shm::kMaxCqeRingCapacity);
}

}  // namespace

Cq::Cq(Context& context, const Shape& shape)
    : context_(context),
      single_threaded_(shape.single_threaded),
      stamped_((shape.wc_flags & (IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                                  IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)) != 0),
      ring_capacity_(RingCapacity(shape.cqe)),
      local_(std::min(std::bit_ceil(shape.cqe), kFirstLocalEntries)) {}

std::unique_ptr<Cq> Cq::Create(Context& context, const Shape& shape) {
  if (shape.cqe == 0 || shape.cqe > context.dials().limits.max_cqe) {
    errno = EINVAL;
    return nullptr;
  }
  if (shape.extended && (shape.wc_flags & ~kCqWcFlags) != 0) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  auto cq = std::unique_ptr<Cq>(new Cq(context, shape));
  cq->armed_offset_ = context.arena().Allocate(shm::ArmedWord::Bytes());
  if (cq->armed_offset_ != 0) {
    auto armed =
        shm::ArmedWord::Create(context.arena().At(cq->armed_offset_), shm::ArmedWord::Bytes());
    cq->armed_ = std::make_unique<shm::ArmedWord>(*armed);
    using WhenFull = shm::ArmedWord::WhenFull;
    const bool waits = context.dials().unknowns.full_receive_cq == FullCq::kWait;
    cq->armed_->SetWhenFull(shape.ignore_overrun ? WhenFull::kLoses
                            : waits              ? WhenFull::kWaits
                                                 : WhenFull::kOverruns);
    cq->id_ = context.AddCq(cq.get());
  }
  if (cq->id_ == 0) {
    errno = ENOMEM;
    return nullptr;
  }
  cq->base.context = context.base();
  cq->base.cq_context = shape.cq_context;
  cq->base.cqe = 1 << std::countr_zero(std::bit_ceil(shape.cqe));
  cq->base.handle = cq->id_;
  if (shape.extended) cq->FillExOps(shape.wc_flags);
  cq->events_.Attach(shape.channel);
  return cq;
}

// Hides the queue from the firmware thread before it retires the events. Otherwise that thread could post an event of a destroyed queue.
Cq::~Cq() {
  ForgetUnread();
  if (id_ != 0) context_.RemoveCq(id_);
  events_.Detach();
  context_.async_events().Retire(&base);
  for (const auto& ring : rings_) {
    context_.arena().Retire(ring->place.offset, ring->place.size_bytes);
    context_.ring_budget().GiveBack(ring->place.capacity);
  }
  if (armed_offset_ != 0) context_.arena().Retire(armed_offset_, shm::ArmedWord::Bytes());
}

namespace {

ibv_wc WcOf(const shm::Cqe& cqe) {
  ibv_wc wc{};
  wc.status = static_cast<ibv_wc_status>(cqe.status);
  wc.opcode = static_cast<ibv_wc_opcode>(cqe.opcode);
  wc.vendor_err = cqe.vendor_err;
  wc.byte_len = cqe.byte_len;
  wc.imm_data = cqe.imm_data;
  wc.qp_num = cqe.qp_num;
  wc.src_qp = cqe.src_qp;
  wc.wc_flags = cqe.wc_flags;
  wc.pkey_index = cqe.pkey_index;
  wc.slid = cqe.slid;
  wc.sl = cqe.sl;
  wc.dlid_path_bits = cqe.dlid_path_bits;
  return wc;
}

}  // namespace

void Cq::Push(const Local& local, bool solicited) {
  bool overrun = false;
  {
    SpinLockHolder hold(lock_);
    // After an overrun the queue is in error and accepts no completion.
    if (armed_->overrun()) return;
    if (local_tail_ - local_head_ >= static_cast<uint64_t>(base.cqe)) {
      // Senders can wait; a completion of this process cannot.
      if (armed_->waits_when_full()) armed_->SetWhenFull(shm::ArmedWord::WhenFull::kOverruns);
      if (!armed_->Overrun()) return;
      overrun = true;
    } else {
      if (local_tail_ - local_head_ == local_.size()) MoveLocalTo(local_.size() * 2);
      local_[local_tail_++ & (local_.size() - 1)] = local;
    }
  }
  if (overrun && Mutated(Mutation::kSilentOverrun)) return;
  if (overrun) return CollectOverrun();
  if (base.channel != nullptr && armed_->TryTake(shm::ArmedWord::kOwnerLink, solicited)) {
    events_.Fire();
  }
}

int64_t Cq::TimestampNs() const { return stamped_ ? context_.device().fabric().NowNs() : 0; }

void Cq::PushSend(const ibv_wc& wc, bool solicited, std::atomic<uint64_t>* released,
                  uint64_t sequence) {
  Push({.wc = wc,
        .timestamp_ns = TimestampNs(),
        .released = released,
        .sequence = sequence,
        .srq_id = 0,
        .wqe_index = 0},
       solicited || wc.status != IBV_WC_SUCCESS);
}

void Cq::PushReceive(const shm::Cqe& cqe) {
  if ((cqe.flags & shm::kCqeUnused) != 0) {
    bool flushes = false;
    {
      SpinLockHolder hold(lock_);
      Srq* const srq = context_.FindSrq(cqe.srq_id);
      const auto flushed = srq == nullptr ? std::nullopt : srq->Return(cqe.wqe_index);
      if (flushed) AppendFlushed(*flushed);
      flushes = flushed.has_value();
    }
    if (flushes) Wake();
    return;
  }
  Push({.wc = WcOf(cqe),
        .timestamp_ns = TimestampNs(),
        .released = nullptr,
        .sequence = 0,
        .srq_id = cqe.srq_id,
        .wqe_index = cqe.wqe_index},
       (cqe.flags & shm::kCqeSolicited) != 0 || cqe.status != IBV_WC_SUCCESS);
}

void Cq::AppendFlushed(const FlushedReceive& flushed) {
  if (armed_->overrun()) return;
  ibv_wc wc{};
  wc.wr_id = flushed.wr_id;
  wc.status = IBV_WC_WR_FLUSH_ERR;
  wc.opcode = IBV_WC_RECV;
  wc.vendor_err = kVendorErrorFlushed;
  wc.qp_num = flushed.qp_number;
  aside_ = true;
  flushed_.push_back({.wc = wc,
                      .timestamp_ns = TimestampNs(),
                      .released = nullptr,
                      .sequence = 0,
                      .srq_id = 0,
                      .wqe_index = 0});
}

void Cq::FlushReceives(Srq& receives) {
  {
    SpinLockHolder hold(lock_);
    const size_t before = flushed_.size();
    while (const auto flushed = receives.NextFlushed()) AppendFlushed(*flushed);
    if (flushed_.size() == before) return;
  }
  Wake();
}

template <typename Predicate>
void Cq::DropLocal(Predicate drop) {
  uint64_t kept = local_head_;
  for (uint64_t i = local_head_; i != local_tail_; ++i) {
    const Local local = local_[i & (local_.size() - 1)];
    if (!drop(local)) local_[kept++ & (local_.size() - 1)] = local;
  }
  local_tail_ = kept;
}

void Cq::PurgeSends(const std::atomic<uint64_t>* released) {
  SpinLockHolder hold(lock_);
  DropLocal([&](const Local& local) { return local.released == released; });
}

void Cq::PurgeReceives(uint32_t qp_number, bool shared) {
  SpinLockHolder hold(lock_);
  const auto complete = [&](uint32_t srq_id, uint32_t wqe_index, bool unused = false) {
    Srq* const srq = context_.FindSrq(srq_id);
    if (srq != nullptr && unused && shared) {
      srq->Return(wqe_index);
    } else if (srq != nullptr) {
      srq->Complete(wqe_index);
    }
    return true;
  };
  std::erase_if(flushed_, [&](const Local& local) { return local.wc.qp_num == qp_number; });
  DropLocal([&](const Local& local) {
    return local.released == nullptr && local.wc.qp_num == qp_number &&
           complete(local.srq_id, local.wqe_index);
  });
  // WQEs that came back unused to a queue of its own are completed too. If they were posted again, they would outlive the reset.
  for (const auto& ring : rings_) {
    ring->consumer.DropUnread([&](const shm::Cqe& cqe) {
      return cqe.qp_num == qp_number &&
             complete(cqe.srq_id, cqe.wqe_index, (cqe.flags & shm::kCqeUnused) != 0);
    });
  }
}

void Cq::ForgetSrq(uint32_t srq_id) {
  SpinLockHolder hold(lock_);
  DropLocal([&](const Local& local) { return local.srq_id == srq_id; });
  for (const auto& ring : rings_) {
    ring->consumer.DropUnread([&](const shm::Cqe& cqe) { return cqe.srq_id == srq_id; });
  }
}

void Cq::ForgetUnread() {
  SpinLockHolder hold(lock_);
  const auto forget = [&](uint32_t srq_id, uint32_t wqe_index, bool unused) {
    Srq* const srq = context_.FindSrq(srq_id);
    if (srq == nullptr) return true;
    if (unused) {
      srq->Return(wqe_index);
    } else {
      srq->Complete(wqe_index);
    }
    return true;
  };
  DropLocal(
      [&](const Local& local) { return forget(local.srq_id, local.wqe_index, /*unused=*/false); });
  for (const auto& ring : rings_) {
    ring->consumer.DropUnread([&](const shm::Cqe& cqe) {
      return forget(cqe.srq_id, cqe.wqe_index, (cqe.flags & shm::kCqeUnused) != 0);
    });
  }
}

int Cq::Resize(int cqe) {
  if (cqe <= 0 || static_cast<uint32_t>(cqe) > context_.dials().limits.max_cqe) return EINVAL;
  const uint32_t size = std::bit_ceil(static_cast<uint32_t>(cqe));
  SpinLockHolder hold(lock_);
  if (local_tail_ - local_head_ > size) return EINVAL;
  if (local_.size() > size) MoveLocalTo(size);
  ring_capacity_ = std::max(ring_capacity_, RingCapacity(size));
  // Existing rings keep their size. Their senders wait when the ring is full.
  for (const auto& ring : rings_) {
    if (ring->place.capacity < ring_capacity_) ring->consumer.SetNarrow();
  }
  base.cqe = static_cast<int>(size);
  return 0;
}

void Cq::MoveLocalTo(size_t size) {
  std::vector<Local> moved(size);
  uint64_t count = 0;
  for (; local_head_ != local_tail_; ++local_head_) {
    moved[count++] = local_[local_head_ & (local_.size() - 1)];
  }
  local_ = std::move(moved);
  local_head_ = 0;
  local_tail_ = count;
}

Cq::RingPlace Cq::RingFor(uint32_t link_id) {
  SpinLockHolder hold(lock_);
  for (const auto& ring : rings_) {
    if (ring->link_id == link_id && !ring->dead) return ring->place;
  }
  const uint32_t capacity = context_.ring_budget().Take(ring_capacity_);
  RingPlace place{
      .offset = 0, .size_bytes = shm::CqeConsumer::Bytes(capacity), .capacity = capacity};
  place.offset = context_.arena().Allocate(place.size_bytes);
  if (place.offset == 0) {
    context_.ring_budget().GiveBack(capacity);
    return {};
  }
  auto consumer = shm::CqeConsumer::Create(context_.arena().At(place.offset), place.size_bytes,
                                           capacity, stamped_, capacity < ring_capacity_);
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
    // The program may not poll for a long time.
    if (dead_rings_ != 0) RemoveEmptyDeadRings();
  }
  if (base.channel != nullptr && armed_->OwesAfterDeath(link_id, unread)) events_.Fire();
}

void Cq::CollectOverrun() {
  if (!armed_->CollectOverrun()) return;
  ibv_async_event event{};
  event.event_type = IBV_EVENT_CQ_ERR;
  event.element.cq = &base;
  context_.PostAsyncEvent(event);
}

void Cq::RemoveEmptyDeadRings() {
  for (auto it = rings_.begin(); it != rings_.end();) {
    if ((*it)->dead && (*it)->consumer.Empty()) {
      context_.arena().Free((*it)->place.offset, (*it)->place.size_bytes);
      context_.ring_budget().GiveBack((*it)->place.capacity);
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

int Cq::RequestNotify(bool solicited_only) {
  // Keeps an event that fired and was not fetched, because the word is needed for the next event.
  if (armed_->CollectEvent()) events_.KeepUnfetched();
  armed_->Arm(solicited_only && !Mutated(Mutation::kSolicitedIsAny)
                  ? shm::ArmedWord::Mode::kSolicited
                  : shm::ArmedWord::Mode::kAny);
  if (held_back_) [[unlikely]] {
    bool still = false;  // it may have been dropped meanwhile
    {
      SpinLockHolder hold(lock_);
      held_back_ = still = HasInvalidation();
    }
    if (still) Wake();
  }
  return 0;
}

}  // namespace sluice::softdc
