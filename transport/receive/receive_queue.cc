// SPDX-License-Identifier: Apache-2.0
#include "transport/receive/receive_queue.h"

#include <algorithm>
#include <utility>

#include "transport/base/error.h"

namespace sluice::receive {
absl::StatusOr<std::unique_ptr<ReceiveQueue>> ReceiveQueue::Create(device::Device& device,
                                                                   ibv_cq* cq,
                                                                   const ReceiveOptions& options) {
  const verbs::VerbsApi& api = device.api();
  std::unique_ptr<ReceiveQueue> queue(new ReceiveQueue());
  queue->options_ = options;
  if (options.domain == nullptr) queue->options_.domain = device.pd();
  if (options.target_domain == nullptr) queue->options_.target_domain = queue->options_.domain;
  queue->cq_ = cq;
  queue->stride_bytes_ = StrideBytes(options.buffer_bytes);
  queue->memory_ = options.memory;
  queue->lkey_ = options.lkey;
  if (options.memory == nullptr) {
    auto slab = memory::Slab::Create(api, queue->options_.domain,
                                     options.depth * queue->stride_bytes_, IBV_ACCESS_LOCAL_WRITE);
    if (!slab.ok()) return slab.status();
    queue->slab_ = std::move(*slab);
    queue->memory_ = queue->slab_.data();
    queue->lkey_ = queue->slab_.lkey();
  }
  auto srq = verbs::CreateSrq(api, queue->options_.domain, options.depth);
  if (!srq.ok()) return srq.status();
  queue->srq_ = std::move(*srq);
  queue->segments_ = std::make_unique_for_overwrite<ibv_sge[]>(options.depth);
  queue->work_ = std::make_unique_for_overwrite<ibv_recv_wr[]>(options.depth);
  queue->Want(options.first);
  if (queue->lost_buffers_ != 0) {
    return base::Error(absl::StatusCode::kResourceExhausted,
                       "the device supports only " +
                           std::to_string(queue->in_use_ - queue->lost_buffers_) + " of " +
                           std::to_string(options.depth) + " receive buffers",
                       {.layer = "receive",
                        .operation = "create queues",
                        .cause = "a limit of the device",
                        .remedy = "lower limits.receive_buffers"});
  }
  if (!options.dct) return queue;
  auto target = queue->MakeTarget(device, options.access_key);
  if (!target.ok()) return target.status();
  queue->target_ = std::move(*target);
  if (api.query_ece(queue->target_.qp.get(), &queue->ece_) != 0) queue->ece_ = {};
  return queue;
}

// Called after the first buffers are posted, because the DCT is open for traffic at once. With `first` 0 the owner posts buffers before it
// tells a peer of the DCT.
absl::StatusOr<Target> ReceiveQueue::MakeTarget(device::Device& device, uint64_t access_key) const {
  const verbs::VerbsApi& api = device.api();
  auto dct =
      verbs::CreateDct(api, device.context(), options_.target_domain, cq_, srq_.get(), access_key);
  if (!dct.ok()) return dct.status();
  const verbs::PathOptions& path = options_.path ? *options_.path : device.path();
  absl::Status status = verbs::ActivateDct(api, dct->get(), path, options_.remote_access);
  if (!status.ok()) return status;
  Target target{.qp = std::move(*dct), .access_key = access_key};
  if (options_.remote_access & IBV_ACCESS_REMOTE_WRITE) {
    target.order = verbs::QueryDataOrder(api, target.qp.get(), IBV_WR_RDMA_WRITE);
  }
  return target;
}

void ReceiveQueue::PostMore(uint64_t count) {
  const auto end = static_cast<uint32_t>(std::min<uint64_t>(count, options_.depth));
  for (uint32_t i = end; i-- > in_use_;) {
    segments_[i] = {.addr = reinterpret_cast<uint64_t>(buffer(i)),
                    .length = options_.buffer_bytes,
                    .lkey = lkey_};
    work_[i] = {.wr_id = (uint64_t{options_.tag} << 32) | i,
                .next = refill_,
                .sg_list = &segments_[i],
                .num_sge = 1};
    refill_ = &work_[i];
  }
  in_use_ = end;
  Refill();
}

void ReceiveQueue::Refill() {
  if (refill_ == nullptr) return;
  ibv_recv_wr* bad = nullptr;
  if (ibv_post_srq_recv(srq_.get(), refill_, &bad) != 0) {
    for (; bad != nullptr; bad = bad->next) ++lost_buffers_;
  }
  refill_ = nullptr;
  refill_count_ = 0;
}

}  // namespace sluice::receive
