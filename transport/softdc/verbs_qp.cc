// SPDX-License-Identifier: Apache-2.0
//
// Creates, modifies and queries queue pairs: ibv_create_qp, ibv_create_qp_ex, mlx5dv_create_qp, and the mlx5dv calls on them. The functions
// here check requests in the order in which the driver does. The objects are in model/.
#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <memory>
#include <utility>

#include "transport/softdc/device.h"
#include "transport/softdc/model/address_handle.h"
#include "transport/softdc/model/context.h"
#include "transport/softdc/model/cq.h"
#include "transport/softdc/model/dct.h"
#include "transport/softdc/model/mutation.h"
#include "transport/softdc/model/qp.h"
#include "transport/softdc/model/srq.h"
#include "transport/softdc/verbs_objects.h"
#include "transport/verbs/qp_init.h"

// rdma-core added these flags of ibv_query_qp_data_in_order after the release whose headers Debian has (docs/facts.md, "In-order query").
#ifndef IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS
#define IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS (1u << 0)
#define IBV_QUERY_QP_DATA_IN_ORDER_WHOLE_MSG (1u << 0)
#define IBV_QUERY_QP_DATA_IN_ORDER_ALIGNED_128_BYTES (1u << 1)
#endif
#ifndef IBV_QUERY_QP_DATA_IN_ORDER_DEVICE_ONLY
#define IBV_QUERY_QP_DATA_IN_ORDER_DEVICE_ONLY (1u << 1)
#endif

