// SPDX-License-Identifier: Apache-2.0
//
// Builds WQEs in the queue's own slots: ibv_wr_post(3) and ibv_post_send(3).
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/softdc/model/address_handle.h"
#include "transport/softdc/model/mutation.h"
#include "transport/softdc/model/qp.h"
#include "transport/softdc/model/send_queue.h"

namespace sluice::softdc {
namespace {

constexpr uint32_t kOwnQkey = 0x80000000;  // in a Q_Key: use the queue's own Q_Key instead

}  // namespace

void SendQueue::Start() {
  lock_.Lock();
  batch_error_ = 0;
  missing_setters_ = 0;
}

void SendQueue::Abort() {
  head_ = posted_;
  mkey_poster_.Forget(posted_);
  lock_.Unlock();
}

int SendQueue::Complete() {
  int error = batch_error_;
  if (error == 0 && state_ != IBV_QPS_RTS && state_ != IBV_QPS_ERR && state_ != IBV_QPS_SQD &&
      !(state_ == IBV_QPS_RTR && Mutated(Mutation::kPostWhenReadyToReceive))) {
    error = EINVAL;
  }
  // The last WQE needs its setters as well.
  if (error == 0 && missing_setters_ != 0) error = EINVAL;
  if (error != 0 && Mutated(Mutation::kBatchKeepsGoodPart) && state_ == IBV_QPS_RTS &&
      head_ - posted_ > 1) {
    --head_;  // the bad one
    HandOver();
    lock_.Unlock();
    return error;
  }
  if (error != 0) {
    Abort();
    return error;
  }
  HandOver();
  lock_.Unlock();
  return 0;
}

void SendQueue::HandOver() {
  const uint64_t first = posted_;
  posted_ = head_;
  requester_->RunPosted(first);
}

void SendQueue::Fail(int error) {
  if (batch_error_ == 0) batch_error_ = error;
}

bool SendQueue::HasRoom() {
  if (batch_error_ != 0) return false;
  if (missing_setters_ != 0) {
    Fail(EINVAL);
    return false;
  }
  const uint64_t free_below = Mutated(Mutation::kSlotFreeWhenDone)
                                  ? emitted_
                                  : std::min(released_.load(std::memory_order_acquire), emitted_);
  room_end_ = free_below + attributes_.max_send_wr;
  if (head_ < room_end_) return true;
  Fail(ENOMEM);
  return false;
}

void SendQueue::SetSges(size_t count, const ibv_sge* list) {
  if (batch_error_ != 0 || head_ == posted_) return;
  if (count > attributes_.max_send_sge) return Fail(ENOMEM);
  Wqe& wqe = slot(head_ - 1);
  ibv_sge* to = &sges_[((head_ - 1) & slot_mask_) * attributes_.max_send_sge];
  uint16_t used = 0;
  for (size_t i = 0; i < count; ++i) {
    if (list[i].length == 0) continue;
    to[used++] = list[i];
    wqe.length_bytes += list[i].length;
  }
  wqe.num_sge = used;
  missing_setters_ &= ~kDataSetter;
}

void SendQueue::SetInline(size_t count, const ibv_data_buf* buffers) {
  if (batch_error_ != 0 || head_ == posted_) return;
  Wqe& wqe = slot(head_ - 1);
  if (ReturnsData(wqe.opcode)) return Fail(EINVAL);
  std::byte* to = attributes_.max_inline_bytes == 0
                      ? nullptr
                      : &inline_[((head_ - 1) & slot_mask_) * attributes_.max_inline_bytes];
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

void SendQueue::SetDatagramAddress(const ibv_ah* ah, uint32_t target_number, uint32_t qkey) {
  if (batch_error_ != 0 || head_ == posted_) return;
  Wqe& wqe = slot(head_ - 1);
  const AddressHandle& handle = *AddressHandle::From(ah);
  wqe.node = handle.node;
  wqe.target_number = target_number & kQpNumberMask;
  wqe.key = (qkey & kOwnQkey) != 0 ? attr_.qkey : qkey;
  wqe.service_level = handle.service_level;
  operands().datagram = {.source = handle.source_gid,
                         .destination = handle.attr.grh.dgid,
                         .flow_label = handle.attr.grh.flow_label,
                         .traffic_class = handle.attr.grh.traffic_class,
                         .hop_limit = handle.attr.grh.hop_limit,
                         .has_grh = handle.attr.is_global != 0};
  missing_setters_ &= ~kAddressSetter;
}

int SendQueue::BuildPosted(const ibv_send_wr& wr) {
  qp_.qp_ex.wr_id = wr.wr_id;
  qp_.qp_ex.wr_flags = wr.send_flags;
  switch (wr.opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_SEND_WITH_INV:
      break;
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
    case IBV_WR_RDMA_READ:
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
    case IBV_WR_LOCAL_INV:
    case IBV_WR_BIND_MW:
      if (traits_.kind == QpKind::kUd) return EINVAL;
      break;
    default:
      return EINVAL;
  }
  if (traits_.kind == QpKind::kUc && ReturnsData(wr.opcode)) return EINVAL;
  Wqe* wqe = NewWqe(wr.opcode);
  if (wqe == nullptr) return batch_error_;
  wqe->imm_data = wr.imm_data;
  if (IsAtomic(wr.opcode)) {
    wqe->remote_address = wr.wr.atomic.remote_addr;
    wqe->rkey = wr.wr.atomic.rkey;
    operands().atomic = {.compare_add = wr.wr.atomic.compare_add, .swap = wr.wr.atomic.swap};
  } else if (wr.opcode == IBV_WR_BIND_MW) {
    operands().bind = {.window_rkey = wr.bind_mw.mw->rkey,
                       .new_rkey = wr.bind_mw.rkey,
                       .type = wr.bind_mw.mw->type,
                       .info = wr.bind_mw.bind_info};
  } else if (wr.opcode == IBV_WR_SEND_WITH_INV || wr.opcode == IBV_WR_LOCAL_INV) {
    wqe->rkey = wr.invalidate_rkey;
  } else if (traits_.kind != QpKind::kUd) {
    wqe->remote_address = wr.wr.rdma.remote_addr;
    wqe->rkey = wr.wr.rdma.rkey;
  }
  if (IsLocal(wr.opcode)) return 0;
  if (traits_.kind == QpKind::kUd) {
    SetDatagramAddress(wr.wr.ud.ah, wr.wr.ud.remote_qpn, wr.wr.ud.remote_qkey);
  }
  if (wr.num_sge < 0) return EINVAL;
  if ((wr.send_flags & IBV_SEND_INLINE) == 0) {
    SetSges(static_cast<size_t>(wr.num_sge), wr.sg_list);
    return batch_error_;
  }
  // All pieces in one call, because SetInline starts at the beginning of the room.
  ibv_data_buf buffers[kMaxInlineSges];
  if (static_cast<uint32_t>(wr.num_sge) > kMaxInlineSges) return ENOMEM;
  for (int i = 0; i < wr.num_sge; ++i) {
    buffers[i] = {.addr = reinterpret_cast<void*>(wr.sg_list[i].addr),
                  .length = wr.sg_list[i].length};
  }
  SetInline(static_cast<size_t>(wr.num_sge), buffers);
  return batch_error_;
}

int SendQueue::Post(ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  Start();
  int error = 0;
  // There is no way to give a DC address to ibv_post_send.
  if (traits_.kind == QpKind::kDci ||
      (state_ != IBV_QPS_RTS && state_ != IBV_QPS_ERR && state_ != IBV_QPS_SQD)) {
    error = EINVAL;
  }
  for (; error == 0 && wr != nullptr; wr = wr->next) {
    const uint64_t before = head_;
    error = BuildPosted(*wr);
    if (error != 0) {
      head_ = before;
      break;
    }
  }
  if (error != 0 && bad_wr != nullptr) *bad_wr = wr;
  if (error != 0 && Mutated(Mutation::kChainPostsNothing)) head_ = posted_;
  // WRs before the bad WR are posted.
  if (head_ != posted_) HandOver();
  lock_.Unlock();
  return error;
}

}  // namespace sluice::softdc
