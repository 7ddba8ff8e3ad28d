// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/fabric_shm/send_execution.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "transport/softdc/loop/loop.h"
#include "transport/softdc/model/context.h"
#include "transport/softdc/model/mtu.h"
#include "transport/softdc/model/mutation.h"
#include "transport/softdc/model/pkey.h"
#include "transport/softdc/model/timing.h"

namespace sluice::softdc {
namespace {

constexpr int64_t kAskAgainNs = 100'000;  // while an answer is awaited: a lost answer costs no more
constexpr int64_t kAnswerMaxNs =
    10'000'000'000;  // a living context that does not answer for this time counts as dead
constexpr int64_t kCompletionSpaceNs = 50'000;  // the receiver's CQ is full: it has to poll
constexpr int64_t kCopyNs = 20'000;  // a process copies through a window that is being invalidated
// Longer WRITEs gain nothing from running together, and would block the link for other queues.
constexpr uint32_t kMaxJoinedWriteBytes = 4096;

// Returns whether the WQE may run together with other WRITEs. A WRITE of 0 bytes needs no right at the target, so it is judged alone.
bool IsShortWrite(const Wqe& wqe) {
  return wqe.opcode == IBV_WR_RDMA_WRITE && wqe.length_bytes != 0 &&
         wqe.length_bytes <= kMaxJoinedWriteBytes;
}

}  // namespace

int64_t SendExecution::NowNs() {
  if (now_ns_ == 0) now_ns_ = Loop::NowNs();
  return now_ns_;
}

void SendExecution::Run(uint64_t first) {
  for (uint64_t sequence = first; sequence != queue_.posted();) {
    if (queue_.slot(sequence).state == WqeState::kPosted) {
      sequence += RunFrom(sequence);
    } else {
      ++sequence;
    }
  }
  queue_.Settle();
  if (queue_.waiting() == 0) return;
  if (awaits_answer_) requester_.port_.AddWaiting(requester_.continuation_);
  if (next_try_ns_ != INT64_MAX) requester_.ContinueAt(next_try_ns_);
}

void SendExecution::RunClaimed(uint64_t sequence, ReceiveDelivery& delivery,
                               const shm::ClaimedWqe& claimed, Target::Reach& reach) {
  Wqe& wqe = queue_.slot(sequence);
  FinishDelivery(wqe, delivery.Deliver(wqe, SourceOf(wqe, sequence), claimed), reach);
  queue_.Settle();  // before the bell, as in RunSends
}

uint32_t SendExecution::RunFrom(uint64_t sequence) {
  Wqe& wqe = queue_.slot(sequence);
  local_ = {};  // the region may have been deregistered since an earlier run
  switch (queue_.TurnOf(sequence)) {
    case SendQueue::Turn::kFlush:
      queue_.Flush(wqe);
      return 1;
    case SendQueue::Turn::kBehind:
      WaitBehind(wqe);
      return 1;
    case SendQueue::Turn::kRun:
      break;
  }
  // It is too early to retry.
  if (!wqe.awaits_answer && wqe.next_try_ns != 0 && wqe.next_try_ns > NowNs()) {
    Wait(wqe, wqe.next_try_ns);
    return 1;
  }
  if (IsLocal(wqe.opcode) || wqe.cancelled) {
    if (!queue_.RunLocally(sequence)) Wait(wqe, NowNs() + kCopyNs);
    return 1;
  }
  if (!queue_.CheckLocalSide(sequence)) return 1;
  Outcome outcome = Outcome::kNoResponse;
  Target::Reach* reach = Reach(wqe, &outcome);
  if (reach == nullptr) {
    Settle(wqe, outcome, nullptr);
    return 1;
  }
  const Verdict verdict = JudgeRequest(wqe, queue_.traits().target, *reach->descriptor,
                                       queue_.context().dials(), queue_.attr().path_mtu,
                                       PkeyAt(queue_.context().dials(), queue_.attr().pkey_index));
  if (verdict != Verdict::kAccepted) {
    Refuse(wqe, verdict, *reach);
    return 1;
  }
  SOFTDC_KILL_POINT(kTargetJudged);
  wqe.awaits_answer = false;
  if (IsSend(wqe.opcode)) return RunSends(sequence, *reach);
  if (IsShortWrite(wqe)) return RunWrites(sequence, *reach);
  if (wqe.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
    RunWriteWithImm(wqe, sequence, *reach);
  } else {
    RunOneSided(wqe, sequence, *reach);
  }
  return 1;
}

Target::Reach* SendExecution::Reach(const Wqe& wqe, Outcome* why_not) {
  *why_not = Outcome::kNoResponse;
  if (wqe.node == kNoNode) return nullptr;
  Target* target = requester_.Find(wqe.target_number);
  switch (target->status.load(std::memory_order_acquire)) {
    case TargetStatus::kReady:
      break;
    case TargetStatus::kAsking:
      *why_not = Outcome::kAsking;
      return nullptr;
    case TargetStatus::kUnknown:
      // Each try asks once. If the answer is that there is no target, the try ends without a response, until the next ack timeout.
      if (!wqe.awaits_answer) {
        requester_.port_.outbound().Ask(target);
        *why_not = Outcome::kAsking;
      }
      return nullptr;
    case TargetStatus::kDropped:
      return ReachAnew(wqe, why_not);
  }
  Target::Reach* reach = target->reach.load(std::memory_order_acquire);
  if (reach == nullptr || reach->link->dead()) return nullptr;
  if (!wqe.awaits_answer && reach->descriptor->state.load(std::memory_order_acquire) ==
                                static_cast<uint32_t>(shm::TargetState::kGone)) {
    requester_.port_.outbound().AskAnew(target);
    *why_not = Outcome::kAsking;
    return nullptr;
  }
  return reach;
}

Target::Reach* SendExecution::ReachAnew(const Wqe& wqe, Outcome* why_not) {
  requester_.Forget(wqe.target_number);
  return Reach(wqe, why_not);
}

ReceiveDelivery SendExecution::Deliver(Target::Reach& reach) {
  return ReceiveDelivery(requester_.port_.outbound(), reach, queue_);
}

bool SendExecution::Joins(uint64_t sequence, const Wqe& first) {
  const Wqe& next = queue_.slot(sequence);
  return next.state == WqeState::kPosted && !next.cancelled && IsSend(next.opcode) &&
         next.target_number == first.target_number && next.key == first.key &&
         next.node != kNoNode && next.next_try_ns == 0 &&
         queue_.TurnOf(sequence) == SendQueue::Turn::kRun && MayBeRead(sequence);
}

// Without side effects: a WQE that fails here must not stop earlier WQEs, which have not run yet.
bool SendExecution::MayBeRead(uint64_t sequence) {
  const Wqe& wqe = queue_.slot(sequence);
  if (wqe.length_bytes > queue_.max_plain_bytes()) return false;
  if (wqe.inlined || wqe.staged) return true;
  for (const ibv_sge& sge : queue_.sges(sequence)) {
    if (!queue_.CheckPlainSide(sge, &local_)) return false;
  }
  return true;
}

[[gnu::always_inline]] inline const std::byte* SendExecution::JoinsPlainly(uint64_t sequence,
                                                                           const Wqe& first,
                                                                           uint32_t max_bytes,
                                                                           bool calm) {
  constexpr uint64_t kOpcode = StateBits({.opcode = 0xff});
  constexpr uint64_t kFree =
      StateBits({.flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED, .inlined = 1});
  SendQueue& queue = queue_;
  const Wqe& next = queue.slot(sequence);
  if ((StateWord(next) & ~kFree) != (StateWord(first) & kOpcode) ||
      next.length_bytes - 1 >= max_bytes || next.target_number != first.target_number ||
      next.key != first.key || next.node == kNoNode || next.next_try_ns != 0) {
    return nullptr;
  }
  if (!calm && queue.TurnOf(sequence) != SendQueue::Turn::kRun) return nullptr;
  if (next.inlined) return queue.inline_place(sequence);
  const ibv_sge& sge = queue.first_sge(sequence);
  if (next.num_sge != 1 || !queue.CheckPlainSide(sge, &local_)) return nullptr;
  return reinterpret_cast<const std::byte*>(sge.addr);
}

uint32_t SendExecution::RunLength(uint64_t sequence) {
  uint32_t length = 1;
  const Wqe& first = queue_.slot(sequence);
  const uint32_t max_bytes = queue_.max_plain_bytes();
  const bool calm = queue_.Calm();
  while (length < shm::kClaimBatchMax && sequence + length != queue_.posted() &&
         (JoinsPlainly(sequence + length, first, max_bytes, calm) != nullptr ||
          Joins(sequence + length, first))) {
    ++length;
  }
  return length;
}

// An error of one WQE of a run does not affect the streams of the others.
bool SendExecution::Spoiled(Wqe& wqe) {
  const StreamState& stream = queue_.stream(wqe);
  if (stream.waiting != 0) {
    WaitBehind(wqe);
  } else if (queue_.state() == IBV_QPS_ERR || stream.errored) {
    queue_.Flush(wqe);
  } else {
    return false;
  }
  return true;
}

// Returns the place of the whole message, or null if it is not in one place.
inline const std::byte* SendExecution::PlainSource(const Wqe& wqe, uint64_t sequence) {
  if (wqe.staged || wqe.length_bytes == 0) return nullptr;
  if (wqe.inlined) return queue_.inline_place(sequence);
  return wqe.num_sge == 1 ? reinterpret_cast<const std::byte*>(queue_.first_sge(sequence).addr)
                          : nullptr;
}

uint32_t SendExecution::RunSends(uint64_t sequence, Target::Reach& reach) {
  const uint32_t want =
      UnlikeMtus(queue_.attr().path_mtu, reach.descriptor->path_mtu) ? 1 : RunLength(sequence);
  SpinLockHolder hold(reach.link->lock);
  ReceiveDelivery delivery = Deliver(reach);
  if (const auto why_not = NotNow(reach)) {
    Settle(queue_.slot(sequence), *why_not, &reach);
    return 1;
  }
  std::array<shm::ClaimedWqe, shm::kClaimBatchMax>& claimed = reach.link->claimed;
  const ReceiveDelivery::Claim claim = delivery.ClaimWqes(want, claimed);
  if (claim.count == 0) {
    Settle(queue_.slot(sequence), OutcomeOf(claim.why_not), &reach);
    return 1;
  }
  bool calm = queue_.Calm();
  for (uint32_t i = 0; i < claim.count; ++i) {
    Wqe& wqe = queue_.slot(sequence + i);
    if (!calm && Spoiled(wqe)) {
      delivery.GiveBack(claimed[i]);
      continue;
    }
    const std::byte* from = PlainSource(wqe, sequence + i);
    if (from != nullptr && delivery.DeliverPlain(wqe, from, claimed[i])) {
      queue_.FinishPlain(wqe);
      continue;
    }
    FinishDelivery(wqe, delivery.Deliver(wqe, SourceOf(wqe, sequence + i), claimed[i]), reach);
    calm = queue_.Calm();
  }
  // Before the end of `delivery`, which wakes the receiver. On a NIC the acknowledgement, and with it the event of our own CQ, comes before
  // any reply. Programs rely on this order.
  queue_.Settle();
  return claim.count;
}

void SendExecution::FinishDelivery(Wqe& wqe, DeliveryStatus status, Target::Reach& reach) {
  switch (status) {
    case DeliveryStatus::kDelivered:
      return queue_.Finish(wqe, IBV_WC_SUCCESS, 0);
    case DeliveryStatus::kTooLong:
      return Refuse(wqe, Verdict::kInvalidRequest, reach);
    case DeliveryStatus::kDenied:
      return Refuse(wqe, Verdict::kAccessDenied, reach);
    case DeliveryStatus::kNotMapped:
      return Settle(wqe, Outcome::kAsking, &reach);
    case DeliveryStatus::kFailed:
      if (!queue_.traits().acknowledged) return queue_.Finish(wqe, IBV_WC_SUCCESS, 0);
      return queue_.Finish(wqe, IBV_WC_REM_OP_ERR, kVendorErrorRemoteOperation);
    case DeliveryStatus::kMaybe: {
      const CompletionStatus failed = StatusOf(Verdict::kNoResponse);
      return queue_.Finish(wqe, failed.status, failed.vendor_error);
    }
    case DeliveryStatus::kNoResponse:
      return Settle(wqe, Outcome::kNoResponse, &reach);
  }
}

void SendExecution::Refuse(Wqe& wqe, Verdict verdict, Target::Reach& reach) {
  if (verdict == Verdict::kNoResponse) return Settle(wqe, Outcome::kNoResponse, &reach);
  if (!queue_.traits().acknowledged) return queue_.Finish(wqe, IBV_WC_SUCCESS, 0);
  if (BringsDown(verdict, queue_.traits().target)) {
    reach.descriptor->state.store(static_cast<uint32_t>(shm::TargetState::kGone),
                                  std::memory_order_release);
    requester_.port_.outbound().TellBadRequest(
        reach.link, wqe.target_number,
        verdict == Verdict::kAccessDenied ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR);
  }
  const CompletionStatus completion = StatusOf(verdict);
  queue_.Finish(wqe, completion.status, completion.vendor_error);
}

SendExecution::Outcome SendExecution::OutcomeOf(ReceiveDelivery::WhyNot why_not) {
  switch (why_not) {
    case ReceiveDelivery::WhyNot::kNoReceive:
      return Outcome::kNotReady;
    case ReceiveDelivery::WhyNot::kNoCompletionSpace:
      return Outcome::kCrowded;
    case ReceiveDelivery::WhyNot::kBroken:
      return Outcome::kNoResponse;
  }
  return Outcome::kNoResponse;
}

MessageSource SendExecution::SourceOf(const Wqe& wqe, uint64_t sequence) {
  MessageSource source;
  if (wqe.inlined) {
    source.inlined = queue_.inline_data(sequence);
  } else {
    source.sges = queue_.sges(sequence);
  }
  source.length_bytes = wqe.length_bytes;
  source.operands = &queue_.operands(sequence);
  return source;
}

std::optional<SendExecution::Outcome> SendExecution::NotNow(Target::Reach& reach) {
  if (IsNow(reach)) [[likely]]
    return std::nullopt;
  return reach.link->dead() || reach.link->ReadyForPrivate() ? Outcome::kNoResponse
                                                             : Outcome::kAsking;
}

uint32_t SendExecution::RunWrites(uint64_t sequence, Target::Reach& reach) {
  SpinLockHolder hold(reach.link->lock);
  ReceiveDelivery delivery = Deliver(reach);
  if (const auto why_not = NotNow(reach)) {
    Settle(queue_.slot(sequence), *why_not, &reach);
    return 1;
  }
  // The first WRITE was judged before. A WRITE that joins is only compared with it.
  const Wqe& first = queue_.slot(sequence);
  const uint32_t max_bytes = std::min(kMaxJoinedWriteBytes, queue_.max_plain_bytes());
  const uint64_t most =
      UnlikeMtus(queue_.attr().path_mtu, reach.descriptor->path_mtu) ? 1 : shm::kClaimBatchMax;
  const uint64_t end = std::min(queue_.posted(), sequence + most);
  const std::byte* from = PlainSource(first, sequence);
  bool calm = queue_.Calm();
  uint64_t at = sequence;
  for (;;) {
    Wqe& wqe = queue_.slot(at);
    if (from != nullptr && delivery.WritePlain(wqe, from)) [[likely]] {
      queue_.FinishPlain(wqe);
    } else {
      FinishDelivery(wqe, delivery.OneSided(wqe, SourceOf(wqe, at)), reach);
      calm = queue_.Calm();
    }
    ++at;
    if (at == end) break;
    from = JoinsPlainly(at, first, max_bytes, calm);
    if (from == nullptr) break;
  }
  return static_cast<uint32_t>(at - sequence);
}

void SendExecution::RunOneSided(Wqe& wqe, uint64_t sequence, Target::Reach& reach) {
  SpinLockHolder hold(reach.link->lock);
  ReceiveDelivery delivery = Deliver(reach);
  if (const auto why_not = NotNow(reach)) return Settle(wqe, *why_not, &reach);
  FinishDelivery(wqe, delivery.OneSided(wqe, SourceOf(wqe, sequence)), reach);
}

void SendExecution::RunWriteWithImm(Wqe& wqe, uint64_t sequence, Target::Reach& reach) {
  SpinLockHolder hold(reach.link->lock);
  ReceiveDelivery delivery = Deliver(reach);
  if (const auto why_not = NotNow(reach)) return Settle(wqe, *why_not, &reach);
  // A target without a receive WQE answers RNR before it accesses memory. The receive WQE is therefore claimed first, and given back if the
  // write is refused.
  std::array<shm::ClaimedWqe, 1> claimed;
  const ReceiveDelivery::Claim claim = delivery.ClaimWqes(1, claimed);
  if (claim.count == 0) return Settle(wqe, OutcomeOf(claim.why_not), &reach);
  const DeliveryStatus status = delivery.OneSided(wqe, SourceOf(wqe, sequence));
  if (status == DeliveryStatus::kDelivered) {
    delivery.PublishImmediate(wqe, claimed[0]);
  } else {
    delivery.GiveBack(claimed[0]);
  }
  FinishDelivery(wqe, status, reach);
  queue_.Settle();  // before the bell, as in RunSends
}

void SendExecution::Settle(Wqe& wqe, Outcome outcome, const Target::Reach* reach) {
  const ibv_qp_attr& attr = queue_.attr();
  const int64_t try_ns = TryNs(attr.timeout, attr.retry_cnt, queue_.context().dials().retries);
  if (outcome != Outcome::kAsking && !queue_.traits().acknowledged) {
    return queue_.Finish(wqe, IBV_WC_SUCCESS, 0);
  }
  switch (outcome) {
    case Outcome::kCrowded:
      return Wait(wqe, NowNs() + kCompletionSpaceNs);
    case Outcome::kAsking:
      // The owner's firmware thread may be slower than a NIC. Its delay does not yet count as no response of the peer.
      if (wqe.answer_until_ns == 0) wqe.answer_until_ns = NowNs() + kAnswerMaxNs;
      if (NowNs() >= wqe.answer_until_ns) break;
      wqe.awaits_answer = true;
      awaits_answer_ = true;
      return Wait(wqe, NowNs() + kAskAgainNs);
    case Outcome::kNotReady:
      if ((attr.rnr_retry != kInfiniteRnrRetry && wqe.rnr_tries++ >= attr.rnr_retry) ||
          Mutated(Mutation::kNoRnrRetry)) {
        return queue_.Finish(wqe, IBV_WC_RNR_RETRY_EXC_ERR, kVendorErrorRnrExceeded);
      }
      return Wait(
          wqe,
          NowNs() + RnrTimerNs(reach->descriptor->min_rnr_timer.load(std::memory_order_relaxed)));
    case Outcome::kNoResponse:
      wqe.awaits_answer = false;
      wqe.answer_until_ns = 0;
      if (wqe.give_up_ns == 0) {
        wqe.give_up_ns = NowNs() + try_ns * (attr.retry_cnt + 1);
      }
      if (NowNs() >= wqe.give_up_ns) break;
      return Wait(wqe, std::min(wqe.give_up_ns, NowNs() + try_ns));
  }
  const CompletionStatus failed = StatusOf(Verdict::kNoResponse);
  if (!queue_.traits().acknowledged) return queue_.Finish(wqe, IBV_WC_SUCCESS, 0);
  queue_.Finish(wqe, failed.status, failed.vendor_error);
}

void SendExecution::Wait(Wqe& wqe, int64_t next_try_ns) {
  queue_.Wait(wqe);
  wqe.next_try_ns = next_try_ns == INT64_MAX ? 0 : next_try_ns;
  next_try_ns_ = std::min(next_try_ns_, next_try_ns);
}

}  // namespace sluice::softdc
