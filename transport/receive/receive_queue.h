// SPDX-License-Identifier: Apache-2.0
//
// ReceiveQueue: a DCT with its shared receive queue and receive buffers; or, for RC queue pairs, without the DCT.
//
// Ownership     The endpoint: one for data, one for control. A mover: one for each peer. Device, CQ and memory outlive it.
// Threads       The polling thread. Create() and the destructor block.
// Limits        `depth` buffers. `first` of them are posted at start, the others by Want(): the device uses posted buffers in turn, so
//               each posted buffer costs memory and cache lines. A buffer belongs to its user from its completion to Recycle().
//               Buffers are posted again in batches, so up to kRefillBatch - 1 are not posted.
#ifndef SLUICE_TRANSPORT_RECEIVE_RECEIVE_QUEUE_H_
#define SLUICE_TRANSPORT_RECEIVE_RECEIVE_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "transport/device/device.h"
#include "transport/memory/slab.h"

namespace sluice::receive {

struct ReceiveOptions {
  uint32_t depth = 1024;
  uint32_t first = UINT32_MAX;    // buffers that are posted at start, at most `depth`
  uint32_t buffer_bytes = 16384;  // prefix included
  uint32_t tag = 0;               // upper half of the wr_id of its completions
  uint64_t access_key = 0;
  bool dct = true;        // false: RC queue pairs receive from srq()
  int remote_access = 0;  // rights of senders: IBV_ACCESS_REMOTE_WRITE, _READ, both, or 0
  // Protection domain of the DCT, its queue and the buffers: the DCT gives access to memory of this domain only. It outlives
  // the queue. Null: the device's.
  ibv_pd* domain = nullptr;
  // The same for the DCT alone. Null: `domain`.
  ibv_pd* target_domain = nullptr;
  // Registered memory of `domain` for the buffers, depth * StrideBytes(buffer_bytes). Null: the queue allocates its own.
  std::byte* memory = nullptr;
  uint32_t lkey = 0;  // of `memory`
  // Path for the DCT; nullopt: the device's. Set it if the calling thread does not run the commands, which change the device's path.
  std::optional<verbs::PathOptions> path;
};

// A DCT in RTR, with the data order that the device guarantees for it.
struct Target {
  verbs::Qp qp;
  verbs::DataOrder order = verbs::DataOrder::kNone;
  uint64_t access_key = 0;
};

class ReceiveQueue {
 public:
  static constexpr uint32_t kRefillBatch = 16;
  // Returns the distance in bytes between the starts of two buffers.
  static constexpr size_t StrideBytes(uint32_t buffer_bytes) {
    return (size_t{buffer_bytes} + kLineBytes - 1) / kLineBytes * kLineBytes;
  }

  static absl::StatusOr<std::unique_ptr<ReceiveQueue>> Create(device::Device& device, ibv_cq* cq,
                                                              const ReceiveOptions& options);
  ReceiveQueue(const ReceiveQueue&) = delete;
  ReceiveQueue& operator=(const ReceiveQueue&) = delete;

  // 0: there is no DCT.
  uint32_t dctn() const { return target_.qp.get() == nullptr ? 0 : target_.qp.number(); }
  ibv_srq* srq() const { return srq_.get(); }
  const ibv_qp* target() const { return target_.qp.get(); }
  // Returns the data order of peers' RDMA WRITEs through the DCT.
  verbs::DataOrder write_order() const { return target_.order; }
  // Creates another DCT on the same buffers, open for traffic, with a number of its own. Blocks. Any thread.
  absl::StatusOr<Target> MakeTarget(device::Device& device, uint64_t access_key) const;
  // Replaces the DCT, and returns the previous DCT. The caller destroys it, which blocks.
  verbs::Qp Replace(Target target) { return std::exchange(target_, std::move(target)).qp; }
  uint64_t access_key() const { return target_.access_key; }
  uint32_t depth() const { return options_.depth; }
  // Returns the ECE options of the DCT, as the device reports them; vendor 0: no ECE. The DCT is open for traffic
  // before any peer is known, so no options of a peer are set on it (docs/decisions/0015).
  const ibv_ece& ece() const { return ece_; }
  const std::byte* buffer(uint32_t index) const { return memory_ + index * stride_bytes_; }

  // Posts further buffers until `count` of them, at most depth(), are in use. They stay in use.
  void Want(uint64_t count) {
    if (count > in_use_ && in_use_ != options_.depth) PostMore(count);
  }
  uint32_t in_use() const { return in_use_; }
  void Recycle(uint32_t index) {
    work_[index].next = refill_;
    refill_ = &work_[index];
    if (++refill_count_ >= kRefillBatch) Refill();
  }
  // Posts all recycled buffers.
  void Refill();
  // Returns the number of buffers that are lost because posting failed: by a bug of Sluice, or a failed device.
  uint64_t lost_buffers() const { return lost_buffers_; }

 private:
  static constexpr size_t kLineBytes = 64;

  ReceiveQueue() = default;
  void PostMore(uint64_t count);

  ReceiveOptions options_;
  ibv_cq* cq_ = nullptr;
  size_t stride_bytes_ = 0;
  memory::Slab slab_;  // empty if the creator provided the memory
  std::byte* memory_ = nullptr;
  uint32_t lkey_ = 0;
  verbs::Srq srq_;
  Target target_;  // declared after the objects that it refers to
  // One entry per buffer, written when the buffer is first posted. After that only `next` changes.
  std::unique_ptr<ibv_sge[]> segments_;
  std::unique_ptr<ibv_recv_wr[]> work_;
  ibv_recv_wr* refill_ = nullptr;
  uint32_t refill_count_ = 0;
  uint32_t in_use_ = 0;  // buffers with a lower index are in use
  ibv_ece ece_ = {};
  uint64_t lost_buffers_ = 0;
};

}  // namespace sluice::receive

#endif  // SLUICE_TRANSPORT_RECEIVE_RECEIVE_QUEUE_H_
