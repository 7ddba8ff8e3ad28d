// SPDX-License-Identifier: Apache-2.0
#include "transport/queue/rc_queues.h"

#include <endian.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <memory>
#include <string_view>
#include <utility>

#include "transport/base/error.h"
#include "transport/queue/completion_error.h"
#include "transport/queue/dci_pool.h"

namespace sluice::queue {
namespace {

constexpr uint8_t kRetryForEver = 7;  // if a receiver is not ready (man ibv_modify_qp)
constexpr uint16_t kAttached = 0;     // Target::stream of a target that has a queue pair

std::string_view OperationName(const Slot& slot) {
  if (slot.control) return "control message";
  if (slot.bulk) return slot.operation == Operation::kRead ? "one-sided read" : "one-sided write";
  return "send";
}

bool IsRefusal(ibv_wc_status status) {
  return status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_LOC_PROT_ERR;
}

void Describe(const Slot& slot, uint32_t lkey, ibv_sge* segment, ibv_send_wr* work) {
  const auto data = reinterpret_cast<uint64_t>(slot.data);
  const RemoteWrite& write = slot.write;
  segment->lkey = slot.bulk ? slot.lkey : lkey;
  work->sg_list = segment;
  work->num_sge = 1;
  if (slot.operation == Operation::kSend) {
    segment->addr = data;
    segment->length = slot.length_bytes;
    work->opcode = IBV_WR_SEND;
    return;
  }
  segment->addr = data + write.offset_bytes;
  segment->length = write.length_bytes;
  work->wr.rdma.remote_addr = write.address;
  work->wr.rdma.rkey = write.rkey;
  work->opcode = slot.operation == Operation::kRead ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
  if (slot.operation == Operation::kWriteAnnounced) {
    work->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    work->imm_data = htobe32(write.immediate);
  }
}

}  // namespace

RcQueues::RcQueues(device::Device& device, ibv_cq* cq, SlotTable& slots, uint32_t lkey,
                   const RcOptions& options, poller::Commands& commands, QueueUser& user)
    : SendQueues(slots),
      api_(device.api()),
      pd_(device.pd()),
      cq_(cq),
      lkey_(lkey),
      commands_(commands),
      user_(user),
      path_(device.path()),
      send_depth_(std::min(options.send_depth, std::max(device.limits().max_qp_wr, 1u))),
      room_(send_depth_),
      fifo_size_(std::bit_ceil(send_depth_)),
      low_water_(slots.free_data() / 4) {
  // Credits ensure that a live peer has buffers. Keepalive and Watch() find a peer that has stopped.
  path_.rnr_retry = kRetryForEver;
  path_.timeout = DeriveTimeout(options.dead_peer_ns, path_.retry_count);
  attempt_ns_ = (int64_t{4096} << path_.timeout) * (path_.retry_count + 1);
}

RcQueues::~RcQueues() = default;

absl::StatusOr<verbs::SharedRc> RcQueues::Make(ibv_cq* receive_cq, ibv_srq* srq) const {
  auto qp = verbs::CreateSharedRc(api_, pd_, cq_, receive_cq, srq, send_depth_);
  if (!qp.ok()) return qp.status();
  absl::Status status = verbs::InitRc(api_, qp->get(), path_, /*access=*/0);
  if (!status.ok()) return status;
  return qp;
}

absl::Status RcQueues::Connect(ibv_qp* qp, verbs::RcRoute route) const {
  route.ah.port_num = path_.port;
  // Kernels before 6.4 report a rate that is too slow for fast RoCE ports (fact 188).
  if (route.ah.is_global != 0 && route.ah.dlid == 0) route.ah.static_rate = IBV_RATE_MAX;
  verbs::SetClass(path_, &route.ah);
  return verbs::ConnectRc(api_, qp, path_, route);
}

absl::Status RcQueues::Attach(Target* target, verbs::SharedRc qp) {
  if (free_.empty()) {
    if (queues_.size() == kMostQueues) {
      return base::Error(absl::StatusCode::kResourceExhausted,
                         "all " + std::to_string(kMostQueues) + " queue pairs are taken",
                         {.layer = "queue",
                          .operation = "connect",
                          .cause = "each peer has one",
                          .remedy = "use several endpoints"});
    }
    free_.push_back(static_cast<uint16_t>(queues_.size()));
    queues_.push_back(std::make_unique<Queue>());
    queues_.back()->index = free_.back();
  }
  Queue& queue = *queues_[free_.back()];
  free_.pop_back();
  queue.qp = std::move(qp);
  queue.number = queue.qp->qp_num;
  by_number_[queue.number] = queue.index;
  queue.fifo.assign(fifo_size_, kNoSlot);
  queue.targets[0] = target;
  target->dci = queue.index;
  target->stream = kAttached;
  return absl::OkStatus();
}

Target* RcQueues::Find(uint32_t number) const {
  const auto found = by_number_.find(number);
  return found == by_number_.end() ? nullptr : queues_[found->second]->targets[0];
}

void RcQueues::Share(Target* other, const Target& target) {
  other->dci = target.dci;
  other->stream = kAttached;
  queues_[target.dci]->targets[1] = other;
}

void RcQueues::Open(Target* target) {
  target->posted = 0;
  target->failures = 0;
  target->closed = target->waiting = target->broken = target->probation = false;
}

void RcQueues::Post(Target* target, uint32_t index) {
  slots_[index].target = target;
  Queue& queue = *queues_[target->dci];
  if (target->closed || queue.ending) return ReleaseUnposted(index);
  if (!target->has_pending() && Posted(queue) < room_) return Append(queue, target, index);
  slots_[index].use = SlotUse::kPending;
  // A control request with `notify` stays behind the data, because it is a goodbye.
  const Slot& slot = slots_[index];
  const bool ahead = slot.control && !slot.notify && !slot.in_order;
  (ahead ? target->control : target->data).PushBack(slots_, index);
  ++counters_.waits;
}

void RcQueues::Append(Queue& queue, Target* target, uint32_t index) {
  Slot& slot = slots_[index];
  slot.use = SlotUse::kPosted;
  slot.dci = queue.index;
  slot.stream = kAttached;
  queue.fifo[queue.tail++ & Mask()] = index;
  ++target->posted;
  ++posted_;
  if (!std::exchange(queue.unrung, true)) unrung_.push_back(&queue);
  if (queue.tail - queue.rung >= kMaxBatch) Ring(queue);
}

void RcQueues::Flush() {
  for (Queue* queue : unrung_) {
    queue->unrung = false;
    if (queue->rung != queue->tail && !queue->ending) Ring(*queue);
  }
  unrung_.clear();
}

void RcQueues::Ring(Queue& queue) {
  ibv_sge segments[kMaxBatch];
  ibv_send_wr work[kMaxBatch] = {};
  const uint32_t count = queue.tail - queue.rung;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t index = queue.fifo[(queue.rung + i) & Mask()];
    Slot& slot = slots_[index];
    Describe(slot, lkey_, &segments[i], &work[i]);
    const bool last = i + 1 == count;
    slot.signalled = last || slot.notify || slot.signal;
    work[i].wr_id = slots_.WrId(index);
    work[i].send_flags = slot.signalled ? IBV_SEND_SIGNALED : 0;
    work[i].next = last ? nullptr : &work[i + 1];
  }
  queue.rung = queue.tail;
  ibv_send_wr* bad = nullptr;
  const int error_number = ibv_post_send(queue.qp.get(), work, &bad);
  counters_.posted += count;
  ++counters_.doorbells;
  if (error_number == 0) return;
  End(queue,
      base::ErrnoError(error_number, "ibv_post_send", {.layer = "queue", .operation = "send"}));
}

