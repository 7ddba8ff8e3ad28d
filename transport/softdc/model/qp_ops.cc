// SPDX-License-Identifier: Apache-2.0
//
// The functions behind ibv_qp_ex and mlx5dv_qp_ex: ibv_wr_post(3), mlx5dv_wr_post(3).
#include "transport/softdc/model/qp.h"

namespace sluice::softdc {
namespace {

void StartOp(ibv_qp_ex* qp) { SendQueue::Of(qp).Start(); }
int CompleteOp(ibv_qp_ex* qp) { return SendQueue::Of(qp).Complete(); }
void AbortOp(ibv_qp_ex* qp) { SendQueue::Of(qp).Abort(); }

// Separate functions, so that the builders below save no registers for them.
[[gnu::noinline, gnu::cold]] void SendSlowly(ibv_qp_ex* qp) {
  SendQueue::Of(qp).NewWqe(IBV_WR_SEND);
}
[[gnu::noinline, gnu::cold]] void WriteSlowly(ibv_qp_ex* qp, uint32_t rkey,
                                              uint64_t remote_address) {
  Wqe* wqe = SendQueue::Of(qp).NewWqe(IBV_WR_RDMA_WRITE);
  if (wqe == nullptr) return;
  wqe->rkey = rkey;
  wqe->remote_address = remote_address;
}

void SendOp(ibv_qp_ex* qp) {
  SendQueue& queue = SendQueue::Of(qp);
  if (!queue.RoomIsKnown()) [[unlikely]]
    return SendSlowly(qp);
  queue.TakeSlot(IBV_WR_SEND);
}

void SendImmOp(ibv_qp_ex* qp, __be32 imm_data) {
  if (Wqe* wqe = SendQueue::Of(qp).NewWqe(IBV_WR_SEND_WITH_IMM)) wqe->imm_data = imm_data;
}

void SendInvOp(ibv_qp_ex* qp, uint32_t invalidate_rkey) {
  if (Wqe* wqe = SendQueue::Of(qp).NewWqe(IBV_WR_SEND_WITH_INV)) wqe->rkey = invalidate_rkey;
}

Wqe* RdmaOp(ibv_qp_ex* qp, uint8_t opcode, uint32_t rkey, uint64_t remote_address,
            __be32 imm_data) {
  Wqe* wqe = SendQueue::Of(qp).NewWqe(opcode);
  if (wqe == nullptr) return nullptr;
  wqe->rkey = rkey;
  wqe->remote_address = remote_address;
  wqe->imm_data = imm_data;
  return wqe;
}

void WriteOp(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_address) {
  SendQueue& queue = SendQueue::Of(qp);
  if (!queue.RoomIsKnown()) [[unlikely]]
    return WriteSlowly(qp, rkey, remote_address);
  Wqe& wqe = queue.TakeSlot(IBV_WR_RDMA_WRITE);
  wqe.rkey = rkey;
  wqe.remote_address = remote_address;
}

void WriteImmOp(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_address, __be32 imm_data) {
  RdmaOp(qp, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, remote_address, imm_data);
}

void ReadOp(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_address) {
  RdmaOp(qp, IBV_WR_RDMA_READ, rkey, remote_address, 0);
}

void CompareSwapOp(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_address, uint64_t compare,
                   uint64_t swap) {
  if (RdmaOp(qp, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, remote_address, 0) == nullptr) return;
  SendQueue::Of(qp).operands().atomic = {.compare_add = compare, .swap = swap};
}

void FetchAddOp(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_address, uint64_t add) {
  if (RdmaOp(qp, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, remote_address, 0) == nullptr) return;
  SendQueue::Of(qp).operands().atomic = {.compare_add = add, .swap = 0};
}

void LocalInvOp(ibv_qp_ex* qp, uint32_t invalidate_rkey) {
  if (Wqe* wqe = SendQueue::Of(qp).NewWqe(IBV_WR_LOCAL_INV)) wqe->rkey = invalidate_rkey;
}

void BindMwOp(ibv_qp_ex* qp, ibv_mw* mw, uint32_t rkey, const ibv_mw_bind_info* info) {
  if (SendQueue::Of(qp).NewWqe(IBV_WR_BIND_MW) == nullptr) return;
  SendQueue::Of(qp).operands().bind = {
      .window_rkey = mw->rkey, .new_rkey = rkey, .type = mw->type, .info = *info};
}

void SetSgeOp(ibv_qp_ex* qp, uint32_t lkey, uint64_t address, uint32_t length) {
  SendQueue::Of(qp).SetSge(lkey, address, length);
}

void SetSgeListOp(ibv_qp_ex* qp, size_t count, const ibv_sge* list) {
  SendQueue::Of(qp).SetSges(count, list);
}

void SetInlineOp(ibv_qp_ex* qp, void* address, size_t length) {
  const ibv_data_buf buffer{.addr = address, .length = length};
  SendQueue::Of(qp).SetInline(1, &buffer);
}

void SetInlineListOp(ibv_qp_ex* qp, size_t count, const ibv_data_buf* buffers) {
  SendQueue::Of(qp).SetInline(count, buffers);
}

void SetUdAddressOp(ibv_qp_ex* qp, ibv_ah* ah, uint32_t remote_qpn, uint32_t remote_qkey) {
  SendQueue::Of(qp).SetDatagramAddress(ah, remote_qpn, remote_qkey);
}

void SetDcAddressStreamOp(mlx5dv_qp_ex* dv, ibv_ah* ah, uint32_t dctn, uint64_t dc_key,
                          uint16_t stream_id) {
  SendQueue::Of(dv).SetDcAddress(ah, dctn, dc_key, stream_id);
}

void SetDcAddressOp(mlx5dv_qp_ex* dv, ibv_ah* ah, uint32_t dctn, uint64_t dc_key) {
  SendQueue::Of(dv).SetDcAddress(ah, dctn, dc_key, /*stream_id=*/0);
}

}  // namespace

void Qp::FillOps() {
  // Sets every builder that the kind allows, even if the program did not request it.
  const auto allowed = [&](uint64_t op) { return (traits_.send_ops & op) != 0; };
  qp_ex.wr_start = &StartOp;
  qp_ex.wr_complete = &CompleteOp;
  qp_ex.wr_abort = &AbortOp;
  qp_ex.wr_send = &SendOp;
  qp_ex.wr_send_imm = &SendImmOp;
  if (allowed(IBV_QP_EX_WITH_SEND_WITH_INV)) qp_ex.wr_send_inv = &SendInvOp;
  if (allowed(IBV_QP_EX_WITH_RDMA_WRITE)) qp_ex.wr_rdma_write = &WriteOp;
  if (allowed(IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM)) qp_ex.wr_rdma_write_imm = &WriteImmOp;
  if (allowed(IBV_QP_EX_WITH_RDMA_READ)) qp_ex.wr_rdma_read = &ReadOp;
  if (allowed(IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP)) qp_ex.wr_atomic_cmp_swp = &CompareSwapOp;
  if (allowed(IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)) qp_ex.wr_atomic_fetch_add = &FetchAddOp;
  if (allowed(IBV_QP_EX_WITH_LOCAL_INV)) qp_ex.wr_local_inv = &LocalInvOp;
  if (allowed(IBV_QP_EX_WITH_BIND_MW)) qp_ex.wr_bind_mw = &BindMwOp;
  qp_ex.wr_set_sge = &SetSgeOp;
  qp_ex.wr_set_sge_list = &SetSgeListOp;
  qp_ex.wr_set_inline_data = &SetInlineOp;
  qp_ex.wr_set_inline_data_list = &SetInlineListOp;
  if (traits_.kind == QpKind::kUd) qp_ex.wr_set_ud_addr = &SetUdAddressOp;
  if (traits_.kind == QpKind::kDci) {
    dv_shell.dv.wr_set_dc_addr = &SetDcAddressOp;
    dv_shell.dv.wr_set_dc_addr_stream = &SetDcAddressStreamOp;
  }
  MkeyPoster::FillOps(send_->attributes().mkey_ops, &dv_shell.dv);
}

}  // namespace sluice::softdc
