// SPDX-License-Identifier: Apache-2.0
//
// RcQueues: sends through an RC queue pair for each peer. For devices without DC (docs/decisions/0068).
//
// Purpose       Make() creates the queue pair of a peer, Connect() connects it, Attach() gives it to the peer's target. A failed
//               request ends the queue pair and its peer: there is no resend on the same queue pair, and OnTargetReset() is never called.
//               The queue pair is destroyed, and the requests posted to it end then.
// Completions   The last request of each doorbell is signalled, so no request has to ask for a completion later. The queue pairs share
//               one CQ, which holds as many completions as there are slots.
// Limits        Up to kMostQueues queue pairs, each with up to `send_depth` requests posted; the slots limit the sum.
// Ownership     An endpoint or a mover. Device, commands, slots and user outlive it; targets until they are closed and quiet.
// Threads       The polling thread. Make(), Connect(), Allow() and UseAddress() run on one thread: in the commands of an endpoint, or on the
//               polling thread of a mover. The first three and the destructor block.
#ifndef SLUICE_TRANSPORT_QUEUE_RC_QUEUES_H_
#define SLUICE_TRANSPORT_QUEUE_RC_QUEUES_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/device/device.h"
#include "transport/poller/commands.h"
#include "transport/queue/send_queues.h"
#include "transport/queue/slot_table.h"
#include "transport/queue/target.h"
#include "transport/verbs/rc.h"

namespace sluice::queue {

struct RcOptions {
  // Maximum number of requests posted to one queue pair. The limit of the device applies too.
  uint32_t send_depth = 128;
  int64_t dead_peer_ns = 1'000'000'000;  // an unacknowledged request fails after this time
};

class RcQueues final : public SendQueues {
 public:
  static constexpr uint32_t kMaxBatch = 16;      // requests per doorbell
  static constexpr uint32_t kMaxPollBatch = 32;  // completions per look
  static constexpr uint32_t kMostQueues = 0xffff;
  // Number of attempts (attempt_ns_) after which a queue pair that completes nothing is ended.
  static constexpr int64_t kWatchAttempts = 3;

  // The state of one queue pair, for people and tools.
  struct Report {
    uint32_t qp_number = 0;
    bool ending = false;
    uint32_t posted = 0;
  };

  RcQueues(device::Device& device, ibv_cq* cq, SlotTable& slots, uint32_t lkey,
           const RcOptions& options, poller::Commands& commands, QueueUser& user);
  ~RcQueues() override;

  // Creates a queue pair in INIT, which receives from `srq` and gives its peer no right to memory.
  absl::StatusOr<verbs::SharedRc> Make(ibv_cq* receive_cq, ibv_srq* srq) const;
  // Moves the queue pair to RTS.
  absl::Status Connect(ibv_qp* qp, verbs::RcRoute route) const;
  // Gives the peer of a connected queue pair these rights.
  absl::Status Allow(ibv_qp* qp, int access) const { return verbs::AllowRc(api_, qp, access); }
  // Lets the target send through this queue pair, which ends with the target. RESOURCE_EXHAUSTED: there are kMostQueues queue pairs.
  absl::Status Attach(Target* target, verbs::SharedRc qp);
  // Lets `other`, a second target of the same peer, send through the queue pair of `target`. `other` ends before `target`.
  void Share(Target* other, const Target& target);
  static bool IsAttached(const Target& target) { return target.stream != kNoStream; }
  // Returns the target that was attached to the queue pair with this number, or null if there is no such queue pair or it ends.
  Target* Find(uint32_t number) const;
  // Return the number of the queue pair, and the queue pair, of an attached target.
  uint32_t number(const Target& target) const { return queues_[target.dci]->number; }
  ibv_qp* qp(const Target& target) const { return queues_[target.dci]->qp.get(); }
  // Returns whether the queue pair of an attached target is being destroyed. Its shared receive queue must outlive it.
  bool IsEnding(const Target& target) const { return queues_[target.dci]->ending; }