int RcQueues::Look() {
  ibv_wc completions[kMaxPollBatch];
  const int got = ibv_poll_cq(cq_, kMaxPollBatch, completions);
  for (int i = 0; i < got; ++i) OnCompletion(completions[i]);
  if (got < 0) [[unlikely]]
    Abandon(PollError("queue", "send"));
  return std::max(got, 0);
}

int RcQueues::Poll(bool /*thorough*/) {
  const int count = posted_ == 0 ? 0 : Look();
  for (size_t i = 0; i < moved_.size(); ++i) {
    moved_[i]->moved = false;
    Serve(*moved_[i]);
  }
  moved_.clear();
  return count;
}

void RcQueues::Serve(Queue& queue) {
  if (queue.ending) return;
  for (Target* target : queue.targets) {
    while (target != nullptr && target->has_pending() && Posted(queue) < room_ && !queue.ending) {
      SlotList& list = target->control.empty() ? target->data : target->control;
      Append(queue, target, list.PopFront(slots_));
    }
  }
  if (queue.rung != queue.tail && !queue.ending) Ring(queue);
}

void RcQueues::OnCompletion(const ibv_wc& wc) {
  const auto index = slots_.Posted(wc.wr_id);
  if (!index.has_value()) {
    ++counters_.late;
    return;
  }
  Queue& queue = *queues_[slots_[*index].dci];
  if (!std::exchange(queue.moved, true)) moved_.push_back(&queue);
  const bool ok = wc.status == IBV_WC_SUCCESS;
  // All earlier requests that have no completion have succeeded. After a flush, their result is unknown.
  const bool flushed = wc.status == IBV_WC_WR_FLUSH_ERR;
  while (queue.head != queue.rung) {
    const uint32_t oldest = queue.fifo[queue.head++ & Mask()];
    if (oldest == *index) break;
    Finish(oldest, !flushed);
  }
  if (ok) return Finish(*index, true);
  ++(flushed ? counters_.flushed : counters_.failed);
  Slot& slot = slots_[*index];
  slot.refused = slot.bulk && IsRefusal(wc.status);
  const absl::Status why = CompletionError(wc, {.operation = OperationName(slot),
                                                .peer = slot.target->name,
                                                .length_bytes = slot.length_bytes,
                                                .rc = true});
  // End() comes first, because the user may post again when Finish() reports the request.
  End(queue, why);
  Finish(*index, false);
}

