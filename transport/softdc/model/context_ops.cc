// SPDX-License-Identifier: Apache-2.0
//
// The functions that inlines of verbs.h find in ibv_context and verbs_context. If a slot is empty, the inline itself returns EOPNOTSUPP:
// XRC, flows, work queues, counters, device memory, CQ moderation, null regions.
#include <cerrno>

#include "transport/softdc/device_attributes.h"
#include "transport/softdc/model/context.h"
#include "transport/softdc/model/cq.h"
#include "transport/softdc/model/memory_region.h"
#include "transport/softdc/model/qp.h"
#include "transport/softdc/model/srq.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace {

constexpr int kCompletionVectors = 1;

int PollCq(ibv_cq* cq, int max, ibv_wc* wc) { return Cq::From(cq)->Poll(max, wc); }

int RequestNotifyCq(ibv_cq* cq, int solicited_only) {
  return Cq::From(cq)->RequestNotify(solicited_only != 0);
}

int PostSrqRecv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  return Srq::From(srq)->Post(wr, bad_wr);
}

// A DCT neither sends nor has a receive queue.
int PostSend(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  if (Qp::Is(qp)) return Qp::From(qp)->send_queue().Post(wr, bad_wr);
  if (bad_wr != nullptr) *bad_wr = wr;
  return EINVAL;
}

int PostRecv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  if (Qp::Is(qp)) return Qp::From(qp)->PostReceive(wr, bad_wr);
  if (bad_wr != nullptr) *bad_wr = wr;
  return EINVAL;
}

// man ibv_bind_mw. The inline has checked that the window is of type 1. The window has its new key as soon as the bind is posted.
int BindMw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) {
  const ibv_mw_bind_info& info = bind->bind_info;
  if ((info.mr == nullptr && (info.addr != 0 || info.length != 0)) ||
      (info.mw_access_flags & IBV_ACCESS_ZERO_BASED) != 0) {
    return errno = EINVAL;
  }
  if (info.mr != nullptr && info.mr->pd != qp->pd) return errno = EPERM;
  ibv_send_wr wr{}, *bad_wr = nullptr;
  wr.wr_id = bind->wr_id;
  wr.opcode = IBV_WR_BIND_MW;
  wr.send_flags = bind->send_flags;
  wr.bind_mw = {.mw = mw, .rkey = ibv_inc_rkey(mw->rkey), .bind_info = info};
  if (const int error = PostSend(qp, &wr, &bad_wr); error != 0) return errno = error;
  mw->rkey = wr.bind_mw.rkey;
  return 0;
}

// man ibv_advise_mr: memory that is paged on demand needs no advice here.
int AdviseMr(ibv_pd* pd, ibv_advise_mr_advice advice, uint32_t flags, ibv_sge* list,
             uint32_t count) {
  const bool known = advice == IBV_ADVISE_MR_ADVICE_PREFETCH ||
                     advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE ||
                     advice == IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT;
  if ((flags & ~uint32_t{IBV_ADVISE_MR_FLAG_FLUSH}) != 0 || count == 0) return EINVAL;
  if (!known) return EOPNOTSUPP;
  const bool writes = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
  const uint32_t access = writes ? uint32_t{IBV_ACCESS_LOCAL_WRITE} : 0;
  for (uint32_t i = 0; i < count; ++i) {
    const shm::MemoryRegionEntry* region =
        FindLocalRegion(*Context::From(pd->context), list[i], Pd::From(pd)->number, access);
    if (region == nullptr) return ENOENT;
    if ((region->access & IBV_ACCESS_ON_DEMAND) == 0) return EINVAL;
  }
  return 0;
}

}  // namespace

void Context::FillOps() {
  shell_.self = this;
  verbs_context& verbs = shell_.verbs;
  verbs.sz = sizeof(verbs_context);
  verbs.query_port = &QueryPortSized;
  verbs.query_device_ex = &QueryDeviceEx;
  verbs.query_rt_values = &QueryRtValues;
  verbs.create_cq_ex = &CreateCqEx;
  verbs.create_srq_ex = &CreateSrqEx;
  verbs.create_qp_ex = &CreateQpEx;
  verbs.get_srq_num = &GetSrqNum;
  verbs.advise_mr = &AdviseMr;
  verbs.alloc_td = &AllocTd;
  verbs.dealloc_td = &DeallocTd;
  verbs.alloc_parent_domain = &AllocParentDomain;
  ibv_context& context = verbs.context;
  context.device = &device_.base;
  context.abi_compat = __VERBS_ABI_IS_EXTENDED;
  context.cmd_fd = -1;
  context.async_fd = async_events_.fd();
  context.num_comp_vectors = kCompletionVectors;
  context.ops.poll_cq = &PollCq;
  context.ops.req_notify_cq = &RequestNotifyCq;
  context.ops.post_srq_recv = &PostSrqRecv;
  context.ops.post_send = &PostSend;
  context.ops.post_recv = &PostRecv;
  context.ops.alloc_mw = &AllocMw;
  context.ops.bind_mw = &BindMw;
  context.ops.dealloc_mw = &DeallocMw;
}

}  // namespace sluice::softdc
