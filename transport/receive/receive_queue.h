// SPDX-License-Identifier: Apache-2.0
//
// ReceiveQueue: a DCT with its shared receive queue and receive buffers; or the latter two alone, for RC queue pairs.
//
// Ownership     The endpoint: one for data, one for control. A mover: one for each peer. Device, CQ and memory outlive it.
// Threads       The polling thread. Create() and the destructor block.
// Limits        `depth` buffers. `first` of them are posted at start, others by Want(): a queue hands out its buffers in turn, so each one that is
//               posted costs memory and cache lines. A buffer belongs to its user from its completion to Recycle(). Buffers are
//               posted again in batches, so up to kRefillBatch - 1 are not posted.
#ifndef SLUICE_TRANSPORT_RECEIVE_RECEIVE_QUEUE_H_
#define SLUICE_TRANSPORT_RECEIVE_RECEIVE_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

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
  int remote_access = 0;  // of those who send here: IBV_ACCESS_REMOTE_WRITE, _READ, or nothing
  // Protection domain of the DCT, its queue and the buffers: the DCT gives access to memory of this domain only. It outlives
  // the queue. Null: the device's.
  ibv_pd* domain = nullptr;
  // The same for the DCT alone. Null: `domain`.
  ibv_pd* target_domain = nullptr;
  // Registered memory of `domain` for the buffers, depth * StrideBytes(buffer_bytes). Null: the queue allocates its own.
  std::byte* memory = nullptr;
  uint32_t lkey = 0;  // of `memory`
  // For a thread that does not run the commands, which change the device's path. None: the device's.
  std::optional<verbs::PathOptions> path;
};

// A DCT in RTR, and what was promised when it was asked.
struct Target {
  verbs::Qp qp;
  verbs::DataOrder order = verbs::DataOrder::kNone;
  uint64_t access_key = 0;
};

class ReceiveQueue {
 public:
  static constexpr uint32_t kRefillBatch = 16;
  // From the start of a buffer to the start of the next.
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
  // Of what peers WRITE through it.
  verbs::DataOrder write_order() const { return target_.order; }
  // Creates another DCT on the same buffers, open for traffic, with a number of its own. Blocks. Any thread.
  absl::StatusOr<Target> MakeTarget(device::Device& device, uint64_t access_key) const;
  // Takes it into use; the one before is the caller's to free, which blocks.
  verbs::Qp Replace(Target target) { return std::exchange(target_, std::move(target)).qp; }
  uint64_t access_key() const { return target_.access_key; }
  uint32_t depth() const { return options_.depth; }
  // What the device says that the DCT carries; vendor 0: it has no ECE. It is open for traffic before
  // any peer is known, so nobody's options are set on it (docs/decisions/0015).
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
  // Posts what has been recycled.
  void Refill();
  // Posting failed, which is our bug or a device that is gone: this many buffers are lost.
  uint64_t lost_buffers() const { return lost_buffers_; }

 private:
  static constexpr size_t kLineBytes = 64;

  ReceiveQueue() = default;
  void PostMore(uint64_t count);

  ReceiveOptions options_;
  ibv_cq* cq_ = nullptr;
  size_t stride_bytes_ = 0;
  memory::Slab slab_;  // empty: the memory is somebody else's
  std::byte* memory_ = nullptr;
  verbs::Srq srq_;
  Target target_;                  // after what it refers to
  std::vector<ibv_sge> segments_;  // one per buffer, constant
  std::vector<ibv_recv_wr> work_;  // one per buffer; only `next` changes
  ibv_recv_wr* refill_ = nullptr;
  uint32_t refill_count_ = 0;
  uint32_t in_use_ = 0;  // those with an index below it
  ibv_ece ece_ = {};
  uint64_t lost_buffers_ = 0;
};

}  // namespace sluice::receive

#endif  // SLUICE_TRANSPORT_RECEIVE_RECEIVE_QUEUE_H_