void RcQueues::Finish(uint32_t index, bool ok) {
  Slot& slot = slots_[index];
  Target* target = slot.target;
  if (slot.notify) user_.OnSent(target, index, ok);
  --posted_;
  --target->posted;
  slots_.Complete(index);
  if (target->posted == 0 && target->closed) user_.OnTargetQuiet(target);
}

void RcQueues::ReleaseUnposted(uint32_t index) {
  Slot& slot = slots_[index];
  if (slot.notify) user_.OnSent(slot.target, index, false);
  slots_.Complete(index);
}

void RcQueues::ReleasePending(Target* target) {
  for (SlotList* list : {&target->control, &target->data}) {
    while (!list->empty()) ReleaseUnposted(list->PopFront(slots_));
  }
}

void RcQueues::Close(Target* target) {
  if (!IsAttached(*target) || target->closed) return;
  target->closed = true;
  ReleasePending(target);
  Queue& queue = *queues_[target->dci];
  if (queue.targets[1] == target) queue.targets[1] = nullptr;
  if (queue.targets[0] == target) Destroy(queue);
}

// Ends a queue pair that no longer reaches its peer, and closes its targets.
void RcQueues::End(Queue& queue, const absl::Status& why) {
  if (queue.ending) return;
  const std::array<Target*, 2> targets = queue.targets;
  Destroy(queue);
  for (Target* target : targets) {
    if (target == nullptr || target->closed) continue;
    target->closed = true;
    ReleasePending(target);
    user_.OnTargetFailed(target, why);
  }
}

