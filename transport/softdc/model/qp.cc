// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/model/qp.h"

#include <cerrno>
#include <mutex>
#include <utility>

#include "transport/softdc/model/address_handle.h"
#include "transport/softdc/model/arrival.h"
#include "transport/softdc/model/context.h"
#include "transport/softdc/model/cq.h"
#include "transport/softdc/model/mtu.h"
#include "transport/softdc/model/mutation.h"
#include "transport/softdc/model/pkey.h"
#include "transport/softdc/model/srq.h"

namespace sluice::softdc {
namespace {

constexpr uint8_t kPort = 1;
constexpr uint8_t kMaxTimeout = 31;
constexpr uint8_t kMaxRetry = 7;
constexpr uint8_t kMaxRnrTimer = 31;
constexpr unsigned kKnownAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

bool Has(int mask, int bit) { return (mask & bit) != 0; }

}  // namespace

bool Qp::IsDci(const ibv_qp* qp) {
  return qp != nullptr && qp->qp_type == IBV_QPT_DRIVER && qp->handle == kDciHandle;
}

bool Qp::Is(const ibv_qp* qp) {
  return qp != nullptr && (IsDci(qp) || TraitsOf(qp->qp_type) != nullptr);
}

std::unique_ptr<Qp> Qp::Create(const ibv_qp& base, const QpTraits& traits,
                               const SendQueue::Attributes& send, Receive receive) {
  auto qp = std::unique_ptr<Qp>(new Qp(base, traits, std::move(receive)));
  if (traits.receives) {
    Srq* queue = qp->receive_.own != nullptr ? qp->receive_.own.get() : Srq::From(base.srq);
    qp->responder_ = Responder::Create(qp->context_, *Cq::From(base.recv_cq), *queue, qp->life_);
    if (qp->responder_ == nullptr) return nullptr;
  }
  const uint32_t number = qp->context_.port().AllocateNumber();
  if (number == kNoNumber) {
    errno = ENOMEM;
    return nullptr;
  }
  qp->base().qp_num = number;
  qp->send_ = std::make_unique<SendQueue>(*qp, send);
  if (send.wr_api) qp->FillOps();
  std::lock_guard lock(qp->life_->mutex);
  qp->life_->qp = qp.get();
  return qp;
}

Qp::Qp(const ibv_qp& base, const QpTraits& traits, Receive receive)
    : context_(*Context::From(base.context)),
      traits_(traits),
      receive_(std::move(receive)),
      life_(std::make_shared<QpLife>()),
      ece_options_(context_.dials().features.ece ? context_.dials().features.ece_options : 0) {
  qp_ex.qp_base = base;
  qp_ex.qp_base.qp_type = traits.type;
  qp_ex.qp_base.state = IBV_QPS_RESET;
  dv_shell.qp = this;
}

Qp::~Qp() {
  {
    std::lock_guard lock(life_->mutex);
    life_->qp = nullptr;
  }
  // Before the responder: a waiting WQE that fails would still close the responder.
  if (send_ != nullptr) send_->requester_.reset();
  responder_.reset();
  context_.async_events().Retire(&base());
  if (send_ == nullptr) return;
  send_.reset();
  if (receive_.own != nullptr) receive_.own->Forget();
  // As libmlx5 does (mlx5_destroy_qp, mlx5_modify_qp): unpolled receives of a shared queue are dropped with the queue pair.
  if (traits_.receives) {
    Cq::From(base().recv_cq)->PurgeReceives(number(), /*shared=*/receive_.own == nullptr);
  }
  context_.async_events().Retire(&base());
  context_.port().FreeNumber(number());
}

int Qp::CheckAttributes(const ibv_qp_attr& attr, int mask) const {
  const Dials& dials = context_.dials();
  const bool roce = dials.port.link_layer == LinkLayer::kRoce;
  const auto bad_address = [&](const ibv_ah_attr& address) {
    return address.port_num != kPort || (roce && address.is_global == 0) ||
           (address.is_global != 0 &&
            address.grh.sgid_index >= context_.device().fabric().Gids(context_.device()).size());
  };
  const auto bad_mtu = [&](ibv_mtu mtu) {
    return mtu < IBV_MTU_256 || mtu > IBV_MTU_4096 || MtuBytes(mtu) > dials.port.active_mtu;
  };
  // The address vector of a DCI has no destination: only the traffic class and similar fields count.
  const bool any_address = traits_.kind == QpKind::kDci;
  if ((Has(mask, IBV_QP_PORT) && attr.port_num != kPort) ||
      (Has(mask, IBV_QP_PKEY_INDEX) && attr.pkey_index >= PkeyCount(dials)) ||
      (Has(mask, IBV_QP_AV) &&
       (any_address ? attr.ah_attr.port_num != kPort : bad_address(attr.ah_attr))) ||
      (Has(mask, IBV_QP_PATH_MTU) && bad_mtu(attr.path_mtu)) ||
      (Has(mask, IBV_QP_TIMEOUT) && attr.timeout > kMaxTimeout) ||
      (Has(mask, IBV_QP_RETRY_CNT) && attr.retry_cnt > kMaxRetry) ||
      (Has(mask, IBV_QP_RNR_RETRY) && attr.rnr_retry > kMaxRetry) ||
      (Has(mask, IBV_QP_MIN_RNR_TIMER) && attr.min_rnr_timer > kMaxRnrTimer) ||
      (Has(mask, IBV_QP_MAX_QP_RD_ATOMIC) && attr.max_rd_atomic > dials.limits.max_rd_atomic &&
       !Mutated(Mutation::kAnyReadsInFlight)) ||
      (Has(mask, IBV_QP_MAX_DEST_RD_ATOMIC) &&
       attr.max_dest_rd_atomic > dials.limits.max_rd_atomic) ||
      (Has(mask, IBV_QP_ACCESS_FLAGS) && (attr.qp_access_flags & ~kKnownAccess) != 0) ||
      (Has(mask, IBV_QP_CUR_STATE) && attr.cur_qp_state > IBV_QPS_ERR)) {
    return EINVAL;
  }
  return 0;
}

void Qp::TakeAttributes(const ibv_qp_attr& attr, int mask) {
  ibv_qp_attr& kept = send_->attr_;
  const auto take = [&](int bit, auto ibv_qp_attr::*field) {
    if (Has(mask, bit)) kept.*field = attr.*field;
  };
  take(IBV_QP_PORT, &ibv_qp_attr::port_num);
  take(IBV_QP_PKEY_INDEX, &ibv_qp_attr::pkey_index);
  take(IBV_QP_ACCESS_FLAGS, &ibv_qp_attr::qp_access_flags);
  take(IBV_QP_QKEY, &ibv_qp_attr::qkey);
  take(IBV_QP_AV, &ibv_qp_attr::ah_attr);
  take(IBV_QP_ALT_PATH, &ibv_qp_attr::alt_ah_attr);
  take(IBV_QP_ALT_PATH, &ibv_qp_attr::alt_pkey_index);
  take(IBV_QP_ALT_PATH, &ibv_qp_attr::alt_port_num);
  take(IBV_QP_ALT_PATH, &ibv_qp_attr::alt_timeout);
  take(IBV_QP_PATH_MIG_STATE, &ibv_qp_attr::path_mig_state);
  take(IBV_QP_PATH_MTU, &ibv_qp_attr::path_mtu);
  take(IBV_QP_DEST_QPN, &ibv_qp_attr::dest_qp_num);
  take(IBV_QP_RQ_PSN, &ibv_qp_attr::rq_psn);
  take(IBV_QP_SQ_PSN, &ibv_qp_attr::sq_psn);
  take(IBV_QP_MAX_QP_RD_ATOMIC, &ibv_qp_attr::max_rd_atomic);
  take(IBV_QP_MAX_DEST_RD_ATOMIC, &ibv_qp_attr::max_dest_rd_atomic);
  take(IBV_QP_MIN_RNR_TIMER, &ibv_qp_attr::min_rnr_timer);
  take(IBV_QP_TIMEOUT, &ibv_qp_attr::timeout);
  take(IBV_QP_RETRY_CNT, &ibv_qp_attr::retry_cnt);
  take(IBV_QP_RNR_RETRY, &ibv_qp_attr::rnr_retry);
  kept.dest_qp_num &= kQpNumberMask;
}

int Qp::Modify(const ibv_qp_attr& attr, int attr_mask) {
  SpinLockHolder hold(send_->lock_);
  const ibv_qp_state from = Has(attr_mask, IBV_QP_CUR_STATE) ? attr.cur_qp_state : send_->state_;
  const ibv_qp_state to = Has(attr_mask, IBV_QP_STATE) ? attr.qp_state : from;
  if (FindTransition(traits_.transitions, from, to, attr_mask) == nullptr) return EINVAL;
  if (const int error = CheckAttributes(attr, attr_mask); error != 0) return error;
  // If the current state that the caller names is not the real state, the device refuses.
  if (from != send_->state_) return EINVAL;
  TakeAttributes(attr, attr_mask);
  // The next modify of any kind applies the options of ibv_set_ece.
  if (ece_pending_options_ != 0) ece_options_ = std::exchange(ece_pending_options_, 0);
  Enter(to);
  return 0;
}

void Qp::Enter(ibv_qp_state to) {
  SendQueue& send = *send_;
  const ibv_qp_state from = send.state_;
  if (to != IBV_QPS_ERR) send.state_ = to;  // EnterError checks the earlier state
  base().state = to;
  switch (to) {
    case IBV_QPS_RESET:
      if (responder_ != nullptr) {
        responder_->Close();
        // Accepted requests end first. Otherwise they would be delivered after the reset.
        context_.WaitForCopies();
        if (receive_.own != nullptr) receive_.own->Forget();
        responder_->cq().PurgeReceives(number(), /*shared=*/receive_.own == nullptr);
      }
      send.Reset();
      break;
    case IBV_QPS_RTR:
    case IBV_QPS_RTS:
      if (traits_.connected()) {
        const SoftDevice& device = context_.device();
        send.peer_node_ = device.fabric().NodeOf(device, send.attr_.ah_attr);
        send.peer_key_ = ConnectedKey(device.fabric().SelfNode(device), number());
      }
      if (responder_ != nullptr) OpenResponder(/*receives=*/from == IBV_QPS_RTS);
      if (from == IBV_QPS_SQD) send.requester_->RunWaiting();
      break;
    case IBV_QPS_ERR:
      send.EnterError();
      break;
    default:
      break;
  }
}

// `receives`: the responder is open, and requests may arrive.
void Qp::OpenResponder(bool receives) {
  const ibv_qp_attr& attr = send_->attr_;
  uint64_t key = attr.qkey;
  if (traits_.connected()) key = ConnectedKey(send_->peer_node_, attr.dest_qp_num);
  if (receives) return responder_->Change(attr.qp_access_flags, attr.min_rnr_timer, key);
  responder_->Open({.type = traits_.target,
                    .number = number(),
                    .key = key,
                    .access = attr.qp_access_flags,
                    .pd = send_->pd(),
                    .min_rnr_timer = attr.min_rnr_timer,
                    .path_mtu = attr.path_mtu,
                    .pkey = PkeyAt(context_.dials(), attr.pkey_index)});
}

void Qp::StopReceiving() {
  if (responder_ == nullptr) return;
  responder_->Close();
  if (receive_.own == nullptr) {
    ibv_async_event event{};
    event.event_type = IBV_EVENT_QP_LAST_WQE_REACHED;
    event.element.qp = &base();
    context_.PostAsyncEvent(event);
    return;
  }
  receive_.own->FlushTo(responder_->cq(), number());
  responder_->cq().FlushReceives(*receive_.own);
}

void Qp::WhenUnlocked(Fabric& fabric, const std::shared_ptr<QpLife>& life,
                      const std::function<void(Qp&)>& act) {
  constexpr int64_t kLockedNs = 20'000;
  std::lock_guard lock(life->mutex);
  if (life->qp == nullptr) return;
  SpinLock& posting = life->qp->send_->lock_;
  if (!posting.TryLock()) {
    fabric.After(kLockedNs, [&fabric, life, act] { WhenUnlocked(fabric, life, act); });
    return;
  }
  act(*life->qp);
  posting.Unlock();
}

void Qp::OnBadRequest(const std::shared_ptr<QpLife>& life, int event) {
  Fabric* fabric = nullptr;
  {
    std::lock_guard lock(life->mutex);
    if (life->qp == nullptr) return;
    fabric = &life->qp->context_.device().fabric();
  }
  WhenUnlocked(*fabric, life, [event](Qp& qp) {
    const ibv_qp_state state = qp.send_->state_;
    if (state != IBV_QPS_RTR && state != IBV_QPS_RTS && state != IBV_QPS_SQD) return;
    qp.send_->EnterError();
    if (event < 0) return;
    ibv_async_event happened{};
    happened.event_type = static_cast<ibv_event_type>(event);
    happened.element.qp = &qp.base();
    qp.context_.PostAsyncEvent(happened);
  });
}

int Qp::PostReceive(ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  SpinLockHolder hold(send_->lock_);
  if (receive_.own == nullptr || send_->state_ == IBV_QPS_RESET) {
    if (bad_wr != nullptr) *bad_wr = wr;
    return EINVAL;
  }
  const int error = receive_.own->Post(wr, bad_wr);
  if (send_->state_ == IBV_QPS_ERR) StopReceiving();
  return error;
}

int Qp::Query(ibv_qp_attr* attr, int attr_mask, ibv_qp_init_attr* init) {
  SpinLockHolder hold(send_->lock_);
  *attr = send_->attr_;
  attr->qp_state = send_->state_;
  attr->cur_qp_state = send_->state_;
  const SendQueue::Attributes& send = send_->attributes();
  attr->cap = {.max_send_wr = send.max_send_wr,
               .max_recv_wr = receive_.max_wr,
               .max_send_sge = send.max_send_sge,
               .max_recv_sge = receive_.max_sge,
               .max_inline_data = send.max_inline_bytes};
  if (init != nullptr) {
    *init = {};
    init->qp_context = base().qp_context;
    init->send_cq = base().send_cq;
    init->recv_cq = base().recv_cq;
    init->srq = base().srq;
    init->cap = attr->cap;
    init->qp_type = traits_.type;
    init->sq_sig_all = send.signal_all ? 1 : 0;
  }
  // The cached state in the user's handle changes only with a modify or a query of the state.
  if (Has(attr_mask, IBV_QP_STATE)) base().state = send_->state_;
  return 0;
}

int Qp::ResetStream(uint16_t stream_id) {
  SpinLockHolder hold(send_->lock_);
  if (!send_->attributes().has_streams) return EOPNOTSUPP;
  if (send_->state_ != IBV_QPS_RTS) return EINVAL;
  StreamState& stream = send_->streams_[stream_id];
  if (Mutated(Mutation::kResetHealthyStream) && !stream.errored) return 0;
  if (!stream.errored || send_->HasUnfinished(stream_id)) return EINVAL;
  stream.errored = false;
  if (!Mutated(Mutation::kResetKeepsBudgetSpent)) --send_->errored_streams_;
  return 0;
}

int Qp::SetEce(const ibv_ece& ece) {
  if (ece.comp_mask != 0 || ece.vendor_id != kEceVendor) return EINVAL;
  if (!context_.dials().features.ece) return EOPNOTSUPP;
  SpinLockHolder hold(send_->lock_);
  ece_pending_options_ = ece.options & context_.dials().features.ece_options;
  ece_options_ = Mutated(Mutation::kEceAtOnce) ? ece_pending_options_ : 0;
  return 0;
}

int Qp::QueryEce(ibv_ece* ece) {
  SpinLockHolder hold(send_->lock_);
  *ece = {.vendor_id = kEceVendor, .options = ece_options_, .comp_mask = 0};
  return 0;
}

}  // namespace sluice::softdc
