// SPDX-License-Identifier: Apache-2.0
//
// DciPool: sends, through a few DCIs whose streams carry one peer each.
//
// What it is    Post() puts a slot in line, Flush() rings the doorbells, Poll() takes completions. A peer holds a
//               stream only while requests of its own are posted; who finds no stream or no room waits in a list
//               and holds nothing. One failed peer stops one stream: it is reset once all its requests are
//               flushed. Where the device can't, or a DCI dies, the DCI is recovered as a whole and what was
//               merely flushed for healthy peers is posted again, in order.
// Who owns it   The endpoint. Device, commands, slots and user outlive it; targets until Close()d and quiet.
// Which thread  The polling thread; Create() and the destructor block.
// Order         Per target: the order of Post(), control ahead of data. Completions of one DCI come in posting
//               order, so one signalled request answers for all before it.
#ifndef SLUICE_TRANSPORT_QUEUE_DCI_POOL_H_
#define SLUICE_TRANSPORT_QUEUE_DCI_POOL_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/device/device.h"
#include "transport/poller/commands.h"
#include "transport/queue/slot_table.h"
#include "transport/queue/states.h"
#include "transport/queue/target.h"

namespace sluice::queue {

class QueueUser {
 public:
  virtual ~QueueUser() = default;
  // A slot posted with `notify` is done; its request succeeded, or will never be sent. Then it is
  // freed.
  virtual void OnSent(Target* target, uint32_t slot, bool ok) = 0;
  // The target was closed: a request to it failed. Its pending slots are free again.
  virtual void OnTargetFailed(Target* target, const absl::Status& why) = 0;
  // A closed target has nothing posted any more, and may go.
  virtual void OnTargetQuiet(Target* target) = 0;
  // No DCI is left: nothing can be sent any more.
  virtual void OnQueueDead(const absl::Status& why) = 0;
};

struct PoolOptions {
  uint32_t dci_count = 2;
  uint32_t send_depth = 256;
  uint32_t moderation = 16;  // every so many requests are signalled
  int64_t dead_peer_ns = 1'000'000'000;
  // At most so many streams a DCI; the device's limits apply as well. 0 streams: none, as on a
  // device without.
  uint8_t max_log_streams = 6;
  bool use_streams = true;
};

struct PoolCounters {
  uint64_t posted = 0;
  uint64_t doorbells = 0;
  uint64_t failed = 0;   // completions with an error of their own
  uint64_t flushed = 0;  // completions flushed by another's error
  uint64_t reposted = 0;
  uint64_t late = 0;  // completions of a slot that was used again: dropped
  uint64_t stream_resets = 0;
  uint64_t dci_recoveries = 0;
  uint64_t waits = 0;  // a target found no stream or no room
};

// Timeout exponent and retry count such that 4.096 µs * 2^timeout * (retries + 1) is at most, and
// more than half of, `dead_peer_ns` (within the field's range).
void DeriveTimeout(int64_t dead_peer_ns, uint8_t* timeout, uint8_t* retry_count);

class DciPool {
 public:
  static constexpr uint32_t kMaxBatch = 16;      // requests per doorbell
  static constexpr uint32_t kMaxPollBatch = 32;  // completions per look
  static constexpr uint32_t kMaxDcis = 64;

  static absl::StatusOr<std::unique_ptr<DciPool>> Create(device::Device& device, ibv_cq* cq,
                                                         SlotTable& slots, uint32_t lkey,
                                                         const PoolOptions& options,
                                                         poller::Commands& commands,
                                                         QueueUser& user);
  ~DciPool();
  DciPool(const DciPool&) = delete;
  DciPool& operator=(const DciPool&) = delete;

  // A new target; it starts on the next DCI in turn.
  void Open(Target* target);
  // Takes over the slot (reserved, length set). A closed target's slot is freed at once.
  void Post(Target* target, uint32_t slot);
  // Rings the doorbells of whatever has been posted.
  void Flush();
  // Completions, then whoever waits. How many completions. While none is expected the queue is
  // looked at now and then only, for errors of requests that are not signalled; `thorough`: in any
  // case, as a last look before a sleep must.
  int Poll(bool thorough = false);
  // Nothing more is sent to the target; what waits is freed. OnTargetQuiet() follows if something
  // is posted; else the target may go at once.
  void Close(Target* target);