namespace sluice::softdc {
namespace {

// Minimum room for inline data, whatever the program requests. On mlx5 it is the rest of a WQE's last block. Programs of rdmacm-utils rely
// on it.
constexpr uint32_t kFreeInlineBytes = 60;

constexpr uint64_t kKnownBase = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
constexpr uint64_t kKnownPlain = kKnownBase | IBV_QP_INIT_ATTR_CREATE_FLAGS;
// The flag has no effect, because softdc has no multicast.
constexpr uint32_t kKnownCreateFlags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
constexpr uint64_t kKnownDv =
    MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS | MLX5DV_QP_INIT_ATTR_MASK_DC |
    MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS | MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
constexpr uint32_t kScatterFlags =
    MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE | MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE;

ibv_qp* Refuse(int error) {
  errno = error;
  return nullptr;
}

bool Has(uint64_t mask, uint64_t bit) { return (mask & bit) != 0; }

// Returns whether all objects of the request belong to this context. The kernel looks objects up among those of the descriptor that the
// call uses, so it does not know other objects.
bool NamesOwnObjects(const ibv_context* context, const ibv_qp_init_attr_ex& attr) {
  if (Mutated(Mutation::kForeignObjects)) return true;
  return attr.pd->context == context && attr.send_cq->context == context &&
         attr.recv_cq->context == context && (attr.srq == nullptr || attr.srq->context == context);
}

void FillBase(ibv_qp& qp, ibv_context* context, const ibv_qp_init_attr_ex& attr) {
  qp.context = context;
  qp.qp_context = attr.qp_context;
  qp.pd = attr.pd;
  qp.send_cq = attr.send_cq;
  qp.recv_cq = attr.recv_cq;
  qp.srq = attr.srq;
}

void AddUses(const ibv_qp& qp, int difference) {
  Pd::From(qp.pd)->users.fetch_add(difference);
  Cq::From(qp.send_cq)->users().fetch_add(difference);
  Cq::From(qp.recv_cq)->users().fetch_add(difference);
  if (qp.srq != nullptr) Srq::From(qp.srq)->users().fetch_add(difference);
}

ibv_qp* CreateDct(ibv_context* context, const ibv_qp_init_attr_ex& attr,
                  const mlx5dv_qp_init_attr& dv) {
  if (attr.comp_mask != IBV_QP_INIT_ATTR_PD || attr.srq == nullptr ||
      Has(dv.comp_mask, MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS) ||
      Has(dv.comp_mask, MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS) ||
      (Has(dv.comp_mask, MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS) &&
       Has(dv.create_flags, MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE))) {
    return Refuse(EINVAL);
  }
  auto dct = std::make_unique<Dct>(*Context::From(context), dv.dc_init_attr.dct_access_key);
  FillBase(dct->base, context, attr);
  AddUses(dct->base, 1);
  return &dct.release()->base;
}

// Checks the send side of any kind. Returns 0 or an errno. Sets `attr` to the real sizes.
int CheckSend(const Dials& dials, const QpTraits& traits, ibv_qp_init_attr_ex* attr,
              SendQueue::Attributes* send) {
  send->wr_api = Has(attr->comp_mask, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS);
  if (send->wr_api) {
    uint64_t allowed = traits.send_ops;
    if (!dials.features.atomics) {
      allowed &= ~uint64_t{IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD};
    }
    if ((attr->send_ops_flags & ~allowed) != 0) return EOPNOTSUPP;
  }
  const Dials::Limits& limits = dials.limits;
  const bool sends_something = traits.kind == QpKind::kDci;
  if ((sends_something && attr->cap.max_send_wr == 0) ||
      attr->cap.max_send_wr > limits.max_send_wr || attr->cap.max_send_sge > limits.max_sge ||
      attr->cap.max_inline_data > limits.max_inline_bytes) {
    return EINVAL;
  }
  attr->cap.max_send_wr = std::bit_ceil(std::max<uint32_t>(attr->cap.max_send_wr, 1));
  attr->cap.max_send_sge = std::max<uint32_t>(attr->cap.max_send_sge, 1);
  send->max_send_wr = attr->cap.max_send_wr;
  send->max_send_sge = attr->cap.max_send_sge;
  send->max_inline_bytes = attr->cap.max_inline_data;
  send->signal_all = attr->sq_sig_all != 0;
  return 0;
}

ibv_qp* Finish(ibv_context* context, const ibv_qp_init_attr_ex& attr, uint32_t handle,
               const QpTraits& traits, const SendQueue::Attributes& send, Qp::Receive receive) {
  ibv_qp base{};
  FillBase(base, context, attr);
  base.handle = handle;
  auto qp = Qp::Create(base, traits, send, std::move(receive));
  if (qp == nullptr) return nullptr;
  AddUses(qp->base(), 1);
  return &qp.release()->base();
}

ibv_qp* CreateDci(ibv_context* context, ibv_qp_init_attr_ex* attr, const mlx5dv_qp_init_attr& dv) {
  if (attr->cap.max_recv_wr != 0 || attr->cap.max_recv_sge != 0) return Refuse(EINVAL);
  const Dials& dials = Context::From(context)->dials();
  const QpTraits& traits = TraitsOf(QpKind::kDci);
  SendQueue::Attributes send;
  if (const int error = CheckSend(dials, traits, attr, &send); error != 0) return Refuse(error);
  if (Has(dv.comp_mask, MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS) && dv.send_ops_flags != 0) {
    return Refuse(EOPNOTSUPP);
  }
  if (Has(dv.comp_mask, MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS)) {
    const mlx5dv_dci_streams& requested = dv.dc_init_attr.dci_streams;
    if (!dials.streams.enabled || requested.log_num_concurent > dials.streams.max_log_concurrent ||
        requested.log_num_errored > dials.streams.max_log_errored) {
      return Refuse(EINVAL);
    }
    send.has_streams = true;
    send.log_concurrent_streams = static_cast<uint8_t>(requested.log_num_concurent);
    send.log_errored_streams = requested.log_num_errored;
  }
  return Finish(context, *attr, kDciHandle, traits, send, {});
}

// Checks the attributes that mlx5dv_create_qp adds to a plain queue pair. Returns 0 or EOPNOTSUPP.
int CheckDv(const Dials& dials, const QpTraits& traits, const mlx5dv_qp_init_attr& dv,
            SendQueue::Attributes* send) {
  if (Has(dv.comp_mask, MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS)) {
    const uint64_t supported = traits.kind == QpKind::kRc ? kMkeyOps : 0;
    if ((dv.send_ops_flags & ~supported) != 0) return EOPNOTSUPP;
    send->mkey_ops = dv.send_ops_flags;
    send->wr_api = true;
  }
  if (Has(dv.comp_mask, MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS) &&
      Has(dv.create_flags, MLX5DV_QP_CREATE_SIG_PIPELINING)) {
    if (!dials.features.signature_pipelining || traits.kind != QpKind::kRc) return EOPNOTSUPP;
    send->signature_pipelining = true;
  }
  return 0;
}

ibv_qp* CreatePlain(ibv_context* context, ibv_qp_init_attr_ex* attr,
                    const mlx5dv_qp_init_attr* dv) {
  const QpTraits* traits = TraitsOf(attr->qp_type);
  if (traits == nullptr) return Refuse(EOPNOTSUPP);
  if ((attr->comp_mask & ~kKnownPlain) != 0 || !Has(attr->comp_mask, IBV_QP_INIT_ATTR_PD) ||
      attr->pd == nullptr || attr->send_cq == nullptr || attr->recv_cq == nullptr ||
      !NamesOwnObjects(context, *attr) ||
      (Has(attr->comp_mask, IBV_QP_INIT_ATTR_CREATE_FLAGS) &&
       (attr->create_flags & ~kKnownCreateFlags) != 0)) {
    return Refuse(EINVAL);
  }
  Context& owner = *Context::From(context);
  SendQueue::Attributes send;
  int error = CheckSend(owner.dials(), *traits, attr, &send);
  if (error == 0 && dv != nullptr) error = CheckDv(owner.dials(), *traits, *dv, &send);
  if (error != 0) return Refuse(error);
  const Dials::Limits& limits = owner.dials().limits;
  if (send.mkey_ops == 0) {
    send.max_inline_bytes =
        std::max(send.max_inline_bytes, std::min(kFreeInlineBytes, limits.max_inline_bytes));
    attr->cap.max_inline_data = send.max_inline_bytes;
  }
  if (attr->cap.max_recv_wr > limits.max_recv_wr || attr->cap.max_recv_sge > limits.max_sge) {
    return Refuse(EINVAL);
  }
  Qp::Receive receive;
  if (attr->srq == nullptr) {
    if (attr->cap.max_recv_wr != 0) {
      attr->cap.max_recv_wr = std::bit_ceil(attr->cap.max_recv_wr);
      attr->cap.max_recv_sge = std::max<uint32_t>(attr->cap.max_recv_sge, 1);
    }
    receive.max_wr = attr->cap.max_recv_wr;
    receive.max_sge = attr->cap.max_recv_sge;
    receive.own = Srq::CreateReceiveQueue(attr->pd, receive.max_wr, receive.max_sge);
    if (receive.own == nullptr) return nullptr;
  } else {
    attr->cap.max_recv_wr = attr->cap.max_recv_sge = 0;
  }
  return Finish(context, *attr, kPlainQpHandle, *traits, send, std::move(receive));
}

}  // namespace

ibv_qp* CreateQp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  if (pd == nullptr || attr == nullptr) return Refuse(EINVAL);
  ibv_qp_init_attr_ex extended = verbs::ToExtended(pd, *attr);
  ibv_qp* qp = CreatePlain(pd->context, &extended, nullptr);
  if (qp != nullptr) attr->cap = extended.cap;
  return qp;
}

