// SPDX-License-Identifier: Apache-2.0
//
// SendQueues: the interface through which messages are sent. Two implementations: DciPool, where a few DCIs serve all peers, and
// RcQueues, where each peer has a queue pair (docs/decisions/0068). A sender need not know which of them it uses.
//
// Ownership     The endpoint. Device, commands, slots and user outlive it; targets until they are closed and quiet.
// Threads       The polling thread, except UseAddress().
// Order         Per target: the order of Post(), control before data.
#ifndef SLUICE_TRANSPORT_QUEUE_SEND_QUEUES_H_
#define SLUICE_TRANSPORT_QUEUE_SEND_QUEUES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "transport/queue/slot_table.h"
#include "transport/queue/target.h"

namespace sluice::queue {

class QueueUser {
 public:
  virtual ~QueueUser() = default;
  // Reports the end of a control or bulk slot that was posted with `notify`. `ok`: the request succeeded. Otherwise it failed or was not
  // sent, or its result is unknown. The slot is freed afterwards.
  virtual void OnSent(Target* target, uint32_t slot, bool ok) = 0;
  // Reports that the target can be used again after an error of its own or of its DCI. Call Resume(), now or later, and post again the
  // messages that must arrive. No request of the target is pending or posted: its control slots are free, its data slots are held. `why` is
  // OK if its own requests had no error.
  virtual void OnTargetReset(Target* target, const absl::Status& why) = 0;
  // Reports that the target was closed: kMaxFailures requests to it failed in a row, or its queue pair has ended. Its waiting control slots
  // are free, its waiting data slots are held.
  virtual void OnTargetFailed(Target* target, const absl::Status& why) = 0;
  // Requests any further message to the target: earlier requests to it are posted without a requested completion. Called in Watch().
  virtual void OnUnanswered(Target* target) = 0;
  // Reports that a control message of an open target failed on a stream or DCI that the target has left since. The message is not posted
  // again, its slot is freed, and the target is not reset: the user sends unacknowledged control messages again. May be called several
  // times for one error. A user without control messages need not react.
  virtual void OnControlLost(Target* /*target*/) {}
  // Reports that a closed target has no posted request left, and may be destroyed.
  virtual void OnTargetQuiet(Target* target) = 0;
  // Reports that no send queue is left: no message can be sent.
  virtual void OnQueueDead(const absl::Status& why) = 0;
};

struct PoolCounters {
  uint64_t posted = 0;
  uint64_t doorbells = 0;
  uint64_t failed = 0;   // completions with an error of their own
  uint64_t flushed = 0;  // completions flushed by the error of another request
  uint64_t late = 0;     // dropped completions of slots that were used again
  uint64_t stream_resets = 0;
  uint64_t dci_recoveries = 0;
  uint64_t stuck_dcis = 0;  // found by Watch()
  uint64_t leaves = 0;      // a target left a stream whose completions were late
  uint64_t waits = 0;       // a target found no stream or no room
  // Longest time that the device tried an unanswered request. A lower bound.
  int64_t longest_attempt_ns = 0;
};

class SendQueues {
 public:
  virtual ~SendQueues() = default;
  SendQueues(const SendQueues&) = delete;
  SendQueues& operator=(const SendQueues&) = delete;

  // Initialises a new target.
  virtual void Open(Target* target) = 0;
  // Posts a slot (reserved or held, length set), or lets it wait. If the target is broken or closed, a data slot is held at once, and a
  // control slot is freed.
  virtual void Post(Target* target, uint32_t slot) = 0;
  // Releases a data slot that its owner no longer needs. A posted or pending slot is still sent. No effect on a cell.
  void Release(uint32_t index) {
    Slot& slot = slots_[index];
    if (slot.cell) return;
    if (slot.use == SlotUse::kPosted || slot.use == SlotUse::kPending) {
      slot.released = true;
    } else {
      slots_.Give(index);
    }
  }
  // Notes that the peer has acknowledged messages, so it is alive. The owner has set `unacknowledged`.
  virtual void Acknowledged(Target* target) = 0;
  // Lets the target accept messages again after OnTargetReset().
  void Resume(Target* target) { target->broken = false; }
  // Rings the doorbells of all posted requests.
  virtual void Flush() = 0;
  // Takes completions, then serves waiting targets. Returns the number of completions. If no completion is expected, only some calls poll
  // the queue. `thorough`: this call polls if any request is posted, as the last call before a sleep must.
  virtual int Poll(bool thorough = false) = 0;
  // Closes the target: sends no further message to it. Waiting slots are freed or held at once, posted slots when they are complete. If
  // `posted` is not 0 after this call, OnTargetQuiet() follows. Otherwise the target may be destroyed at once.
  virtual void Close(Target* target) = 0;
  // Finds queues that owe a completion and complete nothing. Call it about every WatchPeriodNs() while completions_due(). Returns
  // completions_due().
  virtual bool Watch(int64_t now_ns) = 0;
  // Returns whether a completion is due or has to be requested, so that Watch() is necessary.
  virtual bool completions_due() const = 0;
  int64_t WatchPeriodNs() const { return attempt_ns_; }
  // Returns whether the device retries for much longer than configured. Dead peers are then detected late.
  bool slow_retries() const { return 2 * counters_.longest_attempt_ns >= 3 * attempt_ns_; }
  // Returns whether send queues or slots are scarce. The sender should then request acknowledgements from its peer.
  virtual bool scarce(const Target& target) const = 0;
  // Returns whether the first request of a queue that reports its end is a bulk slot of this target. Later requests then wait for it.
  virtual bool IsInFront(const Target& target) const = 0;
  // Destroys the queues after a failure of the device, because completions may never arrive. Posted requests end with the queues.
  // OnQueueDead() follows. Waiting requests end with Close() of their target.
  virtual void Abandon(const absl::Status& why) = 0;
  // Sets the entry of the GID table for queues that are created or recovered later. On the thread that creates them.
  virtual void UseAddress(uint8_t sgid_index) = 0;
  // Returns whether a completion may arrive.
  virtual bool busy() const = 0;

  const PoolCounters& counters() const { return counters_; }

 protected:
  explicit SendQueues(SlotTable& slots) : slots_(slots) {}

  SlotTable& slots_;
  int64_t attempt_ns_ = 0;  // time after which an unanswered request should have failed
  PoolCounters counters_;
};

}  // namespace sluice::queue

#endif  // SLUICE_TRANSPORT_QUEUE_SEND_QUEUES_H_