  // DCIs that are recovered from now on stand at this entry of the GID table. Inside Commands.
  void UseAddress(uint8_t sgid_index) { path_.sgid_index = sgid_index; }

  // Requests are posted: a completion may come.
  bool busy() const { return posted_ != 0; }
  // The template whose congestion control an address handle is mapped to.
  uint32_t template_qpn() const;
  const PoolCounters& counters() const { return counters_; }
  bool streams() const { return exclusive_; }
  uint32_t dci_count() const { return static_cast<uint32_t>(dcis_.size()); }
  const verbs::PathOptions& path() const { return path_; }

 private:
  struct Stream {
    StreamState state = StreamState::kFree;
    uint32_t posted = 0;
  };
  struct Dci {
    verbs::Qp qp;
    uint16_t index = 0;
    DciState state = DciState::kReady;
    uint32_t errored = 0;                  // streams
    uint32_t unsignalled = 0;              // requests behind the last signalled one
    uint32_t last_signalled = 0xffffffff;  // its place in the fifo
    // Posted slots in posting order; [head, rung) are with the device, [rung, tail) wait for the
    // doorbell.
    std::vector<uint32_t> fifo;
    uint32_t head = 0;
    uint32_t rung = 0;
    uint32_t tail = 0;
    std::vector<Stream> streams;
    std::vector<uint16_t> free_streams;  // last in, first out
  };

  DciPool(device::Device& device, ibv_cq* cq, SlotTable& slots, uint32_t lkey,
          const PoolOptions& options, poller::Commands& commands, QueueUser& user);
  absl::Status Init();

  bool CanTake(const Dci& dci) const;
  // The DCI that the target's next request goes to, with a stream bound; null: none now.
  Dci* Place(Target* target);
  void Append(Dci& dci, Target* target, uint32_t slot);
  void Enqueue(Target* target, uint32_t slot);
  void Wait(Target* target);
  void Pump();
  void Ring(Dci& dci);

  void OnCompletion(const ibv_wc& wc);
  void Unpost(Dci& dci, uint32_t slot);
  void Finish(Dci& dci, uint32_t slot, bool ok);
  void Fail(Dci& dci, uint32_t slot, const ibv_wc& wc);
  void Keep(Dci& dci, uint32_t slot);
  void CheckStream(Dci& dci, uint16_t stream);

  void ResetStream(Dci& dci, uint16_t stream);
  void StartDrain(Dci& dci);
  void PostSentinel(Dci& dci);
  void Recover(Dci& dci);
  void OnRecovered(Dci& dci, const absl::Status& status);
  void OnSentinel(Dci& dci);
  void Bury(Dci& dci, const absl::Status& why);
  bool ExpectsCompletion() const;
  uint32_t Mask() const { return fifo_size_ - 1; }

  device::Device& device_;
  const verbs::VerbsApi& api_;
  ibv_cq* const cq_;
  SlotTable& slots_;
  const uint32_t lkey_;
  PoolOptions options_;
  poller::Commands& commands_;
  QueueUser& user_;
  verbs::PathOptions path_;
  bool exclusive_ = false;    // streams are there, one target each
  bool can_reset_ = false;    // single streams can be reset
  uint32_t error_limit_ = 1;  // distinct errored streams that stop a DCI
  verbs::Ah self_;            // an address for requests that are only ever flushed
  std::vector<std::unique_ptr<Dci>> dcis_;
  std::deque<Target*> waiting_;
  bool pump_ = false;  // something changed that a waiter may need
  uint32_t posted_ = 0;
  uint32_t fifo_size_ = 0;  // power of two
  uint32_t low_water_ = 0;  // free data slots, below which every request is signalled
  uint32_t next_dci_ = 0;
  uint32_t quiet_polls_ = 0;
  PoolCounters counters_;
};

}  // namespace sluice::queue

#endif  // SLUICE_TRANSPORT_QUEUE_DCI_POOL_H_
