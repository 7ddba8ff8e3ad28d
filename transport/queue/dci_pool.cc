// SPDX-License-Identifier: Apache-2.0
//
// Posting and completing. What happens after an error is in dci_recovery.cc.
#include "transport/queue/dci_pool.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cerrno>
#include <utility>

#include "transport/base/error.h"
#include "transport/queue/sentinel.h"

namespace sluice::queue {
namespace {

// With nothing signalled under way a completion can only be an error: looked for now and then.
constexpr uint32_t kQuietPollPeriod = 64;
// How many requests a waiter may post in its turn.
constexpr int kQuota = 16;

}  // namespace

void DeriveTimeout(int64_t dead_peer_ns, uint8_t* timeout, uint8_t* retry_count) {
  *retry_count = 7;
  *timeout = 1;
  while (*timeout < 31 && (int64_t{4096} << (*timeout + 1)) * 8 <= dead_peer_ns) ++*timeout;
}

absl::StatusOr<std::unique_ptr<DciPool>> DciPool::Create(device::Device& device, ibv_cq* cq,
                                                         SlotTable& slots, uint32_t lkey,
                                                         const PoolOptions& options,
                                                         poller::Commands& commands,
                                                         QueueUser& user) {
  std::unique_ptr<DciPool> pool(new DciPool(device, cq, slots, lkey, options, commands, user));
  absl::Status status = pool->Init();
  if (!status.ok()) return status;
  return pool;
}

DciPool::DciPool(device::Device& device, ibv_cq* cq, SlotTable& slots, uint32_t lkey,
                 const PoolOptions& options, poller::Commands& commands, QueueUser& user)
    : device_(device),
      api_(device.api()),
      cq_(cq),
      slots_(slots),
      lkey_(lkey),
      options_(options),
      commands_(commands),
      user_(user),
      path_(device.path()) {
  DeriveTimeout(options.dead_peer_ns, &path_.timeout, &path_.retry_count);
}

DciPool::~DciPool() = default;

absl::Status DciPool::Init() {
  const verbs::CapabilityReport& can = device_.capabilities();
  exclusive_ = options_.use_streams && can.Has(verbs::Feature::kStreams);
  can_reset_ = exclusive_ && can.Has(verbs::Feature::kStreamReset);
  verbs::DciOptions dci_options;
  dci_options.send_depth = options_.send_depth;
  if (exclusive_) {
    dci_options.streams = true;
    dci_options.log_concurrent = std::min(device_.limits().log_streams, options_.max_log_streams);
    dci_options.log_errored =
        std::min(device_.limits().log_errored_streams, dci_options.log_concurrent);
    error_limit_ = 1u << dci_options.log_errored;
  }
  fifo_size_ = std::bit_ceil(options_.send_depth);
  low_water_ = slots_.free_data() / 4;

  ibv_ah_attr attr = {};
  attr.is_global = 1;
  attr.port_num = path_.port;
  attr.grh.sgid_index = path_.sgid_index;
  attr.grh.hop_limit = 64;
  int error_number =
      api_.query_gid(device_.context(), path_.port, path_.sgid_index, &attr.grh.dgid);
  if (error_number == 0) {
    errno = 0;
    self_ = {&api_, api_.create_ah(device_.pd(), &attr)};
    if (!self_) error_number = errno != 0 ? errno : EINVAL;
  }
  if (error_number != 0) {
    return base::ErrnoError(error_number, "ibv_create_ah to this host itself",
                            {.layer = "queue", .operation = "create queues"});
  }

  for (uint32_t i = 0; i < options_.dci_count; ++i) {
    auto qp = verbs::CreateDci(api_, device_.context(), device_.pd(), cq_, dci_options);
    if (!qp.ok()) return qp.status();
    absl::Status status = verbs::ActivateDci(api_, qp->get(), path_);
    if (!status.ok()) return status;
    auto dci = std::make_unique<Dci>();
    dci->qp = std::move(*qp);
    dci->index = static_cast<uint16_t>(i);
    dci->fifo.assign(fifo_size_, kNoSlot);
    if (exclusive_) {
      const uint32_t streams = 1u << dci_options.log_concurrent;
      dci->streams.resize(streams);
      for (uint32_t s = streams; s-- > 0;) {
        dci->free_streams.push_back(static_cast<uint16_t>(s));
      }
    }
    dcis_.push_back(std::move(dci));
  }
  return absl::OkStatus();
}

uint32_t DciPool::template_qpn() const { return dcis_.front()->qp.number(); }

void DciPool::Open(Target* target) {
  target->dci = static_cast<uint16_t>(next_dci_++ % dcis_.size());
  target->stream = kNoStream;
  target->posted = 0;
  target->closed = false;
  target->waiting = false;
}

// One place stays free for the sentinel of a recovery.
bool DciPool::CanTake(const Dci& dci) const {
  return dci.state == DciState::kReady && dci.tail - dci.head + 1 < options_.send_depth;
}

DciPool::Dci* DciPool::Place(Target* target) {
  if (target->stream != kNoStream) {
    // Order: what is posted and what follows go through one stream of one DCI.
    Dci& dci = *dcis_[target->dci];
    return CanTake(dci) ? &dci : nullptr;
  }
  // A DCI that one more errored stream would stop is the second choice.
  for (const bool cautious : {true, false}) {
    for (size_t i = 0; i < dcis_.size(); ++i) {
      Dci& dci = *dcis_[(target->dci + i) % dcis_.size()];
      if (!CanTake(dci) || (exclusive_ && dci.free_streams.empty())) continue;
      if (cautious && error_limit_ > 1 && dci.errored + 1 >= error_limit_) continue;
      target->dci = dci.index;
      target->stream = 0;
      if (exclusive_) {
        target->stream = dci.free_streams.back();
        dci.free_streams.pop_back();
        Stream& stream = dci.streams[target->stream];
        const bool bound = Next(stream.state, StreamEvent::kBind, &stream.state);
        assert(bound);
        (void)bound;
      }
      return &dci;
    }
  }
  return nullptr;
}

void DciPool::Post(Target* target, uint32_t slot) {
  slots_[slot].target = target;
  if (target->closed) {
    if (slots_[slot].notify) user_.OnSent(target, slot, false);
    slots_.Give(slot);
    return;
  }
  if (!target->waiting) {
    if (Dci* dci = Place(target)) return Append(*dci, target, slot);
  }
  Enqueue(target, slot);
}

void DciPool::Enqueue(Target* target, uint32_t slot) {
  slots_[slot].use = SlotUse::kPending;
  // A request that is reported keeps its place behind the data: it is a goodbye.
  const bool ahead = slots_[slot].control && !slots_[slot].notify;
  (ahead ? target->control : target->data).PushBack(slots_, slot);
  Wait(target);
}

void DciPool::Wait(Target* target) {
  if (target->waiting) return;
  target->waiting = true;
  waiting_.push_back(target);
  ++counters_.waits;
}

void DciPool::Append(Dci& dci, Target* target, uint32_t index) {
  Slot& slot = slots_[index];
  slot.use = SlotUse::kPosted;
  slot.dci = dci.index;
  slot.stream = target->stream;
  dci.fifo[dci.tail++ & Mask()] = index;
  ++target->posted;
  ++posted_;
  if (exclusive_) ++dci.streams[slot.stream].posted;
  if (dci.tail - dci.rung >= kMaxBatch) Ring(dci);
}

void DciPool::Flush() {
  for (auto& dci : dcis_) {
    if (dci->rung != dci->tail) Ring(*dci);
  }
}

void DciPool::Ring(Dci& dci) {
  ibv_qp_ex* ex = dci.qp.ex;
  mlx5dv_qp_ex* dv = dci.qp.dv;
  // Whoever may be waiting for a stream or a buffer must see this completion.
  const bool scarce = (exclusive_ && dci.free_streams.empty()) || slots_.free_data() < low_water_;
  ibv_wr_start(ex);
  for (uint32_t at = dci.rung; at != dci.tail; ++at) {
    const uint32_t index = dci.fifo[at & Mask()];
    const Slot& slot = slots_[index];
    const Target& target = *slot.target;
    const bool signal =
        ++dci.unsignalled >= options_.moderation || slot.notify || slot.signal || scarce;
    if (signal) {
      dci.unsignalled = 0;
      dci.last_signalled = at;
    }
    ex->wr_id = slots_.WrId(index);
    ex->wr_flags = signal ? IBV_SEND_SIGNALED : 0;
    ibv_wr_send(ex);
    ibv_wr_set_sge(ex, lkey_, reinterpret_cast<uint64_t>(slot.data), slot.length_bytes);
    if (exclusive_) {
      mlx5dv_wr_set_dc_addr_stream(dv, target.ah, target.dctn[slot.control],
                                   target.key[slot.control], slot.stream);
    } else {
      mlx5dv_wr_set_dc_addr(dv, target.ah, target.dctn[slot.control], target.key[slot.control]);
    }
  }
  const uint32_t count = dci.tail - dci.rung;
  if (ibv_wr_complete(ex) == 0) {
    dci.rung = dci.tail;
    counters_.posted += count;
    ++counters_.doorbells;
    return;
  }
  // The whole batch was discarded. The queue's depth is kept here, so it is the DCI that is broken.
  const uint32_t end = dci.tail;
  dci.tail = dci.rung;
  for (uint32_t at = dci.rung; at != end; ++at) {
    const uint32_t index = dci.fifo[at & Mask()];
    if (slots_[index].target->closed) {
      Finish(dci, index, false);
    } else {
      Keep(dci, index);
    }
  }
  StartDrain(dci);
}

bool DciPool::ExpectsCompletion() const {
  for (const auto& dci : dcis_) {
    if (dci->state == DciState::kDraining) return true;
    if (dci->rung != dci->head && static_cast<int32_t>(dci->last_signalled - dci->head) >= 0) {
      return true;
    }
  }
  return false;
}

int DciPool::Poll(bool thorough) {
  int count = 0;
  const bool draining = posted_ == 0 && ExpectsCompletion();
  if (posted_ != 0 || draining) {
    if (thorough || draining || ExpectsCompletion() || ++quiet_polls_ >= kQuietPollPeriod) {
      quiet_polls_ = 0;
      ibv_wc completions[kMaxPollBatch];
      const int got = ibv_poll_cq(cq_, kMaxPollBatch, completions);
      for (int i = 0; i < got; ++i) OnCompletion(completions[i]);
      count = std::max(got, 0);
    }
  }
  if (pump_ && !waiting_.empty()) Pump();
  pump_ = false;
  return count;
}

void DciPool::Pump() {
  for (size_t turns = waiting_.size(); turns > 0; --turns) {
    Target* target = waiting_.front();
    waiting_.pop_front();
    target->waiting = false;
    for (int posted = 0; posted < kQuota && target->has_pending(); ++posted) {
      Dci* dci = Place(target);
      if (dci == nullptr) break;
      uint32_t slot;
      if (!target->repost.empty()) {
        slot = target->repost.PopFront(slots_);
        ++counters_.reposted;
      } else if (!target->control.empty()) {
        slot = target->control.PopFront(slots_);
      } else {
        slot = target->data.PopFront(slots_);
      }
      Append(*dci, target, slot);
    }
    if (target->has_pending()) {
      target->waiting = true;
      waiting_.push_back(target);
    }
  }
  Flush();
}

void DciPool::OnCompletion(const ibv_wc& wc) {
  if (IsSentinel(wc.wr_id)) {
    OnSentinel(*dcis_[SentinelDci(wc.wr_id) % dcis_.size()]);
    return;
  }
  const auto index = slots_.Posted(wc.wr_id);
  if (!index.has_value()) {
    ++counters_.late;
    return;
  }
  Dci& dci = *dcis_[slots_[*index].dci];
  // Whatever was posted before it on this DCI and said nothing has succeeded.
  while (dci.head != dci.rung) {
    const uint32_t oldest = dci.fifo[dci.head++ & Mask()];
    if (oldest == *index) break;
    Finish(dci, oldest, true);
  }
  if (wc.status == IBV_WC_SUCCESS) {
    Finish(dci, *index, true);
  } else {
    Fail(dci, *index, wc);
  }
}

void DciPool::Finish(Dci& dci, uint32_t index, bool ok) {
  Slot& slot = slots_[index];
  if (slot.notify) user_.OnSent(slot.target, index, ok);
  Unpost(dci, index);
  slots_.Give(index);
}

void DciPool::Unpost(Dci& dci, uint32_t index) {
  Slot& slot = slots_[index];
  Target* target = slot.target;
  --posted_;
  pump_ = true;
  if (exclusive_) --dci.streams[slot.stream].posted;
  if (--target->posted != 0) return;
  target->stream = kNoStream;
  if (exclusive_) CheckStream(dci, slot.stream);
  if (target->closed) user_.OnTargetQuiet(target);
}

void DciPool::Close(Target* target) {
  if (target->closed) return;
  target->closed = true;
  if (target->waiting) {
    target->waiting = false;
    std::erase(waiting_, target);
  }
  for (SlotList* list : {&target->repost, &target->control, &target->data}) {
    while (!list->empty()) {
      const uint32_t slot = list->PopFront(slots_);
      if (slots_[slot].notify) user_.OnSent(target, slot, false);
      slots_.Give(slot);
    }
  }
  // Its tail may be unsignalled: the next request of that DCI answers for it.
  if (target->posted != 0) dcis_[target->dci]->unsignalled = options_.moderation;
}

}  // namespace sluice::queue
