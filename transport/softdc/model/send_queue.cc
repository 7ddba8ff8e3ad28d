// SPDX-License-Identifier: Apache-2.0
//
// WQEs after they are posted: streams, errors, flushing, completions. send_queue_post.cc builds WQEs; the fabric runs them.
#include "transport/softdc/model/send_queue.h"

#include <algorithm>
#include <bit>
#include <mutex>

#include "transport/softdc/model/context.h"
#include "transport/softdc/model/cq.h"
#include "transport/softdc/model/memory_region.h"
#include "transport/softdc/model/memory_window.h"
#include "transport/softdc/model/mkey.h"
#include "transport/softdc/model/mtu.h"
#include "transport/softdc/model/mutation.h"
#include "transport/softdc/model/qp.h"
#include "transport/softdc/model/requester_completion.h"

namespace sluice::softdc {
namespace {

constexpr uint32_t kAtomicBytes = sizeof(uint64_t);

}  // namespace

SendQueue::SendQueue(Qp& qp, const Attributes& attributes)
    : qp_(qp),
      context_(qp.context()),
      traits_(qp.traits()),
      attributes_(attributes),
      number_(qp.number()),
      pd_(Pd::From(qp.base().pd)->number),
      max_plain_bytes_(std::min(context_.dials().limits.max_message_bytes,
                                traits_.kind == QpKind::kUd ? MtuBytes(IBV_MTU_4096) : UINT32_MAX)),
      said_(qp.qp_ex),
      slot_mask_(std::bit_ceil(attributes.max_send_wr) - 1),
      wqes_(slot_mask_ + 1),
      sges_((slot_mask_ + 1) * attributes.max_send_sge),
      inline_((slot_mask_ + 1) * attributes.max_inline_bytes),
      operands_(slot_mask_ + 1),
      streams_(attributes.has_streams ? kStreamIds : 1),
      per_stream_(attributes.has_streams &&
                  context_.dials().streams.cqe_order == CqeOrder::kPerStream),
      flush_completes_(context_.dials().unknowns.unsignalled_flush ==
                       UnsignalledFlush::kCompletion),
      silent_unless_asked_(!per_stream_ && !attributes.signal_all),
      setters_(traits_.addressed ? kDataSetter | kAddressSetter : kDataSetter),
      requester_(context_.port().NewRequester(*this)) {}

SendQueue::~SendQueue() {
  requester_.reset();
  cq().PurgeSends(&released_);
}

Cq& SendQueue::cq() { return *Cq::From(qp_.base().send_cq); }

bool SendQueue::HasUnfinished(uint16_t stream_id) {
  for (uint64_t sequence = emitted_; sequence != posted_; ++sequence) {
    const Wqe& wqe = slot(sequence);
    if (!Ended(wqe) && wqe.stream_id == stream_id) return true;
  }
  return false;
}

void SendQueue::Wait(Wqe& wqe) {
  wqe.state = WqeState::kWaiting;
  ++waiting_;
  ++stream(wqe).waiting;
}

void SendQueue::StopWaiting(Wqe& wqe) {
  wqe.state = WqeState::kPosted;
  --waiting_;
  --stream(wqe).waiting;
}

bool SendQueue::FenceIsOpen(uint64_t sequence) {
  if (Mutated(Mutation::kFenceIsNone)) return true;
  const bool any_stream = context_.dials().unknowns.fence_scope == FenceScope::kQueue;
  const Wqe& fenced = slot(sequence);
  for (uint64_t before = emitted_; before != sequence; ++before) {
    const Wqe& wqe = slot(before);
    if (!Ended(wqe) && (any_stream || wqe.stream_id == fenced.stream_id)) {
      return false;
    }
  }
  return true;
}

bool SendQueue::CheckLocalSideFully(uint64_t sequence) {
  Wqe& wqe = slot(sequence);
  if (wqe.length_bytes > MtuBytes(IBV_MTU_4096) && traits_.kind == QpKind::kUd) {
    Finish(wqe, IBV_WC_LOC_LEN_ERR, kVendorErrorLocalLength);
    return false;
  }
  if (wqe.inlined || wqe.staged) return true;
  if (wqe.length_bytes > context_.dials().limits.max_message_bytes ||
      (IsAtomic(wqe.opcode) && wqe.length_bytes != kAtomicBytes)) {
    Finish(wqe, IBV_WC_LOC_LEN_ERR, kVendorErrorLocalLength);
    return false;
  }
  const bool writes = ReturnsData(wqe.opcode) && !Mutated(Mutation::kSkipLocalRights);
  const uint32_t access = writes ? uint32_t{IBV_ACCESS_LOCAL_WRITE} : 0;
  for (const ibv_sge& sge : sges(sequence)) {
    if (FindLocalRegion(context_, sge, pd_, access) == nullptr) {
      if (IsMkey(sge.lkey)) return StageMkeys(sequence);
      Finish(wqe, IBV_WC_LOC_PROT_ERR, kVendorErrorLocalProtection);
      return false;
    }
  }
  return true;
}

bool SendQueue::RunLocally(uint64_t sequence) {
  Wqe& wqe = slot(sequence);
  ibv_wc_status status = IBV_WC_LOC_QP_OP_ERR;
  if (wqe.cancelled) {
    status = IBV_WC_SUCCESS;
  } else if (wqe.opcode == IBV_WR_DRIVER1) {
    status = mkey_poster_.Run(sequence) ? IBV_WC_SUCCESS : IBV_WC_MW_BIND_ERR;
  } else if (wqe.opcode == IBV_WR_LOCAL_INV) {
    if (!wqe.taken_back && !context_.mkeys().Invalidate(wqe.rkey, pd_)) {
      status = InvalidateWindow(context_, pd_, wqe.rkey);
      wqe.taken_back = status == IBV_WC_SUCCESS;
    } else {
      status = IBV_WC_SUCCESS;
    }
    if (wqe.taken_back && !context_.SettleWindow(wqe.rkey)) return false;
  } else if (wqe.opcode == IBV_WR_BIND_MW) {
    const BindOperands& bind = operands(sequence).bind;
    // Requests use a window of a DCI through DCTs, and a window of type 1 through any queue pair.
    const bool through_any = traits_.kind == QpKind::kDci || bind.type == IBV_MW_TYPE_1;
    if (bind.type == IBV_MW_TYPE_1) UnbindWindow(context_, pd_, bind.window_rkey);
    if (!context_.SettleWindow(bind.window_rkey)) return false;
    status = BindWindow(context_, pd_, through_any ? 0 : number(), bind.window_rkey, bind.new_rkey,
                        bind.info);
    // A bind of length 0 has ended the earlier binding.
    if (status == IBV_WC_SUCCESS && !context_.SettleWindow(bind.window_rkey)) return false;
  }
  Finish(wqe, status, status == IBV_WC_SUCCESS ? 0 : kVendorErrorLocalProtection);
  return true;
}

void SendQueue::Finish(Wqe& wqe, ibv_wc_status status, uint32_t vendor_error) {
  StreamState& of = stream(wqe);
  if (wqe.state == WqeState::kWaiting) {
    --waiting_;
    --of.waiting;
  }
  if (wqe.staged) LeaveStage(wqe, status == IBV_WC_SUCCESS);
  wqe.state = WqeState::kDone;
  wqe.status = static_cast<uint8_t>(status);
  wqe.vendor_error = vendor_error;
  if (status == IBV_WC_SUCCESS || status == IBV_WC_WR_FLUSH_ERR || of.errored) return;
  of.errored = !Mutated(Mutation::kNoFlush);
  ++errored_streams_;
  const uint32_t budget =
      (1u << attributes_.log_errored_streams) + (Mutated(Mutation::kBudgetOneMore) ? 1 : 0);
  if (errored_streams_ >= budget && state_ != IBV_QPS_ERR) {
    SpendBudget();
  }
}

// Stops the whole queue and flushes its WQEs: at once, or after a delay, as seen on devices.
void SendQueue::SpendBudget() {
  const int64_t delay_ns = context_.dials().streams.error_state_delay_ns;
  if (delay_ns == 0 || !attributes_.has_streams) {
    state_ = IBV_QPS_ERR;
    if (Mutated(Mutation::kStateTellsItself)) qp_.base().state = state_;
    qp_.StopReceiving();
    return;
  }
  if (stopping_) return;
  stopping_ = true;
  Fabric& fabric = context_.device().fabric();
  fabric.After(delay_ns, [&fabric, life = qp_.life_, resets = resets_] {
    Qp::WhenUnlocked(fabric, life, [resets](Qp& qp) {
      if (qp.send_queue().resets_ == resets) qp.send_queue().EnterError();
    });
  });
}

void SendQueue::EnterError() {
  const bool entered = state_ != IBV_QPS_ERR;
  signature_stop_ = false;
  state_ = IBV_QPS_ERR;
  FlushErrored();
  EmitCompletions();
  if (entered) qp_.StopReceiving();
}

void SendQueue::FlushErrored() {
  for (uint64_t sequence = emitted_; sequence != posted_; ++sequence) {
    Wqe& wqe = slot(sequence);
    if (Ended(wqe)) continue;
    if (state_ == IBV_QPS_ERR || stream(wqe).errored) Flush(wqe);
  }
}

inline void SendQueue::Emit(const Wqe& wqe, uint64_t sequence) {
  const bool told = !Mutated(Mutation::kSilentUnsignalledError) &&
                    (wqe.status != IBV_WC_WR_FLUSH_ERR || flush_completes_);
  const bool failed = wqe.status != IBV_WC_SUCCESS && told;
  const bool all = attributes_.signal_all && !Mutated(Mutation::kSignalAllSignalsNone);
  const bool signalled = all || (wqe.flags & IBV_SEND_SIGNALED) != 0;
  if (!failed && (!signalled || wqe.quiet)) return;
  // If CQEs leave out of order, released_ must not move backwards.
  latest_emitted_ = std::max(latest_emitted_, sequence);
  ++completions_;
  failures_ += failed;
  cq().PushSend(RequesterCompletion(wqe, number()), (wqe.flags & IBV_SEND_SOLICITED) != 0,
                &released_, latest_emitted_);
}

void SendQueue::EmitPerStream() {
  ++emit_pass_;
  for (uint64_t sequence = emitted_; sequence != posted_; ++sequence) {
    Wqe& wqe = slot(sequence);
    StreamState& of = stream(wqe);
    if (wqe.state == WqeState::kEmitted || of.held_in_pass == emit_pass_) continue;
    if (wqe.state != WqeState::kDone) {
      of.held_in_pass = emit_pass_;
      continue;
    }
    Emit(wqe, sequence);
    wqe.state = WqeState::kEmitted;
  }
  while (emitted_ != posted_ && slot(emitted_).state == WqeState::kEmitted) ++emitted_;
}

void SendQueue::EmitCompletions() {
  if (per_stream_ || Mutated(Mutation::kCqeOrderOff)) return EmitPerStream();
  // Most WQEs have succeeded and emit no CQE.
  constexpr uint64_t kTold =
      StateBits({.flags = IBV_SEND_SIGNALED, .state = WqeState{0xff}, .status = 0xff});
  constexpr uint64_t kSilent = StateBits({.state = WqeState::kDone, .status = IBV_WC_SUCCESS});
  uint64_t sequence = emitted_;
  for (; sequence != posted_; ++sequence) {
    const Wqe& wqe = slot(sequence);
    if ((StateWord(wqe) & kTold) == kSilent && !attributes_.signal_all) continue;
    if (wqe.state != WqeState::kDone) break;
    Emit(wqe, sequence);
  }
  emitted_ = sequence;
}

void SendQueue::Reset() {
  requester_->Forget();
  // The number and the CQ stay. All WQEs in the queue are dropped without a completion.
  streams_.Clear();
  errored_streams_ = 0;
  stopping_ = false;
  ++resets_;
  waiting_ = 0;
  stages_.clear();
  mkey_poster_.Forget(0);
  signature_stop_ = false;
  emitted_ = head_ = posted_;
  attr_ = {};
  // Until this purge, polling a completion still writes to released_.
  if (!Mutated(Mutation::kResetKeepsCompletions)) cq().PurgeSends(&released_);
  released_.store(head_, std::memory_order_release);
}

}  // namespace sluice::softdc
