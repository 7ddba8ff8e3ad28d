// SPDX-License-Identifier: Apache-2.0
//
// Posting and completion of requests. placement.cc selects the DCI of a request. errors.cc and dci_recovery.cc handle errors.
#include "transport/queue/dci_pool.h"

#include <endian.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cerrno>
#include <utility>

#include "transport/base/error.h"
#include "transport/queue/completion_error.h"
#include "transport/queue/sentinel.h"

namespace sluice::queue {
namespace {

// If no signalled request is in flight, a completion can only be an error. So only one of this many calls polls the queue.
constexpr uint32_t kQuietPollPeriod = 64;
constexpr uint32_t kMinQuantumBytes = 4096;

}  // namespace

uint8_t DeriveTimeout(int64_t attempt_ns, uint8_t retry_count) {
  uint8_t timeout = 1;
  const int64_t tries = retry_count + 1;
  while (timeout < 31 && (int64_t{4096} << (timeout + 1)) * tries <= attempt_ns) ++timeout;
  return timeout;
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
    : SendQueues(slots),
      device_(device),
      api_(device.api()),
      cq_(cq),
      lkey_(lkey),
      options_(options),
      commands_(commands),
      user_(user),
      path_(device.path()) {
  nobody_.closed = true;  // so its errors are not reported
  nobody_.probation = false;
  path_.timeout = DeriveTimeout(options.dead_peer_ns / kMaxFailures, path_.retry_count);
  attempt_ns_ = (int64_t{4096} << path_.timeout) * (path_.retry_count + 1);
}

DciPool::~DciPool() = default;

absl::Status DciPool::Init() {
  const verbs::CapabilityReport& can = device_.capabilities();
  exclusive_ = options_.use_streams && can.Has(verbs::Feature::kStreams);
  can_reset_ = exclusive_ && can.Has(verbs::Feature::kStreamReset);
  dci_options_.send_depth = options_.send_depth;
  if (exclusive_) {
    dci_options_.streams = true;
    dci_options_.log_concurrent = std::min(device_.limits().log_streams, options_.max_log_streams);
    dci_options_.log_errored =
        std::min(device_.limits().log_errored_streams, dci_options_.log_concurrent);
    error_limit_ = 1u << dci_options_.log_errored;
  }
  fifo_size_ = std::bit_ceil(options_.send_depth);
  low_water_ = slots_.free_data() / 4;
  // One place stays free for the sentinel of a recovery. A DCI whose completions are delayed holds at most a third of the buffers.
  room_ = std::clamp(slots_.free_data() / 3, 1u, options_.send_depth - 1);
  in_flight_cap_ = std::max(options_.send_depth / 4, 1u);
  // Completions arrive before a target reaches the cap, and a target at the cap has requested a completion.
  moderation_ = std::clamp(in_flight_cap_ / 2, 1u, options_.moderation);
  // Enough for one message, or for a batch of small messages.
  quantum_bytes_ = std::max(slots_.max_bytes(), kMinQuantumBytes) + kRequestBytes;

  ibv_ah_attr attr = verbs::AddressVector(path_);
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

  for (uint32_t i = 0; i <= options_.dci_count; ++i) {
    absl::Status status = AddDci(/*probation=*/i == options_.dci_count);
    if (!status.ok()) return status;
  }
  template_qpn_ = dcis_.front()->qp.number();
  return absl::OkStatus();
}

absl::Status DciPool::AddDci(bool probation) {
  auto qp = verbs::CreateDci(api_, device_.context(), device_.pd(), cq_, dci_options_);
  if (!qp.ok()) return qp.status();
  absl::Status status = verbs::ActivateDci(api_, qp->get(), path_);
  if (!status.ok()) return status;
  auto dci = std::make_unique<Dci>();
  dci->qp = std::move(*qp);
  dci->index = static_cast<uint16_t>(dcis_.size());
  dci->probation = probation;
  dci->fifo.assign(fifo_size_, kNoSlot);
  if (exclusive_) {
    const uint32_t streams = 1u << dci_options_.log_concurrent;
    dci->streams.resize(streams);
    for (uint32_t s = streams; s-- > 0;) dci->free_streams.push_back(static_cast<uint16_t>(s));
  }
  ++living_[probation];
  dcis_.push_back(std::move(dci));
  return absl::OkStatus();
}

void DciPool::Open(Target* target) {
  target->dci = 0;
  target->stream = kNoStream;
  target->posted = 0;
  target->failures = 0;
  target->closed = target->waiting = target->broken = false;
  target->probation = true;
}

void DciPool::Post(Target* target, uint32_t index) {
  slots_[index].target = target;
  if (target->closed || target->broken) return ReleaseUnposted(index);
  if (!target->waiting && !waiting_.crowded(*target)) {
    if (Dci* dci = Place(target)) return Append(*dci, target, index);
  }
  Enqueue(target, index);
}

void DciPool::Enqueue(Target* target, uint32_t index) {
  slots_[index].use = SlotUse::kPending;
  // A control request with `notify` stays behind the data, because it is a goodbye.
  const bool ahead = slots_[index].control && !slots_[index].notify;
  (ahead ? target->control : target->data).PushBack(slots_, index);
  if (target->waiting) return;
  waiting_.Add({target, 0});
  ++counters_.waits;
  // The target may leave its DCI. Pump() finds out after the owner has counted this message.
  pump_ = true;
}

void DciPool::Acknowledged(Target* target) {
  target->failures = 0;
  if (target->waiting) pump_ = true;  // the target may leave its DCI
  if (target->probation) EndProbation(target);
}

void DciPool::EndProbation(Target* target) {
  const bool waiting = target->waiting;
  waiting_.Remove(target);
  target->probation = false;
  if (waiting) waiting_.Add({target, 0});
}

void DciPool::Append(Dci& dci, Target* target, uint32_t index) {
  Slot& slot = slots_[index];
  slot.use = SlotUse::kPosted;
  slot.dci = dci.index;
  slot.stream = target->stream;
  dci.fifo[dci.tail++ & Mask()] = index;
  unrung_ |= uint64_t{1} << dci.index;
  ++target->posted;
  ++posted_;
  if (exclusive_) ++dci.streams[slot.stream].posted;
  if (dci.tail - dci.rung >= kMaxBatch) Ring(dci);
}

void DciPool::Flush() {
  for (uint64_t unrung = std::exchange(unrung_, 0); unrung != 0; unrung &= unrung - 1) {
    Dci& dci = *dcis_[std::countr_zero(unrung)];
    if (dci.rung != dci.tail) Ring(dci);
  }
}

[[gnu::always_inline]] inline void DciPool::Start(ibv_qp_ex* ex, const Slot& slot) const {
  const auto data = reinterpret_cast<uint64_t>(slot.data);
  const RemoteWrite& write = slot.write;
  const uint32_t lkey = slot.bulk ? slot.lkey : lkey_;
  switch (slot.operation) {
    case Operation::kSend:
      ibv_wr_send(ex);
      return ibv_wr_set_sge(ex, lkey, data, slot.length_bytes);
    case Operation::kWrite:
      ibv_wr_rdma_write(ex, write.rkey, write.address);
      break;
    case Operation::kWriteAnnounced:
      ibv_wr_rdma_write_imm(ex, write.rkey, write.address, htobe32(write.immediate));
      break;
    case Operation::kRead:
      ibv_wr_rdma_read(ex, write.rkey, write.address);
      break;
  }
  ibv_wr_set_sge(ex, lkey, data + write.offset_bytes, write.length_bytes);
}

void DciPool::Ring(Dci& dci) {
  ibv_qp_ex* ex = dci.qp.ex;
  mlx5dv_qp_ex* dv = dci.qp.dv;
  // A target that waits for a stream or a buffer needs this completion.
  const bool scarce =
      dci.probation || (exclusive_ && dci.free_streams.empty()) || slots_.free_data() < low_water_;
  ibv_wr_start(ex);
  for (uint32_t at = dci.rung; at != dci.tail; ++at) {
    const uint32_t index = dci.fifo[at & Mask()];
    Slot& slot = slots_[index];
    const Target& target = *slot.target;
    const bool signal = ++dci.unsignalled >= moderation_ || slot.notify || slot.signal || scarce;
    if (signal) {
      dci.unsignalled = 0;
      dci.last_signalled = at;
      expecting_ = true;
    }
    slot.signalled = signal;
    ex->wr_id = slots_.WrId(index);
    ex->wr_flags = signal ? IBV_SEND_SIGNALED : 0;
    Start(ex, slot);
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
  // The whole batch was discarded. The pool does not exceed the depth of the queue, so the DCI is broken.
  const uint32_t end = dci.tail;
  dci.tail = dci.rung;
  FailUnposted(dci, end);
  StartDrain(dci);
}

bool DciPool::ExpectsCompletion() const {
  for (const auto& dci : dcis_) {
    if (dci->state == DciState::kDraining) return true;
    if (dci->OwesCompletion()) return true;
  }
  return false;
}

bool DciPool::completions_due() const {
  if (posted_ == 0) return ExpectsCompletion();
  for (const auto& dci : dcis_) {
    if (dci->state == DciState::kDraining || dci->OwesCompletion()) return true;
    if (dci->state == DciState::kReady && LastToAsk(*dci) != nullptr) return true;
  }
  return false;
}

int DciPool::Poll(bool thorough) {
  int count = 0;
  // A DCI without posted requests may still be draining.
  if (expecting_) expecting_ = ExpectsCompletion();
  if (expecting_ || (posted_ != 0 && (++quiet_polls_ >= kQuietPollPeriod || thorough))) {
    count = TakeCompletions();
  }
  if (pump_) {
    if (!waiting_.empty()) Pump();
    pump_ = false;
  }
  return count;
}

// A separate function, because its array would slow down each call of Poll().
int DciPool::TakeCompletions() {
  quiet_polls_ = 0;
  ibv_wc completions[kMaxPollBatch];
  const int got = ibv_poll_cq(cq_, kMaxPollBatch, completions);
  for (int i = 0; i < got; ++i) OnCompletion(completions[i]);
  if (got < 0) [[unlikely]]
    OnPollError();
  return std::max(got, 0);
}

// The completions that the driver has taken are lost, so the pool cannot know which requests have ended.
void DciPool::OnPollError() { Abandon(PollError("queue", "send")); }

void DciPool::OnCompletion(const ibv_wc& wc) {
  if (IsSentinel(wc.wr_id)) {
    Dci& dci = *dcis_[SentinelDci(wc.wr_id) % dcis_.size()];
    if (dci.state != DciState::kDraining || SentinelDrain(wc.wr_id) != dci.drains) {
      ++counters_.late;
      return;
    }
    return OnSentinel(dci);
  }
  const auto index = slots_.Posted(wc.wr_id);
  if (!index.has_value()) {
    ++counters_.late;
    return;
  }
  Dci& dci = *dcis_[slots_[*index].dci];
  dci.late = dci.needs_signal = false;
  pump_ = true;
  if (wc.status == IBV_WC_RETRY_EXC_ERR) [[unlikely]]
    Measure(dci, *index);
  if (dci.state == DciState::kDraining) [[unlikely]] {
    uint32_t at = dci.head;
    while (at != dci.rung && dci.fifo[at & Mask()] != *index) ++at;
    BreakSilent(dci, at);
  }
  // All earlier requests on this DCI that have no completion have succeeded.
  while (dci.head != dci.rung) {
    const uint32_t oldest = dci.fifo[dci.head++ & Mask()];
    if (oldest == *index) break;
    const Slot& slot = slots_[oldest];
    const Slot* const next = dci.head == dci.rung ? nullptr : &slots_[dci.fifo[dci.head & Mask()]];
    if (next == nullptr || slot.notify || next->target != slot.target ||
        next->stream != slot.stream) {
      Finish(dci, oldest, true);
      continue;
    }
    // Another request of the target is posted on this stream, so no count reaches zero here.
    --posted_;
    --slot.target->posted;
    if (exclusive_) --dci.streams[slot.stream].posted;
    slots_.Complete(oldest);
  }
  if (wc.status == IBV_WC_SUCCESS) {
    const Slot& slot = slots_[*index];
    if (slot.target->probation || slot.target->failures != 0) OnSuccess(slot);
    Finish(dci, *index, true);
  } else {
    Fail(dci, *index, wc);
  }
}

void DciPool::Finish(Dci& dci, uint32_t index, bool ok) {
  Slot& slot = slots_[index];
  if (slot.notify) user_.OnSent(slot.target, index, ok);
  Unpost(dci, index);
  slots_.Complete(index);
}

// Clears `failures` after the success of a data request, or if the target has acknowledged all data. A target that gets only control
// messages never acknowledges any. Ends the probation of the target.
void DciPool::OnSuccess(const Slot& slot) {
  Target* target = slot.target;
  if (!IsCurrent(slot) || target->broken) return;  // older than the error
  if (!slot.control || target->unacknowledged == 0) target->failures = 0;
  if (target->probation) EndProbation(target);
}

void DciPool::Unpost(Dci& dci, uint32_t index) {
  Slot& slot = slots_[index];
  Target* target = slot.target;
  --posted_;
  pump_ = true;
  --target->posted;
  if (exclusive_) {
    if (--dci.streams[slot.stream].posted == 0) OnStreamIdle(dci, slot.stream, target);
  } else if (target->posted == 0) {
    target->stream = kNoStream;
  }
  if (target->posted == 0 && target->closed && target != &nobody_) user_.OnTargetQuiet(target);
}

void DciPool::OnStreamIdle(Dci& dci, uint16_t id, Target* target) {
  Stream& stream = dci.streams[id];
  if (Next(stream.state, StreamEvent::kIdle, &stream.state)) {
    dci.free_streams.push_back(id);
    if (target->dci == dci.index && target->stream == id) target->stream = kNoStream;
  } else if (stream.state == StreamState::kErrored && dci.state == DciState::kReady) {
    ResetStream(dci, id);
  }
}

// Ends a slot that was not posted, or whose result is unknown.
void DciPool::ReleaseUnposted(uint32_t index) {
  Slot& slot = slots_[index];
  if (slot.notify) user_.OnSent(slot.target, index, false);
  slots_.Complete(index);
}

void DciPool::ReleasePending(Target* target) {
  waiting_.Remove(target);
  for (SlotList* list : {&target->control, &target->data}) {
    while (!list->empty()) ReleaseUnposted(list->PopFront(slots_));
  }
}

void DciPool::Close(Target* target) {
  if (target->closed) return;
  target->closed = true;
  std::erase_if(broken_, [target](const Broken& broken) { return broken.target == target; });
  target->broken = false;
  ReleasePending(target);
  if (target->posted != 0) Disown(target);
}

// Separates posted requests without `notify` from their closed target. Their completions may come late, since no completion
// was asked for: the next request on that DCI asks. The target does not wait for them.
void DciPool::Disown(Target* target) {
  for (auto& dci : dcis_) {
    if (dci->rung != dci->tail) Ring(*dci);  // afterwards the device does not need the target
    for (uint32_t at = dci->head; at != dci->rung; ++at) {
      Slot& slot = slots_[dci->fifo[at & Mask()]];
      if (slot.target != target || slot.notify) continue;
      slot.target = &nobody_;
      ++nobody_.posted;
      --target->posted;
      dci->unsignalled = moderation_;
      // They fail if the DCT of the peer no longer exists.
      dci->disowned = true;
      dci->disowned_end = dci->rung;
      dci->disowned_ns = 0;
    }
  }
}

}  // namespace sluice::queue