ibv_qp* CreateQpEx(ibv_context* context, ibv_qp_init_attr_ex* attr) {
  if (context == nullptr || attr == nullptr) return Refuse(EINVAL);
  return CreatePlain(context, attr, nullptr);
}

ibv_qp* DvCreateQp(ibv_context* context, ibv_qp_init_attr_ex* attr, mlx5dv_qp_init_attr* dv) {
  if (context == nullptr || attr == nullptr) return Refuse(EINVAL);
  const bool dc = dv != nullptr && Has(dv->comp_mask, MLX5DV_QP_INIT_ATTR_MASK_DC);
  if ((attr->qp_type == IBV_QPT_DRIVER) != dc ||
      (dv != nullptr && (dv->comp_mask & ~kKnownDv) != 0 && !Mutated(Mutation::kAnyCreationBits))) {
    return Refuse(EINVAL);
  }
  if (dv != nullptr && Has(dv->comp_mask, MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS)) {
    const uint32_t known = dc ? kScatterFlags : kScatterFlags | MLX5DV_QP_CREATE_SIG_PIPELINING;
    // No signature pipelining on a DCI: a DCI in SQD could not leave it, because its table has no such row.
    if ((dv->create_flags & ~known) != 0 || (dv->create_flags & kScatterFlags) == kScatterFlags) {
      return Refuse(EINVAL);
    }
  }
  if (!dc) {
    if (dv != nullptr && Has(dv->comp_mask, MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS)) {
      return Refuse(EINVAL);
    }
    return CreatePlain(context, attr, dv);
  }
  if (!Context::From(context)->dials().features.dc) return Refuse(EOPNOTSUPP);
  if ((attr->comp_mask & ~kKnownBase) != 0 || !Has(attr->comp_mask, IBV_QP_INIT_ATTR_PD) ||
      attr->pd == nullptr || attr->send_cq == nullptr || attr->recv_cq == nullptr ||
      !NamesOwnObjects(context, *attr)) {
    return Refuse(EINVAL);
  }
  switch (dv->dc_init_attr.dc_type) {
    case MLX5DV_DCTYPE_DCT:
      return CreateDct(context, *attr, *dv);
    case MLX5DV_DCTYPE_DCI:
      return CreateDci(context, attr, *dv);
  }
  return Refuse(EINVAL);
}

