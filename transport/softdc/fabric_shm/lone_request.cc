// SPDX-License-Identifier: Apache-2.0
//
// Fast path for a doorbell of one plain request, the most frequent doorbell of a program that waits for replies. One function does the work
// of eight functions of SendExecution, with the same checks in the same order. A plain request is a SEND or WRITE of 1 byte or more without
// a fence, from inline data or one SGE. Nothing in its queue waits or has failed, and its target is known.
#include <cstddef>
#include <cstdint>
#include <optional>

#include "transport/softdc/fabric_shm/send_execution.h"
#include "transport/softdc/fabric_shm/shm_requester.h"
#include "transport/softdc/model/arrival.h"
#include "transport/softdc/model/context.h"
#include "transport/softdc/model/pkey.h"
#include "transport/softdc/model/send_queue.h"

namespace sluice::softdc {
namespace {

// Returns the bytes of the WQE if it is plain. Null: it is not plain, or its local side fails.
[[gnu::always_inline]] inline const std::byte* PlainSource(SendQueue& queue, uint64_t sequence,
                                                           const Wqe& wqe) {
  constexpr uint64_t kFree =
      StateBits({.opcode = 0xff, .flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED, .inlined = 1});
  if ((StateWord(wqe) & ~kFree) != 0 || wqe.length_bytes - 1 >= queue.max_plain_bytes() ||
      wqe.node == kNoNode || !queue.Calm()) {
    return nullptr;
  }
  if (wqe.inlined) return queue.inline_place(sequence);
  const ibv_sge& sge = queue.first_sge(sequence);
  if (wqe.num_sge != 1 ||
      FindLocalRegion(queue.context(), sge, queue.pd(), /*access=*/0) == nullptr) {
    return nullptr;
  }
  return reinterpret_cast<const std::byte*>(sge.addr);
}

[[gnu::always_inline]] inline bool Accepts(const SendQueue& queue, const Wqe& wqe, uint8_t opcode,
                                           const shm::TargetDescriptor& target) {
  const Dials& dials = queue.context().dials();
  return JudgeRequest(wqe, opcode, queue.traits().target, target, dials, queue.attr().path_mtu,
                      PkeyAt(dials, queue.attr().pkey_index)) == Verdict::kAccepted;
}

}  // namespace

// Marked as cold: otherwise the compiler treats the path below as the unlikely one.
void ShmRequester::RunUnplain(uint64_t sequence) { RunBatch(sequence); }

// Schedules a waiting WQE, as a pass does at its end.
void ShmRequester::ContinueAlone(const Wqe& wqe) {
  if (wqe.awaits_answer) port_.AddWaiting(continuation_);
  if (wqe.next_try_ns != 0) ContinueAt(wqe.next_try_ns);
}

[[gnu::always_inline]] inline bool ShmRequester::WritePlain(Wqe& wqe, const std::byte* from,
                                                            Target::Reach& reach) {
  SpinLockHolder hold(reach.link->lock);
  ReceiveDelivery delivery(port_.outbound(), reach, queue_);
  if (!SendExecution::IsNow(reach) || !delivery.WritePlain(wqe, from)) [[unlikely]]
    return false;
  queue_.FinishPlain(wqe);
  return true;
}

[[gnu::always_inline]] inline bool ShmRequester::SendPlain(uint64_t sequence, Wqe& wqe,
                                                           const std::byte* from,
                                                           Target::Reach& reach) {
  SpinLockHolder hold(reach.link->lock);
  ReceiveDelivery delivery(port_.outbound(), reach, queue_);
  shm::ClaimedWqe claimed;
  if (!SendExecution::IsNow(reach) || !delivery.ClaimOne(&claimed)) [[unlikely]]
    return false;
  if (delivery.DeliverPlain(wqe, from, claimed)) [[likely]] {
    queue_.FinishPlain(wqe);
    queue_.SettleAlone(sequence, wqe);  // before the bell, as in RunSends
  } else {
    SendExecution(*this).RunClaimed(sequence, delivery, claimed, reach);
  }
  return true;
}

template <uint8_t kOpcode>
void ShmRequester::RunPlain(uint64_t sequence) {
  SendQueue& queue = queue_;
  Wqe& wqe = queue.slot(sequence);
  const std::byte* const from = PlainSource(queue, sequence, wqe);
  if (from == nullptr) [[unlikely]]
    return RunUnplain(sequence);
  const Target* const target = targets_[wqe.target_number & (targets_.size() - 1)];
  if (target == nullptr || target->qp_number != wqe.target_number ||
      target->status.load(std::memory_order_acquire) != TargetStatus::kReady) [[unlikely]] {
    return RunUnplain(sequence);
  }
  Target::Reach* const reach = target->reach.load(std::memory_order_acquire);
  if (reach == nullptr || reach->link->dead() || !Accepts(queue, wqe, kOpcode, *reach->descriptor))
      [[unlikely]] {
    return RunUnplain(sequence);
  }
  SOFTDC_KILL_POINT(kTargetJudged);
  if constexpr (kOpcode == IBV_WR_SEND) {
    if (!SendPlain(sequence, wqe, from, *reach)) [[unlikely]]
      return RunUnplain(sequence);
    traffic_.Add(1, wqe.length_bytes);
    if (queue.waiting() != 0) [[unlikely]]
      ContinueAlone(wqe);
  } else {
    if (!WritePlain(wqe, from, *reach)) [[unlikely]]
      return RunUnplain(sequence);
    traffic_.Add(1, wqe.length_bytes);
    queue.SettleAlone(sequence, wqe);
  }
}

void ShmRequester::RunAlone(uint64_t sequence) {
  switch (queue_.slot(sequence).opcode) {
    case IBV_WR_SEND:
      return RunPlain<IBV_WR_SEND>(sequence);
    case IBV_WR_RDMA_WRITE:
      return RunPlain<IBV_WR_RDMA_WRITE>(sequence);
    default:
      return RunBatch(sequence);
  }
}

}  // namespace sluice::softdc
