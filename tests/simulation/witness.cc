// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/witness.h"

#include <algorithm>
#include <cassert>

#include "absl/strings/str_cat.h"

namespace sluice::simulation {
namespace {

using softdc::sim::Simulation;

constexpr size_t kRemembered = 256;  // completions of a queue

// All contexts of a simulation have the same.
decltype(ibv_context_ops::poll_cq) real_poll_cq = nullptr;

bool SaysReadyToSend(ibv_qp* qp) {
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  return Simulation::Verbs().query_qp(qp, &attr, IBV_QP_STATE, &init) == 0 &&
         attr.qp_state == IBV_QPS_RTS;
}

bool IsDci(const ibv_qp_init_attr_ex& attr, const mlx5dv_qp_init_attr* dv_attr) {
  return attr.qp_type == IBV_QPT_DRIVER && dv_attr != nullptr &&
         dv_attr->dc_init_attr.dc_type == MLX5DV_DCTYPE_DCI;
}

}  // namespace

thread_local Witness* Witness::of_thread = nullptr;

Witness::Witness(Simulation& simulation, Ledger& ledger, int64_t memory_ns)
    : simulation_(simulation),
      ledger_(ledger),
      memory_ns_(memory_ns),
      of_node_(simulation.nodes()) {
  assert(of_thread == nullptr);
  of_thread = this;
}

Witness::~Witness() { of_thread = nullptr; }

const verbs::VerbsApi& Witness::Verbs() {
  static const verbs::VerbsApi table = [] {
    verbs::VerbsApi api = Simulation::Verbs();
    api.dv_create_qp = &CreateQp;
    api.create_qp = &CreateRc;
    api.destroy_qp = &DestroyQp;
    api.destroy_cq = &DestroyCq;
    api.modify_qp = &ModifyQp;
    api.dv_dci_stream_id_reset = &ResetStream;
    return api;
  }();
  return table;
}

ibv_qp* Witness::CreateQp(ibv_context* context, ibv_qp_init_attr_ex* attr,
                          mlx5dv_qp_init_attr* dv_attr) {
  ibv_qp* qp = Simulation::Verbs().dv_create_qp(context, attr, dv_attr);
  if (qp == nullptr || of_thread == nullptr || of_thread->trial_ || !IsDci(*attr, dv_attr))
    return qp;
  const uint32_t node = of_thread->Listen(context, attr->send_cq);
  const bool streams = dv_attr->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
  of_thread->send_queues_[qp] = {
      .node = node,
      .budget = streams ? 1u << dv_attr->dc_init_attr.dci_streams.log_num_errored : 1,
      .completions = attr->send_cq};
  return qp;
}

// A queue pair of one peer, which may be stopped at any time. One without a shared receive queue is there for its number only.
ibv_qp* Witness::CreateRc(ibv_pd* pd, ibv_qp_init_attr* attr) {
  ibv_qp* qp = Simulation::Verbs().create_qp(pd, attr);
  if (qp == nullptr || of_thread == nullptr || of_thread->trial_ || attr->srq == nullptr) return qp;
  of_thread->Listen(pd->context, attr->send_cq);
  return qp;
}

uint32_t Witness::Listen(ibv_context* context, const ibv_cq* completions) {
  if (context->ops.poll_cq != &PollCq) {
    real_poll_cq = context->ops.poll_cq;
    context->ops.poll_cq = &PollCq;
  }
  const uint32_t node = NodeOf(context->device);
  completion_queues_[completions].node = node;
  of_node_[node] = completions;
  return node;
}

uint32_t Witness::NodeOf(const ibv_device* device) const {
  uint32_t node = 0;
  while (simulation_.Device(node) != device) ++node;
  return node;
}

int Witness::DestroyQp(ibv_qp* qp) {
  if (of_thread != nullptr) of_thread->send_queues_.erase(qp);
  return Simulation::Verbs().destroy_qp(qp);
}

int Witness::DestroyCq(ibv_cq* cq) {
  if (of_thread != nullptr && of_thread->completion_queues_.erase(cq) != 0) {
    for (const ibv_cq*& one : of_thread->of_node_) one = one == cq ? nullptr : one;
  }
  return Simulation::Verbs().destroy_cq(cq);
}

int Witness::ModifyQp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  if (of_thread != nullptr && (mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_ERR) {
    of_thread->OnStop(qp);
  }
  return Simulation::Verbs().modify_qp(qp, attr, mask);
}

// Whoever stops a queue that works flushes the requests of all its streams.
void Witness::OnStop(ibv_qp* qp) {
  const auto found = send_queues_.find(qp);
  if (found == send_queues_.end() || !SaysReadyToSend(qp)) return;
  const SendQueue& queue = found->second;
  const auto& errors = completion_queues_[queue.completions].errors;
  const int64_t since_ns = simulation_.NowNs() - memory_ns_;
  const auto count = std::count_if(errors.begin(), errors.end(), [&](const Error& error) {
    return error.qp_number == qp->qp_num && error.when_ns >= since_ns;
  });
  if (count >= queue.budget) return;
  ledger_.Break(
      "3 Isolation",
      absl::StrCat("host ", queue.node, " stopped a send queue, and all its streams, for ", count,
                   " errors; its device bears ", queue.budget - 1),
      queue.node, queue.node);
}

int Witness::ResetStream(ibv_qp* qp, uint16_t stream) {
  const int error_number = Simulation::Verbs().dv_dci_stream_id_reset(qp, stream);
  if (of_thread == nullptr || error_number == 0) return error_number;
  const auto found = of_thread->send_queues_.find(qp);
  if (found == of_thread->send_queues_.end() || !SaysReadyToSend(qp)) return error_number;
  const uint32_t node = found->second.node;
  of_thread->ledger_.Break(
      "6 Reset only when flushed",
      absl::StrCat("host ", node, " reset stream ", stream,
                   ", which has no error, or requests that are not flushed yet"),
      node, node);
  return error_number;
}

int Witness::PollCq(ibv_cq* cq, int most, ibv_wc* wc) {
  const int count = real_poll_cq(cq, most, wc);
  if (of_thread == nullptr || count < 0) return count;
  const auto found = of_thread->completion_queues_.find(cq);
  if (found == of_thread->completion_queues_.end()) return count;
  const int again = of_thread->Repeat(found->second, most - count, wc + count);
  of_thread->OnTold(found->second, wc, count);
  return count + again;
}

void Witness::OnTold(CompletionQueue& queue, const ibv_wc* wc, int count) {
  for (int i = 0; i < count; ++i) {
    if (queue.last.size() < kRemembered) queue.last.resize(queue.told % kRemembered + 1);
    queue.last[queue.told++ % kRemembered] = wc[i];
    if (wc[i].status == IBV_WC_SUCCESS || wc[i].status == IBV_WC_WR_FLUSH_ERR) continue;
    queue.errors.push_back({simulation_.NowNs(), wc[i].qp_num});
    if (queue.errors.size() > kRemembered) queue.errors.pop_front();
  }
}

// Those of all ages in turn, the newest first.
int Witness::Repeat(CompletionQueue& queue, int most, ibv_wc* wc) {
  int count = 0;
  for (; queue.due != 0 && count < most; ++count, --queue.due) {
    const uint64_t age = (queue.due * uint64_t{7}) % queue.last.size();
    wc[count] = queue.last[(queue.told - 1 - age) % queue.last.size()];
    ++queue.repeated;
  }
  return count;
}

void Witness::Begin(uint32_t node) {
  std::erase_if(completion_queues_, [node](const auto& one) { return one.second.node == node; });
  of_node_[node] = nullptr;
}

bool Witness::RepeatCompletions(uint32_t node, uint32_t count) {
  if (of_node_[node] == nullptr) return false;
  CompletionQueue& queue = completion_queues_[of_node_[node]];
  if (queue.last.empty()) return false;
  queue.due = count;
  return true;
}

}  // namespace sluice::simulation
