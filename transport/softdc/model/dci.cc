// SPDX-License-Identifier: Apache-2.0
//
// The DCI's life: states, queries, streams, completions. Building WQEs is in dci_post.cc, running
// them in send_execution.cc.
#include "transport/softdc/model/dci.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "transport/softdc/loop/loop.h"
#include "transport/softdc/model/context.h"
#include "transport/softdc/model/cq.h"
#include "transport/softdc/model/qp_transitions.h"
#include "transport/softdc/model/send_execution.h"

namespace sluice::softdc {
namespace {
constexpr uint8_t kPort = 1;
constexpr uint8_t kMaxReadAtomic = 16;
constexpr uint8_t kMaxTimeout = 31;
constexpr uint8_t kMaxRetry = 7;
}  // namespace

Dci::Dci(Context& context, const Attributes& attributes, uint32_t qp_number)
    : context_(context),
      attributes_(attributes),
      slot_mask_(std::bit_ceil(attributes.max_send_wr) - 1),
      wqes_(slot_mask_ + 1),
      sges_((slot_mask_ + 1) * attributes.max_send_sge),
      inline_((slot_mask_ + 1) * attributes.max_inline_bytes),
      streams_(attributes.has_streams ? kStreamIds : 1),
      continuation_(std::make_shared<Continuation>()),
      target_cache_(kTargetCacheEntries, nullptr) {
  qp_ex.qp_base.qp_num = qp_number;
  qp_ex.qp_base.qp_type = IBV_QPT_DRIVER;
  qp_ex.qp_base.state = IBV_QPS_RESET;
  dv_shell.dci = this;
  {
    std::lock_guard lock(continuation_->mutex);
    continuation_->dci = this;
  }
  if (attributes.wr_api) FillOps();
}

Dci::~Dci() {
  {
    std::lock_guard lock(continuation_->mutex);
    continuation_->dci = nullptr;
  }
  send_cq().Purge(this);
}

bool Dci::Is(const ibv_qp* qp) {
  return qp != nullptr && qp->qp_type == IBV_QPT_DRIVER && qp->handle == kDciHandle;
}

Cq& Dci::send_cq() { return *Cq::From(qp_ex.qp_base.send_cq); }

int Dci::Modify(const ibv_qp_attr& attr, int attr_mask) {
  SpinLockHolder hold(lock_);
  const ibv_qp_state to = (attr_mask & IBV_QP_STATE) != 0 ? attr.qp_state : state_;
  if (FindTransition(DciTransitions(), state_, to, attr_mask) == nullptr) return EINVAL;
  if ((attr_mask & IBV_QP_PORT) != 0 && attr.port_num != kPort) return EINVAL;
  if ((attr_mask & IBV_QP_PKEY_INDEX) != 0 && attr.pkey_index != 0) return EINVAL;
  if ((attr_mask & IBV_QP_AV) != 0 && attr.ah_attr.port_num != kPort) return EINVAL;
  if ((attr_mask & IBV_QP_PATH_MTU) != 0 &&
      (attr.path_mtu < IBV_MTU_256 || attr.path_mtu > IBV_MTU_4096)) {
    return EINVAL;
  }
  if ((attr_mask & IBV_QP_TIMEOUT) != 0 && attr.timeout > kMaxTimeout) return EINVAL;
  if ((attr_mask & IBV_QP_RETRY_CNT) != 0 && attr.retry_cnt > kMaxRetry) return EINVAL;
  if ((attr_mask & IBV_QP_RNR_RETRY) != 0 && attr.rnr_retry > kMaxRetry) return EINVAL;
  if ((attr_mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0 && attr.max_rd_atomic > kMaxReadAtomic) {
    return EINVAL;
  }
  const auto take = [&](int bit, auto ibv_qp_attr::*field) {
    if ((attr_mask & bit) != 0) attr_.*field = attr.*field;
  };
  take(IBV_QP_PORT, &ibv_qp_attr::port_num);
  take(IBV_QP_PKEY_INDEX, &ibv_qp_attr::pkey_index);
  take(IBV_QP_AV, &ibv_qp_attr::ah_attr);
  take(IBV_QP_PATH_MTU, &ibv_qp_attr::path_mtu);
  take(IBV_QP_TIMEOUT, &ibv_qp_attr::timeout);
  take(IBV_QP_RETRY_CNT, &ibv_qp_attr::retry_cnt);
  take(IBV_QP_RNR_RETRY, &ibv_qp_attr::rnr_retry);
  take(IBV_QP_MAX_QP_RD_ATOMIC, &ibv_qp_attr::max_rd_atomic);
  take(IBV_QP_MIN_RNR_TIMER, &ibv_qp_attr::min_rnr_timer);
  take(IBV_QP_SQ_PSN, &ibv_qp_attr::sq_psn);
  // Options set by ibv_set_ece ride on the next modify, whatever it is.
  if (ece_pending_options_ != 0) {
    ece_options_ = ece_pending_options_;
    ece_pending_options_ = 0;
  }
  if (to == IBV_QPS_RESET) {
    ResetQueue();
  } else if (to == IBV_QPS_ERR) {
    EnterError();
  }
  state_ = to;
  qp_ex.qp_base.state = to;
  return 0;
}

int Dci::Query(ibv_qp_attr* attr, int attr_mask, ibv_qp_init_attr* init) {
  SpinLockHolder hold(lock_);
  *attr = attr_;
  attr->qp_state = state_;
  attr->cur_qp_state = state_;
  attr->cap = {.max_send_wr = attributes_.max_send_wr,
               .max_recv_wr = 0,
               .max_send_sge = attributes_.max_send_sge,
               .max_recv_sge = 0,
               .max_inline_data = attributes_.max_inline_bytes};
  if (init != nullptr) {
    *init = {};
    init->qp_context = qp_ex.qp_base.qp_context;
    init->send_cq = qp_ex.qp_base.send_cq;
    init->recv_cq = qp_ex.qp_base.recv_cq;
    init->srq = qp_ex.qp_base.srq;
    init->cap = attr->cap;
    init->qp_type = IBV_QPT_DRIVER;
    init->sq_sig_all = attributes_.signal_all ? 1 : 0;
  }
  // The state that the user's library has cached changes with a modify or a query of the state,
  // never by itself.
  if ((attr_mask & IBV_QP_STATE) != 0) qp_ex.qp_base.state = state_;
  return 0;
}

int Dci::ResetStream(uint16_t stream_id) {
  SpinLockHolder hold(lock_);
  if (!attributes_.has_streams) return EOPNOTSUPP;
  if (state_ != IBV_QPS_RTS) return EINVAL;
  StreamState& stream = streams_[stream_id];
  if (!stream.errored || stream.outstanding != 0) return EINVAL;
  stream.errored = false;
  --errored_streams_;
  return 0;
}

int Dci::SetEce(const ibv_ece& ece) {
  if (ece.comp_mask != 0 || ece.vendor_id != kEceVendor) return EINVAL;
  SpinLockHolder hold(lock_);
  ece_pending_options_ = ece.options & kEceOptions;
  ece_options_ = 0;
  return 0;
}

int Dci::QueryEce(ibv_ece* ece) {
  SpinLockHolder hold(lock_);
  *ece = {.vendor_id = kEceVendor, .options = ece_options_, .comp_mask = 0};
  return 0;
}

void Dci::Finish(Wqe& wqe, ibv_wc_status status, uint32_t vendor_error) {
  StreamState& stream_state = stream(wqe);
  if (wqe.state == WqeState::kWaiting) {
    --waiting_;
    --stream_state.waiting;
  }
  --stream_state.outstanding;
  wqe.state = WqeState::kDone;
  wqe.status = static_cast<uint8_t>(status);
  wqe.vendor_error = vendor_error;
  if (status == IBV_WC_SUCCESS || status == IBV_WC_WR_FLUSH_ERR || stream_state.errored) return;
  stream_state.errored = true;
  ++errored_streams_;
  if (errored_streams_ >= (1u << attributes_.log_errored_streams)) {
    // The budget is spent: the whole queue stops, and what stands in it is flushed.
    state_ = IBV_QPS_ERR;
  }
}

void Dci::EnterError() {
  state_ = IBV_QPS_ERR;
  FlushErrored();
  EmitCompletions();
}

void Dci::FlushErrored() {
  for (uint64_t sequence = emitted_; sequence != batch_head_; ++sequence) {
    Wqe& wqe = slot(sequence);
    if (wqe.state == WqeState::kDone) continue;
    if (state_ == IBV_QPS_ERR || stream(wqe).errored) {
      Finish(wqe, IBV_WC_WR_FLUSH_ERR, kVendorErrorFlushed);
    }
  }
}

void Dci::EmitCompletions() {
  Cq& cq = send_cq();
  while (emitted_ != batch_head_) {
    const Wqe& wqe = slot(emitted_);
    if (wqe.state != WqeState::kDone) return;
    const bool failed = wqe.status != IBV_WC_SUCCESS;
    if (failed || attributes_.signal_all || (wqe.flags & IBV_SEND_SIGNALED) != 0) {
      cq.PushSendCompletion(*this, wqe, emitted_);
    }
    ++emitted_;
  }
}

void Dci::ScheduleContinuation(int64_t when_ns) {
  if (scheduled_ns_ != 0 && scheduled_ns_ <= when_ns) return;
  scheduled_ns_ = when_ns;
  const int64_t delay_ns = std::max<int64_t>(0, when_ns - Loop::NowNs());
  Loop::Get().After(delay_ns, [continuation = continuation_] {
    std::lock_guard lock(continuation->mutex);
    if (continuation->dci != nullptr) continuation->dci->Continue();
  });
}

void Dci::Continue() {
  SpinLockHolder hold(lock_);
  scheduled_ns_ = 0;
  if (waiting_ == 0) return;
  SendExecution(*this).RunWaiting();
}

void Dci::ResetQueue() {
  // Numbers and the CQ stay, everything in the queue goes without a completion.
  for (StreamState& stream_state : streams_) stream_state = StreamState{};
  errored_streams_ = 0;
  waiting_ = 0;
  emitted_ = head_ = batch_head_;
  released_.store(head_, std::memory_order_release);
  attr_ = {};
  send_cq().Purge(this);
}

}  // namespace sluice::softdc
