// SPDX-License-Identifier: Apache-2.0
//
// Creating, changing and asking QPs: DCI and DCT (mlx5dv_create_qp), and the mlx5dv calls on them.
#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <memory>

#include "transport/softdc/device.h"
#include "transport/softdc/model/address_handle.h"
#include "transport/softdc/model/context.h"
#include "transport/softdc/model/cq.h"
#include "transport/softdc/model/dci.h"
#include "transport/softdc/model/dct.h"
#include "transport/softdc/model/srq.h"
#include "transport/softdc/verbs_objects.h"

// Added to ibv_query_qp_data_in_order after the release whose headers Debian has (docs/facts.md,
// "In-order query").
#ifndef IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS
#define IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS (1u << 0)
#define IBV_QUERY_QP_DATA_IN_ORDER_WHOLE_MSG (1u << 0)
#define IBV_QUERY_QP_DATA_IN_ORDER_ALIGNED_128_BYTES (1u << 1)
#endif

namespace sluice::softdc {
namespace {

constexpr uint64_t kKnownBase = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
constexpr uint64_t kKnownDv =
    MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS | MLX5DV_QP_INIT_ATTR_MASK_DC |
    MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS | MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
constexpr uint32_t kKnownCreateFlags =
    MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE | MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE;
constexpr uint64_t kSendOps = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                              IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                              IBV_QP_EX_WITH_RDMA_READ;

ibv_qp* Refuse(int error) {
  errno = error;
  return nullptr;
}

bool Has(uint64_t mask, uint64_t bit) { return (mask & bit) != 0; }

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

ibv_qp* CreateDci(ibv_context* context, ibv_qp_init_attr_ex* attr, const mlx5dv_qp_init_attr& dv) {
  if (attr->cap.max_recv_wr != 0 || attr->cap.max_recv_sge != 0) return Refuse(EINVAL);
  const bool wr_api = Has(attr->comp_mask, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS);
  if (wr_api && (attr->send_ops_flags & ~kSendOps) != 0) return Refuse(EOPNOTSUPP);
  if (Has(dv.comp_mask, MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS) && dv.send_ops_flags != 0) {
    return Refuse(EOPNOTSUPP);
  }
  if (attr->cap.max_send_wr == 0 || attr->cap.max_send_wr > kMaxSendWr ||
      attr->cap.max_send_sge > kMaxSendSge || attr->cap.max_inline_data > kMaxInlineBytes) {
    return Refuse(EINVAL);
  }
  const bool streams = Has(dv.comp_mask, MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS);
  const mlx5dv_dci_streams& asked = dv.dc_init_attr.dci_streams;
  if (streams &&
      (asked.log_num_concurent > kMaxLogStreams || asked.log_num_errored > kMaxLogErroredStreams)) {
    return Refuse(EINVAL);
  }
  attr->cap.max_send_wr = std::bit_ceil(attr->cap.max_send_wr);
  attr->cap.max_send_sge = std::max<uint32_t>(attr->cap.max_send_sge, 1);
  const Dci::Attributes attributes{
      .max_send_wr = attr->cap.max_send_wr,
      .max_send_sge = attr->cap.max_send_sge,
      .max_inline_bytes = attr->cap.max_inline_data,
      .has_streams = streams,
      .log_errored_streams = streams ? asked.log_num_errored : uint8_t{0},
      .signal_all = attr->sq_sig_all != 0,
      .wr_api = wr_api,
  };
  Context& owner = *Context::From(context);
  const uint32_t number = owner.numbers().Allocate();
  if (number == kNoQpNumber) return Refuse(ENOMEM);
  auto dci = std::make_unique<Dci>(owner, attributes, number);
  FillBase(dci->qp_ex.qp_base, context, *attr);
  dci->qp_ex.qp_base.handle = kDciHandle;
  AddUses(dci->qp_ex.qp_base, 1);
  return &dci.release()->qp_ex.qp_base;
}

}  // namespace

ibv_qp* DvCreateQp(ibv_context* context, ibv_qp_init_attr_ex* attr, mlx5dv_qp_init_attr* dv) {
  if (context == nullptr || attr == nullptr || dv == nullptr) return Refuse(EINVAL);
  if (attr->qp_type != IBV_QPT_DRIVER)
    return Refuse(EOPNOTSUPP);  // RC, UC and UD are not built yet
  if ((attr->comp_mask & ~kKnownBase) != 0 || !Has(attr->comp_mask, IBV_QP_INIT_ATTR_PD) ||
      attr->pd == nullptr || (dv->comp_mask & ~kKnownDv) != 0 ||
      !Has(dv->comp_mask, MLX5DV_QP_INIT_ATTR_MASK_DC) || attr->send_cq == nullptr ||
      attr->recv_cq == nullptr) {
    return Refuse(EINVAL);
  }
  if (Has(dv->comp_mask, MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS)) {
    if ((dv->create_flags & MLX5DV_QP_CREATE_SIG_PIPELINING) != 0) return Refuse(EOPNOTSUPP);
    if ((dv->create_flags & ~kKnownCreateFlags) != 0 || dv->create_flags == kKnownCreateFlags) {
      return Refuse(EINVAL);
    }
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
  if (!Dci::Is(qp) || !Dci::From(qp)->attributes().wr_api) return nullptr;
  return &Dci::From(qp)->qp_ex;
}

mlx5dv_qp_ex* DvQpExFromIbvQpEx(ibv_qp_ex* qp) { return &Dci::From(qp)->dv_shell.dv; }

int ModifyQp(ibv_qp* qp, ibv_qp_attr* attr, int attr_mask) {
  if (Dci::Is(qp)) return Dci::From(qp)->Modify(*attr, attr_mask);
  if (Dct::Is(qp)) return Dct::From(qp)->Modify(*attr, attr_mask);
  return EINVAL;
}

int QueryQp(ibv_qp* qp, ibv_qp_attr* attr, int attr_mask, ibv_qp_init_attr* init) {
  if (Dci::Is(qp)) return Dci::From(qp)->Query(attr, attr_mask, init);
  if (Dct::Is(qp)) return Dct::From(qp)->Query(attr, attr_mask, init);
  return EINVAL;
}

int DestroyQp(ibv_qp* qp) {
  if (Dci::Is(qp)) {
    const uint32_t number = qp->qp_num;
    Context& context = *Context::From(qp->context);
    const ibv_qp uses = *qp;
    delete Dci::From(qp);
    AddUses(uses, -1);
    context.numbers().Free(number);
    return 0;
  }
  if (Dct::Is(qp)) {
    const ibv_qp uses = *qp;
    delete Dct::From(qp);
    AddUses(uses, -1);
    return 0;
  }
  return EINVAL;
}

int SetEce(ibv_qp* qp, ibv_ece* ece) {
  if (ece->vendor_id == 0) {
    errno = EOPNOTSUPP;
    return errno;
  }
  if (Dci::Is(qp)) return Dci::From(qp)->SetEce(*ece);
  if (Dct::Is(qp)) return Dct::From(qp)->SetEce(*ece);
  return EINVAL;
}

int QueryEce(ibv_qp* qp, ibv_ece* ece) {
  if (Dci::Is(qp)) return Dci::From(qp)->QueryEce(ece);
  if (Dct::Is(qp)) return Dct::From(qp)->QueryEce(ece);
  return EINVAL;
}

int QueryQpDataInOrder(ibv_qp* qp, ibv_wr_opcode, uint32_t flags) {
#if defined(__x86_64__)
  // Asked of the QP into which data lands: a DCT in RTR, a DCI (its own reads) in RTS. shm/copy.h
  // keeps the promise.
  const ibv_qp_state needed = Dct::Is(qp) ? IBV_QPS_RTR : IBV_QPS_RTS;
  if (qp->state != needed) return 0;
  if (flags == 0) return 1;
  if (flags == IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS) {
    return static_cast<int>(IBV_QUERY_QP_DATA_IN_ORDER_WHOLE_MSG |
                            IBV_QUERY_QP_DATA_IN_ORDER_ALIGNED_128_BYTES);
  }
#endif
  return 0;
}

bool DvIsSupported(ibv_device* device) { return device == Device(); }

int DvDciStreamIdReset(ibv_qp* qp, uint16_t stream_id) {
  if (!Dci::Is(qp)) return EINVAL;
  if (qp->state != IBV_QPS_RTS) return EOPNOTSUPP;
  return Dci::From(qp)->ResetStream(stream_id);
}

int DvMapAhToQp(ibv_ah* ah, uint32_t qp_num) {
  AddressHandle* handle = AddressHandle::From(ah);
  if (!handle->is_global) return EOPNOTSUPP;
  uint32_t unmapped = 0;
  handle->mapped_qp_number.compare_exchange_strong(unmapped, qp_num);
  return 0;
}

int DvReservedQpnAlloc(ibv_context* context, uint32_t* qpn) {
  const uint32_t number = Context::From(context)->reserved_numbers().Allocate();
  if (number == kNoQpNumber) return ENOMEM;
  *qpn = number;
  return 0;
}

int DvReservedQpnDealloc(ibv_context* context, uint32_t qpn) {
  return Context::From(context)->reserved_numbers().Free(qpn) ? 0 : EINVAL;
}

}  // namespace sluice::softdc