// Posted requests use the memory of their slots until the queue pair is destroyed. The queue pair goes to ERR first: from then on it takes
// no receives of the shared queue, and the receives that it has taken have completions. Immediate destruction would drop unread
// completions, and with them the receives (libmlx5's mlx5_destroy_qp removes them from the CQ).
void RcQueues::Destroy(Queue& queue) {
  if (std::exchange(queue.ending, true)) return;
  ++ending_;
  queue.targets = {};
  commands_.Submit(
      [this, qp = queue.qp.get()] {
        ibv_qp_attr attr = {};
        attr.qp_state = IBV_QPS_ERR;
        api_.modify_qp(qp, &attr, IBV_QP_STATE);  // destroyed even if this fails
      },
      [this, of = &queue] { OnStopped(*of); });
}

// The owner empties its receive queue before it calls DestroyStopped().
void RcQueues::OnStopped(Queue& queue) { stopped_.push_back(&queue); }

void RcQueues::DestroyStopped() {
  for (Queue* queue : stopped_) {
    commands_.Submit([qp = &queue->qp] { qp->reset(); }, [this, of = queue] { OnDestroyed(*of); });
  }
  stopped_.clear();
}

void RcQueues::OnDestroyed(Queue& queue) {
  // Takes the completions of requests that have ended before. This also makes room in the CQ for the next use of the slots.
  while (posted_ != 0 && Look() != 0) {
  }
  while (queue.head != queue.tail) Finish(queue.fifo[queue.head++ & Mask()], false);
  if (queue.unrung) std::erase(unrung_, &queue);
  if (queue.moved) std::erase(moved_, &queue);
  // A queue pair that was made on another thread may have the number already.
  const auto found = by_number_.find(queue.number);
  if (found != by_number_.end() && found->second == queue.index) by_number_.erase(found);
  --ending_;
  const uint16_t index = queue.index;
  queue = Queue();
  queue.index = index;
  free_.push_back(index);
}

void RcQueues::Abandon(const absl::Status& why) {
  for (size_t i = 0; i < queues_.size(); ++i) {
    if (queues_[i]->targets[0] != nullptr) End(*queues_[i], why);
  }
  user_.OnQueueDead(why);
}

bool RcQueues::IsInFront(const Target& target) const {
  if (!IsAttached(target)) return false;
  const Queue& queue = *queues_[target.dci];
  return queue.head != queue.rung && slots_[queue.fifo[queue.head & Mask()]].target == &target;
}

// Ends a queue pair that owes a completion for longer than any request takes.
bool RcQueues::Watch(int64_t now_ns) {
  for (size_t i = 0; i < queues_.size(); ++i) {
    Queue& queue = *queues_[i];
    if (queue.ending || queue.head == queue.rung) {
      queue.watched_ns = -1;
    } else if (queue.watched_ns < 0 || queue.watched_head != queue.head) {
      queue.watched_head = queue.head;
      queue.watched_ns = now_ns;
    } else if (now_ns - queue.watched_ns >= kWatchAttempts * attempt_ns_) {
      // If the polling thread has not run for so long, the completions are in the queue.
      while (Look() == kMaxPollBatch) {
      }
      if (queue.ending || queue.head != queue.watched_head) continue;
      ++counters_.stuck_dcis;
      const int64_t silent_ns = now_ns - queue.watched_ns;
      End(queue, StuckError(queue.targets[0]->name, silent_ns, silent_ns));
    }
  }
  return completions_due();
}

std::vector<RcQueues::Report> RcQueues::Reports() const {
  std::vector<Report> reports;
  for (const auto& queue : queues_) {
    if (queue->ending || queue->number == 0) continue;
    reports.push_back({.qp_number = queue->number, .posted = Posted(*queue)});
  }
  return reports;
}

}  // namespace sluice::queue
