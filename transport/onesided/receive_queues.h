// SPDX-License-Identifier: Apache-2.0
//
// ReceiveQueues: a receive queue for each peer of a mover: a DCT, whose number and key only this peer gets, and buffers that no other peer
// fills. With RC the buffers alone: the mover has the queue pair.
//
// Purpose       A table of queues on one CQ and one slab. The queue of a completion identifies the peer. A peer that exceeds its grant
//               fills only its own queue. After its DCT is destroyed, the peer has no access, and other peers keep their DCTs
//               (docs/decisions/0054).
// Ownership     A mover. Device, commands and channel outlive it. The destructor blocks; call Commands::Finish() first.
// Threads       The polling thread. Create(), Make() and the destructor block.
// Limits        One queue for each peer, kMaxRetired of disconnected peers, and kMaxEnding that are being destroyed. Beyond them Make()
//               fails with RESOURCE_EXHAUSTED.
#ifndef SLUICE_TRANSPORT_ONESIDED_RECEIVE_QUEUES_H_
#define SLUICE_TRANSPORT_ONESIDED_RECEIVE_QUEUES_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/device/device.h"
#include "transport/memory/region.h"
#include "transport/memory/slab.h"
#include "transport/poller/commands.h"
#include "transport/receive/receive_queue.h"
#include "transport/verbs/handles.h"

namespace sluice::onesided {

struct ReceiveQueuesOptions {
  uint32_t peers = 64;
  uint32_t depth = 21;  // buffers per queue
  uint32_t buffer_bytes = 256;
  bool dct = true;                      // false: RC queue pairs receive from srq()
  ibv_comp_channel* channel = nullptr;  // of the CQ; may be null
};

class ReceiveQueues {
 public:
  static constexpr uint32_t kMaxRetired = 4;
  static constexpr uint32_t kMaxEnding = 4;
  // Names no queue.
  static constexpr uint32_t kNone = UINT32_MAX;

  static absl::StatusOr<std::unique_ptr<ReceiveQueues>> Create(device::Device& device,
                                                               poller::Commands& commands,
                                                               const ReceiveQueuesOptions& options);

  // Creates a queue for the peer of this place, open for traffic, and returns its index. `domain`: protection domain that the peer can
  // access; null: the device's. `path`: the polling thread's copy of the path. RESOURCE_EXHAUSTED: no queue is free.
  absl::StatusOr<uint32_t> Make(uint32_t place, std::shared_ptr<memory::Domain> domain,
                                uint64_t access_key, const verbs::PathOptions& path);
  uint32_t dctn(uint32_t index) const { return slots_[index].queue->dctn(); }
  ibv_srq* srq(uint32_t index) const { return slots_[index].queue->srq(); }
  // Returns the place of the peer that uses this DCT, or nullopt. `dct` is only compared, not used.
  std::optional<uint32_t> PlaceOf(const void* dct) const;

  // Retires the queue of a disconnected peer, whose requests may still be in flight: the DCT accepts them until kMaxRetired more queues
  // are retired. Buffers are not posted again. A queue with its own domain is destroyed at once.
  void Retire(uint32_t index);
  // Destroys a queue by a command. Afterwards the peer can access nothing here. An RC queue pair of the queue must be destroyed before.
  void Destroy(uint32_t index);

  // Reads all available completions. Then call Recycle() for each buffer to post again, and FreeEnded() last.
  std::span<const ibv_wc> Look();
  // Returns true if the last Look() failed: completions are lost.
  bool unreadable() const { return unreadable_; }
  // Returns the place of the sender, or nullopt if its queue is no longer in use.
  std::optional<uint32_t> PlaceOf(const ibv_wc& completion) const;
  std::span<const std::byte> BytesOf(const ibv_wc& completion) const;
  void Recycle(const ibv_wc& completion);
  void FreeEnded();

  ibv_cq* cq() const { return cq_.get(); }

 private:
  // kRetired: still receives, but its messages are ignored. kEnding: a command destroys the queue. kEnded: destroyed, but completions
  // may be unread.
  enum class State : uint8_t { kFree, kUsed, kRetired, kEnding, kEnded };

  struct Slot {
    State state = State::kFree;
    uint32_t place = 0;
    std::shared_ptr<memory::Domain> domain;  // outlives the queue
    std::unique_ptr<receive::ReceiveQueue> queue;
  };

  ReceiveQueues(device::Device& device, poller::Commands& commands,
                const ReceiveQueuesOptions& options);
  const Slot& SlotOf(const ibv_wc& completion) const { return slots_[completion.wr_id >> 32]; }

  device::Device& device_;
  poller::Commands& commands_;
  const ReceiveQueuesOptions options_;
  const size_t queue_bytes_;
  memory::Slab memory_;
  verbs::Cq cq_;
  std::vector<ibv_wc> arrivals_;  // completions of one Look()
  std::vector<Slot> slots_;       // constant size
  std::deque<uint32_t> retired_;  // oldest first
  uint32_t ended_ = 0;
  bool unreadable_ = false;
};

}  // namespace sluice::onesided

#endif  // SLUICE_TRANSPORT_ONESIDED_RECEIVE_QUEUES_H_