ibv_qp_ex* QpToQpEx(ibv_qp* qp) {
  if (qp == nullptr || !Qp::Is(qp) || !Qp::From(qp)->send_queue().attributes().wr_api)
    return nullptr;
  return &Qp::From(qp)->qp_ex;
}

mlx5dv_qp_ex* DvQpExFromIbvQpEx(ibv_qp_ex* qp) { return &Qp::From(qp)->dv_shell.dv; }

int ModifyQp(ibv_qp* qp, ibv_qp_attr* attr, int attr_mask) {
  if (qp == nullptr || attr == nullptr) return EINVAL;
  if (Qp::Is(qp)) return Qp::From(qp)->Modify(*attr, attr_mask);
  if (Dct::Is(qp)) return Dct::From(qp)->Modify(*attr, attr_mask);
  return EINVAL;
}

int QueryQp(ibv_qp* qp, ibv_qp_attr* attr, int attr_mask, ibv_qp_init_attr* init) {
  if (qp == nullptr || attr == nullptr || init == nullptr) return EINVAL;
  if (Qp::Is(qp)) return Qp::From(qp)->Query(attr, attr_mask, init);
  if (Dct::Is(qp)) return Dct::From(qp)->Query(attr, attr_mask, init);
  return EINVAL;
}

int DestroyQp(ibv_qp* qp) {
  if (qp == nullptr || (!Qp::Is(qp) && !Dct::Is(qp))) return EINVAL;
  const ibv_qp uses = *qp;
  if (Qp::Is(qp)) {
    delete Qp::From(qp);
  } else {
    delete Dct::From(qp);
  }
  AddUses(uses, -1);
  return 0;
}

int SetEce(ibv_qp* qp, ibv_ece* ece) {
  if (qp == nullptr || ece == nullptr) return EINVAL;
  if (ece->vendor_id == 0) {
    errno = EOPNOTSUPP;
    return errno;
  }
  if (Qp::Is(qp)) return Qp::From(qp)->SetEce(*ece);
  if (Dct::Is(qp)) return Dct::From(qp)->SetEce(*ece);
  return EINVAL;
}

