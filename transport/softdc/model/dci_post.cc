// SPDX-License-Identifier: Apache-2.0
//
// ibv_wr_post(3) on a DCI: the functions behind ibv_qp_ex and mlx5dv_qp_ex. They build WQEs in the
// queue's own slots; nothing runs before Complete().
#include <cerrno>
#include <cstring>

#include "transport/softdc/loop/loop.h"
#include "transport/softdc/model/address_handle.h"
#include "transport/softdc/model/dci.h"
#include "transport/softdc/model/send_execution.h"

namespace sluice::softdc {

void Dci::Start() {
  lock_.Lock();
  batch_head_ = head_;
  batch_error_ = 0;
}

void Dci::Abort() {
  head_ = batch_head_;
  lock_.Unlock();
}

int Dci::Complete() {
  int error = batch_error_;
  if (error == 0 && state_ != IBV_QPS_RTS && state_ != IBV_QPS_ERR) error = EINVAL;
  if (error == 0) {
    // The last WQE needs its two setters as well.
    if (head_ != batch_head_ && missing_setters_ != 0) error = EINVAL;
  }
  if (error != 0) {
    head_ = batch_head_;
    lock_.Unlock();
    return error;
  }
  const uint64_t first = batch_head_;
  batch_head_ = head_;
  SendExecution(*this).RunPosted(first);
  lock_.Unlock();
  return 0;
}

void Dci::Fail(int error) {
  if (batch_error_ == 0) batch_error_ = error;
}

Wqe* Dci::NewWqe(uint8_t opcode) {
  if (batch_error_ != 0) return nullptr;
  if (head_ != batch_head_ && missing_setters_ != 0) {
    Fail(EINVAL);
    return nullptr;
  }
  if (head_ - released_.load(std::memory_order_acquire) >= attributes_.max_send_wr) {
    Fail(ENOMEM);
    return nullptr;
  }
  Wqe& wqe = slot(head_++);
  wqe = Wqe{.wr_id = qp_ex.wr_id,
            .opcode = opcode,
            .flags = static_cast<uint8_t>(
                qp_ex.wr_flags & (IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_FENCE))};
  missing_setters_ = kDataSetter | kAddressSetter;
  return &wqe;
}

void Dci::SetSges(size_t count, const ibv_sge* list) {
  if (batch_error_ != 0 || head_ == batch_head_) return;
  if (count > attributes_.max_send_sge) return Fail(ENOMEM);
  Wqe& wqe = slot(head_ - 1);
  ibv_sge* to = sges(head_ - 1);
  uint16_t used = 0;
  for (size_t i = 0; i < count; ++i) {
    if (list[i].length == 0) continue;
    to[used++] = list[i];
    wqe.length_bytes += list[i].length;
  }
  wqe.num_sge = used;
  missing_setters_ &= ~kDataSetter;
}

void Dci::SetInline(size_t count, const ibv_data_buf* buffers) {
  if (batch_error_ != 0 || head_ == batch_head_) return;
  Wqe& wqe = slot(head_ - 1);
  if (wqe.opcode == IBV_WR_RDMA_READ) return Fail(EINVAL);
  std::byte* to = attributes_.max_inline_bytes == 0 ? nullptr : inline_data(head_ - 1);
  size_t used = 0;
  for (size_t i = 0; i < count; ++i) {
    if (buffers[i].length > attributes_.max_inline_bytes - used) return Fail(ENOMEM);
    if (buffers[i].length == 0) continue;
    std::memcpy(to + used, buffers[i].addr, buffers[i].length);
    used += buffers[i].length;
  }
  wqe.inlined = true;
  wqe.length_bytes = static_cast<uint32_t>(used);
  missing_setters_ &= ~kDataSetter;
}

void Dci::SetAddress(const ibv_ah* ah, uint32_t target_number, uint64_t dc_key,
                     uint16_t stream_id) {
  if (batch_error_ != 0 || head_ == batch_head_) return;
  Wqe& wqe = slot(head_ - 1);
  wqe.reachable = AddressHandle::From(ah)->reachable;
  wqe.target_number = target_number & kQpNumberMask;
  wqe.dc_key = dc_key;
  wqe.stream_id = stream_id;
  missing_setters_ &= ~kAddressSetter;
}

namespace {

void StartOp(ibv_qp_ex* qp) { Dci::From(qp)->Start(); }
int CompleteOp(ibv_qp_ex* qp) { return Dci::From(qp)->Complete(); }
void AbortOp(ibv_qp_ex* qp) { Dci::From(qp)->Abort(); }

void SendOp(ibv_qp_ex* qp) { Dci::From(qp)->NewWqe(IBV_WR_SEND); }

void SendImmOp(ibv_qp_ex* qp, __be32 imm_data) {
  if (Wqe* wqe = Dci::From(qp)->NewWqe(IBV_WR_SEND_WITH_IMM)) wqe->imm_data = imm_data;
}

void RdmaOp(ibv_qp_ex* qp, uint8_t opcode, uint32_t rkey, uint64_t remote_address,
            __be32 imm_data) {
  Wqe* wqe = Dci::From(qp)->NewWqe(opcode);
  if (wqe == nullptr) return;
  wqe->rkey = rkey;
  wqe->remote_address = remote_address;
  wqe->imm_data = imm_data;
}

void WriteOp(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_address) {
  RdmaOp(qp, IBV_WR_RDMA_WRITE, rkey, remote_address, 0);
}

void WriteImmOp(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_address, __be32 imm_data) {
  RdmaOp(qp, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, remote_address, imm_data);
}

void ReadOp(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_address) {
  RdmaOp(qp, IBV_WR_RDMA_READ, rkey, remote_address, 0);
}

void SetSgeOp(ibv_qp_ex* qp, uint32_t lkey, uint64_t address, uint32_t length) {
  const ibv_sge sge{.addr = address, .length = length, .lkey = lkey};
  Dci::From(qp)->SetSges(1, &sge);
}

void SetSgeListOp(ibv_qp_ex* qp, size_t count, const ibv_sge* list) {
  Dci::From(qp)->SetSges(count, list);
}

void SetInlineOp(ibv_qp_ex* qp, void* address, size_t length) {
  const ibv_data_buf buffer{.addr = address, .length = length};
  Dci::From(qp)->SetInline(1, &buffer);
}

void SetInlineListOp(ibv_qp_ex* qp, size_t count, const ibv_data_buf* buffers) {
  Dci::From(qp)->SetInline(count, buffers);
}

void SetDcAddressStreamOp(mlx5dv_qp_ex* dv, ibv_ah* ah, uint32_t dctn, uint64_t dc_key,
                          uint16_t stream_id) {
  Dci::From(dv)->SetAddress(ah, dctn, dc_key, stream_id);
}

void SetDcAddressOp(mlx5dv_qp_ex* dv, ibv_ah* ah, uint32_t dctn, uint64_t dc_key) {
  Dci::From(dv)->SetAddress(ah, dctn, dc_key, /*stream_id=*/0);
}

}  // namespace

void Dci::FillOps() {
  qp_ex.wr_start = &StartOp;
  qp_ex.wr_complete = &CompleteOp;
  qp_ex.wr_abort = &AbortOp;
  qp_ex.wr_send = &SendOp;
  qp_ex.wr_send_imm = &SendImmOp;
  qp_ex.wr_rdma_write = &WriteOp;
  qp_ex.wr_rdma_write_imm = &WriteImmOp;
  qp_ex.wr_rdma_read = &ReadOp;
  qp_ex.wr_set_sge = &SetSgeOp;
  qp_ex.wr_set_sge_list = &SetSgeListOp;
  qp_ex.wr_set_inline_data = &SetInlineOp;
  qp_ex.wr_set_inline_data_list = &SetInlineListOp;
  dv_shell.dv.wr_set_dc_addr = &SetDcAddressOp;
  dv_shell.dv.wr_set_dc_addr_stream = &SetDcAddressStreamOp;
}

}  // namespace sluice::softdc
