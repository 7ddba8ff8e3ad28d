// SPDX-License-Identifier: Apache-2.0
//
// Indirect keys in a send queue: messages through them, and signature pipelining (man mlx5dv_qp_cancel_posted_send_wrs). After a mismatch
// no fenced WQE starts. When all WQEs before the fenced WQE have ended, the queue enters SQD and posts an event.
#include <infiniband/mlx5dv.h>

#include <cerrno>

#include "transport/softdc/model/context.h"
#include "transport/softdc/model/cq.h"
#include "transport/softdc/model/mkey.h"
#include "transport/softdc/model/mutation.h"
#include "transport/softdc/model/qp.h"
#include "transport/softdc/model/send_queue.h"

namespace sluice::softdc {

bool SendQueue::StageMkeys(uint64_t sequence) {
  Wqe& wqe = slot(sequence);
  const std::span<const ibv_sge> list = sges(sequence);
  MkeyStage stage;
  const bool returns = ReturnsData(wqe.opcode);
  // An atomic needs one piece of memory.
  const bool good = !IsAtomic(wqe.opcode) && (returns ? stage.Prepare(context_, pd_, list)
                                                      : stage.Gather(context_, pd_, list));
  if (!good) {
    Finish(wqe, IBV_WC_LOC_PROT_ERR, kVendorErrorLocalProtection);
    return false;
  }
  MkeyStage& kept = stages_[sequence & slot_mask_] = std::move(stage);
  wqe.staged = true;
  if (returns) {
    sges_[(sequence & slot_mask_) * attributes_.max_send_sge] = {
        .addr = reinterpret_cast<uint64_t>(kept.bytes().data()),
        .length = wqe.length_bytes,
        .lkey = 0};
    wqe.num_sge = 1;
  } else {
    wqe.inlined = true;
  }
  return true;
}

void SendQueue::LeaveStage(const Wqe& wqe, bool succeeded) {
  auto node = stages_.extract(static_cast<uint64_t>(&wqe - wqes_.data()));
  if (node.empty()) return;
  MkeyStage& stage = node.mapped();
  if (succeeded && ReturnsData(wqe.opcode)) stage.Scatter(context_, pd_);
  if (stage.Record(context_, cq().id()) && succeeded && attributes_.signature_pipelining) {
    signature_stop_ = true;
  }
}

void SendQueue::DrainAfterMismatch() {
  if (state_ != IBV_QPS_RTS) return;
  for (uint64_t sequence = emitted_; sequence != posted_; ++sequence) {
    const Wqe& wqe = slot(sequence);
    if (wqe.state == WqeState::kDone) continue;
    if ((wqe.flags & IBV_SEND_FENCE) != 0) break;
    return;  // it has started or may start, so it ends first
  }
  signature_stop_ = false;
  if (Mutated(Mutation::kMismatchStopsNothing)) return;
  state_ = IBV_QPS_SQD;
  ibv_async_event event{};
  event.event_type = IBV_EVENT_SQ_DRAINED;
  event.element.qp = &qp_.base();
  context_.PostAsyncEvent(event);
}

int SendQueue::Cancel(uint64_t wr_id) {
  SpinLockHolder hold(lock_);
  if (state_ != IBV_QPS_SQD) return -EINVAL;
  int cancelled = 0;
  for (uint64_t sequence = emitted_; sequence != posted_; ++sequence) {
    Wqe& wqe = slot(sequence);
    if (wqe.state == WqeState::kDone || wqe.cancelled || wqe.wr_id != wr_id) continue;
    wqe.cancelled = !Mutated(Mutation::kCancelCancelsNothing);
    ++cancelled;
  }
  return cancelled;
}

}  // namespace sluice::softdc