int QueryEce(ibv_qp* qp, ibv_ece* ece) {
  if (qp == nullptr || ece == nullptr) return EINVAL;
  if (Qp::Is(qp)) return Qp::From(qp)->QueryEce(ece);
  if (Dct::Is(qp)) return Dct::From(qp)->QueryEce(ece);
  return EINVAL;
}

int QueryQpDataInOrder(ibv_qp* qp, ibv_wr_opcode, uint32_t flags) {
  constexpr uint32_t kKnown =
      IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS | IBV_QUERY_QP_DATA_IN_ORDER_DEVICE_ONLY;
  if ((flags & ~kKnown) != 0) return 0;
#if !defined(__x86_64__)
  // The promise of the device is useless if the CPU may reorder its reads.
  if ((flags & IBV_QUERY_QP_DATA_IN_ORDER_DEVICE_ONLY) == 0) return 0;
#endif
  // The promise is for data that lands through this QP. A DCT must be in RTR; any other QP must be in RTS (a DCI: its own reads).
  // shm/copy.h keeps the promise.
  const ibv_qp_state needed = Dct::Is(qp) ? IBV_QPS_RTR : IBV_QPS_RTS;
  if (qp->state != needed && !Mutated(Mutation::kPromiseInAnyState)) return 0;
  uint32_t caps = 0;
  switch (Context::From(qp->context)->dials().features.in_order) {
    case InOrder::kWholeMessage:
      caps = IBV_QUERY_QP_DATA_IN_ORDER_WHOLE_MSG | IBV_QUERY_QP_DATA_IN_ORDER_ALIGNED_128_BYTES;
      break;
    case InOrder::kBlocks128:
      caps = IBV_QUERY_QP_DATA_IN_ORDER_ALIGNED_128_BYTES;
      break;
    case InOrder::kNone:
      break;
  }
  // Without RETURN_CAPS, the result is only whether whole messages arrive in order.
  if ((flags & IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS) != 0) return static_cast<int>(caps);
  return (caps & IBV_QUERY_QP_DATA_IN_ORDER_WHOLE_MSG) != 0 ? 1 : 0;
}

bool DvIsSupported(ibv_device* device) { return SoftDevice::Find(device) != nullptr; }

int DvDciStreamIdReset(ibv_qp* qp, uint16_t stream_id) {
  if (qp == nullptr || !Qp::IsDci(qp)) return EINVAL;
  const Dials::Streams& dial = Qp::From(qp)->context().dials().streams;
  if (!dial.enabled || dial.max_log_errored == 0 || qp->state != IBV_QPS_RTS) return EOPNOTSUPP;
  return Qp::From(qp)->ResetStream(stream_id);
}

int DvMapAhToQp(ibv_ah* ah, uint32_t qp_num) {
  if (ah == nullptr) return EINVAL;
  AddressHandle* handle = AddressHandle::From(ah);
  if (!Context::From(ah->context)->dials().features.ah_mapping || handle->attr.is_global == 0) {
    return EOPNOTSUPP;
  }
  uint32_t unmapped = 0;
  handle->mapped_qp_number.compare_exchange_strong(unmapped, qp_num);
  return 0;
}

int DvReservedQpnAlloc(ibv_context* context, uint32_t* qpn) {
  if (context == nullptr || qpn == nullptr) return EINVAL;
  if (!Context::From(context)->dials().features.reserved_qpns) return EOPNOTSUPP;
  const uint32_t number = Context::From(context)->port().AllocateReservedNumber();
  if (number == kNoNumber) return ENOMEM;
  *qpn = number;
  return 0;
}

int DvReservedQpnDealloc(ibv_context* context, uint32_t qpn) {
  if (context == nullptr) return EINVAL;
  return Context::From(context)->port().FreeReservedNumber(qpn) || Mutated(Mutation::kFreeAnyNumber)
             ? 0
             : EINVAL;
}

}  // namespace sluice::softdc
