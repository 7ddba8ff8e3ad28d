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
  // A control or bulk slot posted with `notify` is done; its request succeeded, or will never be sent, or, of a bulk slot,
  // nobody knows. Then it is freed.
  virtual void OnSent(Target* target, uint32_t slot, bool ok) = 0;
  // The target can be used again after an error, its own or that of its DCI: Resume() it, now or later, and
  // post again what must arrive. Nothing of it is pending or posted: its control slots are free, its data
  // slots held. `why` is OK when nothing was wrong with its own requests.
  virtual void OnTargetReset(Target* target, const absl::Status& why) = 0;
  // The target was closed: kMaxFailures requests to it failed in a row, or its queue pair has ended. Its control slots that
  // waited are free, its data slots that waited are held.
  virtual void OnTargetFailed(Target* target, const absl::Status& why) = 0;
  // It was sent something a while ago, and no completion was asked for: send it anything more. In Watch().
  virtual void OnUnanswered(Target* target) = 0;
  // A control message of an open target failed on a stream or DCI that the target had left since. It is not posted again, and
  // the target is not reset: whoever has said something that nobody acknowledges says it again. Its slot is free. May be called
  // several times for one error. Without control messages there is nothing to do.
  virtual void OnControlLost(Target* /*target*/) {}
  // A closed target has nothing posted any more, and may go.
  virtual void OnTargetQuiet(Target* target) = 0;
  // No DCI is left: nothing can be sent any more.
  virtual void OnQueueDead(const absl::Status& why) = 0;
};

struct PoolCounters {
  uint64_t posted = 0;
  uint64_t doorbells = 0;
  uint64_t failed = 0;   // completions with an error of their own
  uint64_t flushed = 0;  // completions flushed by another's error
  uint64_t late = 0;     // completions of a slot that was used again: dropped
  uint64_t stream_resets = 0;
  uint64_t dci_recoveries = 0;
  uint64_t stuck_dcis = 0;  // found by Watch()
  uint64_t leaves = 0;      // a target left a stream whose completions were late
  uint64_t waits = 0;       // a target found no stream or no room
  int64_t longest_attempt_ns =
      0;  // of requests that nobody answered; a lower bound: they took as long at least
};

class SendQueues {
 public:
  virtual ~SendQueues() = default;
  SendQueues(const SendQueues&) = delete;
  SendQueues& operator=(const SendQueues&) = delete;

  // A new target.
  virtual void Open(Target* target) = 0;
  // Puts a slot (reserved or held, length set) in line. While the target is broken or closed a data slot is
  // held at once, and a control slot freed.
  virtual void Post(Target* target, uint32_t slot) = 0;
  // The owner of a data slot needs it no more; whatever of it is posted or waits to be is still sent. No effect on a cell.
  void Release(uint32_t index) {
    Slot& slot = slots_[index];
    if (slot.cell) return;
    if (slot.use == SlotUse::kPosted || slot.use == SlotUse::kPending) {
      slot.released = true;
    } else {
      slots_.Give(index);
    }
  }
  // The peer has acknowledged something: it lives. The owner has set `unacknowledged`.
  virtual void Acknowledged(Target* target) = 0;
  // After OnTargetReset(): it takes messages again.
  void Resume(Target* target) { target->broken = false; }
  // Rings the doorbells of whatever has been posted.
  virtual void Flush() = 0;
  // Completions, then whoever waits. How many completions. While none is expected the queue may be looked at now and then only;
  // `thorough`: in any case, as a last look before a sleep must.
  virtual int Poll(bool thorough = false) = 0;
  // Sends nothing more to the target; what waits is freed, or held. Slots of what is posted are freed, or held, when it is
  // complete. If `posted` is not 0 after this call, OnTargetQuiet() follows; otherwise the target may go at once.
  virtual void Close(Target* target) = 0;
  // To be called about every WatchPeriodNs() while completions_due(): finds queues that owe a completion and do nothing. Whether there is
  // still something to watch.
  virtual bool Watch(int64_t now_ns) = 0;
  // A completion is due, or has to be asked for: Watch() has something to watch.
  virtual bool completions_due() const = 0;
  int64_t WatchPeriodNs() const { return attempt_ns_; }
  // The device retries for much longer than it was asked to: dead peers are found later than they should be.
  bool slow_retries() const { return 2 * counters_.longest_attempt_ns >= 3 * attempt_ns_; }
  // Send queues or slots run short: whoever sends should ask its peer for acknowledgements.
  virtual bool scarce(const Target& target) const = 0;
  // The first of a queue's requests that say when they end is one of this target's bulk slots: others wait for it, it for nobody.
  virtual bool IsInFront(const Target& target) const = 0;
  // The device has failed, and completions may never come: the queues are destroyed, and what is posted ends then.
  // OnQueueDead() follows. What waits ends with Close() of its target.
  virtual void Abandon(const absl::Status& why) = 0;
  // Queues that are made or recovered from now on stand at this entry of the GID table. Inside Commands.
  virtual void UseAddress(uint8_t sgid_index) = 0;
  // Requests are posted: a completion may come.
  virtual bool busy() const = 0;

  const PoolCounters& counters() const { return counters_; }

 protected:
  explicit SendQueues(SlotTable& slots) : slots_(slots) {}

  SlotTable& slots_;
  int64_t attempt_ns_ = 0;  // until a request that nobody answers should have failed
  PoolCounters counters_;
};

}  // namespace sluice::queue

#endif  // SLUICE_TRANSPORT_QUEUE_SEND_QUEUES_H_
