// SPDX-License-Identifier: Apache-2.0
//
// The functions that inlines of verbs.h find in ibv_context and verbs_context. An empty slot makes
// the inline say EOPNOTSUPP by itself: XRC, flows, work queues, counters, device memory, CQ
// moderation, null regions, advice on on-demand paging.
#include <cerrno>

#include "transport/softdc/device_attributes.h"
#include "transport/softdc/model/context.h"
#include "transport/softdc/model/cq.h"
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
  context.ops.dealloc_mw = &DeallocMw;
}

}  // namespace sluice::softdc