  // Returns whether some queue pairs are in ERR. The owner then takes all completions of its receive queue, and calls DestroyStopped().
  bool stopping() const { return !stopped_.empty(); }
  // Returns the number of queue pairs that no target uses and that are not destroyed yet.
  uint32_t ending() const { return ending_; }
  void DestroyStopped();

  void Open(Target* target) override;
  void Post(Target* target, uint32_t slot) override;
  void Acknowledged(Target*) override {}
  void Flush() override;
  int Poll(bool thorough = false) override;
  // Destroys the queue pair of an attached target. Posted requests may have arrived or not.
  void Close(Target* target) override;
  bool Watch(int64_t now_ns) override;
  bool completions_due() const override { return posted_ != 0; }
  bool scarce(const Target& target) const override {
    return slots_.free_data() < low_water_ || target.has_pending() ||
           Posted(*queues_[target.dci]) >= room_ / 4 * 3;
  }
  bool IsInFront(const Target& target) const override;
  void Abandon(const absl::Status& why) override;
  void UseAddress(uint8_t sgid_index) override { path_.sgid_index = sgid_index; }
  bool busy() const override { return posted_ != 0; }

  const verbs::PathOptions& path() const { return path_; }
  std::vector<Report> Reports() const;

 private:
  struct Queue {
    verbs::SharedRc qp;  // empty: the place is free
    uint16_t index = 0;
    uint32_t number = 0;  // of `qp`, which a command may be destroying
    bool ending = false;  // being destroyed, or about to be
    bool unrung = false;  // in unrung_
    bool moved = false;   // in moved_
    // Posted slots in posting order; [head, rung) are with the device, [rung, tail) wait for the doorbell.
    std::vector<uint32_t> fifo;
    uint32_t head = 0;
    uint32_t rung = 0;
    uint32_t tail = 0;
    // Value of `head` when the watchdog first found this completion due, and the time of that check.
    uint32_t watched_head = 0;
    int64_t watched_ns = -1;
    std::array<Target*, 2> targets = {};  // the attached target, and the target that shares
  };

  static uint32_t Posted(const Queue& queue) { return queue.tail - queue.head; }
  uint32_t Mask() const { return fifo_size_ - 1; }
  void Append(Queue& queue, Target* target, uint32_t slot);
  void Ring(Queue& queue);
  void OnCompletion(const ibv_wc& wc);
  void Finish(uint32_t slot, bool ok);
  void Serve(Queue& queue);
  void ReleaseUnposted(uint32_t slot);
  void ReleasePending(Target* target);
  void End(Queue& queue, const absl::Status& why);
  void Destroy(Queue& queue);
  void OnStopped(Queue& queue);
  void OnDestroyed(Queue& queue);
  int Look();

  const verbs::VerbsApi& api_;
  ibv_pd* const pd_;
  ibv_cq* const cq_;
  const uint32_t lkey_;
  poller::Commands& commands_;
  QueueUser& user_;
  verbs::PathOptions path_;
  uint32_t send_depth_;
  uint32_t room_;
  uint32_t fifo_size_;  // power of two
  uint32_t low_water_;
  std::vector<std::unique_ptr<Queue>> queues_;
  std::vector<uint16_t> free_;
  absl::flat_hash_map<uint32_t, uint16_t>
      by_number_;                // indices of queue pairs that are not destroyed
  std::vector<Queue*> unrung_;   // requests were appended since their last doorbell
  std::vector<Queue*> moved_;    // a completion arrived, and requests may wait
  std::vector<Queue*> stopped_;  // in ERR: to be destroyed when the receive queue has been emptied
  uint32_t ending_ = 0;
  uint32_t posted_ = 0;
};

}  // namespace sluice::queue

#endif  // SLUICE_TRANSPORT_QUEUE_RC_QUEUES_H_
