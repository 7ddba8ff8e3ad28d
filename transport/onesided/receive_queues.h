// SPDX-License-Identifier: Apache-2.0
//
// ReceiveQueues: a receive queue for each peer of a mover: a DCT, whose number and key only this peer gets, and buffers that no other peer
// fills.
//
// Purpose       A table of queues on one CQ and one slab. The queue of a completion identifies the peer. A peer that sends more than it
//               may fills its own queue only. When its DCT is destroyed, it reaches nothing, and no other peer needs new data
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
  uint32_t depth = 21;  // buffers of each
  uint32_t buffer_bytes = 256;
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

  // A queue for the peer of that place, open for traffic; its index. `domain`: the protection domain that the peer reaches; null:
  // the device's. `path`: a copy of the polling thread's. RESOURCE_EXHAUSTED: no queue is free.
  absl::StatusOr<uint32_t> Make(uint32_t place, std::shared_ptr<memory::Domain> domain,
                                uint64_t access_key, const verbs::PathOptions& path);
  uint32_t dctn(uint32_t index) const { return slots_[index].queue->dctn(); }
  // The place of the peer that is told of this DCT. None: it is nobody's. To compare only.
  std::optional<uint32_t> PlaceOf(const void* dct) const;

  // The peer has left, and its requests may still be under way: the DCT takes them until kMaxRetired others have left. Buffers are
  // not posted again. A queue with a domain of its own is destroyed at once.
  void Retire(uint32_t index);
  // The peer reaches nothing any more, as soon as a command has destroyed the DCT.
  void Destroy(uint32_t index);

  // All completions that are there. Each goes to Recycle() before FreeEnded(), which follows.
  std::span<const ibv_wc> Look();
  // The last Look() could not read them: some are lost.
  bool unreadable() const { return unreadable_; }
  // Who it came from. None: a peer whose queue is in use no longer.
  std::optional<uint32_t> PlaceOf(const ibv_wc& completion) const;
  std::span<const std::byte> BytesOf(const ibv_wc& completion) const;
  void Recycle(const ibv_wc& completion);
  void FreeEnded();

  ibv_cq* cq() const { return cq_.get(); }

 private:
  // kRetired: takes what is sent, and is read no more. kEnding: a command destroys it. kEnded: completions of it may be unread.
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
  std::vector<ibv_wc> arrivals_;  // of one look
  std::vector<Slot> slots_;       // constant size
  std::deque<uint32_t> retired_;  // the eldest first
  uint32_t ended_ = 0;
  bool unreadable_ = false;
};

}  // namespace sluice::onesided

#endif  // SLUICE_TRANSPORT_ONESIDED_RECEIVE_QUEUES_H_
