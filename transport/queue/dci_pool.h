// SPDX-License-Identifier: Apache-2.0
//
// DciPool: sends through a few DCIs whose streams carry one peer each. The send queues of a device with DC.
//
// Purpose       Post() queues a slot, Flush() rings the doorbells, Poll() takes completions. A peer holds a stream only while its
//               requests are posted. A peer without a stream or without room waits in a list and holds nothing. A peer that
//               fails stops one stream: the stream is reset when all its requests are flushed, and the endpoint posts again what was
//               not acknowledged. If the device cannot reset a stream, or a DCI dies, the whole DCI is recovered, and the same
//               holds for each peer that had requests on it.
// Slots         A control slot is free when its request is complete. A data slot is free when its request is complete
//               and Release() was called, in either order. Until then its owner may send it again (docs/decisions/0016).
// Silent peers  Completions of a DCI come in posting order over all streams. So a silent peer delays the completions of its
//               neighbours until its retries end. A peer that is new, or has failed since it was last heard from, uses the
//               probation DCI. A peer whose messages are all acknowledged may leave a DCI whose completions are delayed.
// Order         Per target: the order of Post(), control before data. Completions of one DCI come in posting
//               order, so one signalled request answers for all before it.
// Ownership     The endpoint. Device, commands, slots and user outlive it; targets until they are closed and quiet.
// Threads       The polling thread; Create() and the destructor block.
#ifndef SLUICE_TRANSPORT_QUEUE_DCI_POOL_H_
#define SLUICE_TRANSPORT_QUEUE_DCI_POOL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/device/device.h"
#include "transport/poller/commands.h"
#include "transport/queue/dci.h"
#include "transport/queue/send_queues.h"
#include "transport/queue/slot_table.h"
#include "transport/queue/states.h"
#include "transport/queue/target.h"
#include "transport/queue/waiting_list.h"
#include "transport/verbs/handles.h"

namespace sluice::queue {

struct PoolOptions {
  uint32_t dci_count = 2;  // without the DCI for probation
  uint32_t send_depth = 256;
  uint32_t moderation = 16;  // at least one in so many requests is signalled
  // Maximum time of kMaxFailures attempts.
  int64_t dead_peer_ns = 1'000'000'000;
  // Maximum number of streams per DCI, as a logarithm. The limits of the device apply too. With use_streams false, the pool works as on a
  // device without streams.
  uint8_t max_log_streams = 6;
  bool use_streams = true;
};

// Returns the timeout exponent for which 4.096 µs * 2^timeout * (retry_count + 1) is at most `attempt_ns` and more than half of it (within
// the range of the field).
uint8_t DeriveTimeout(int64_t attempt_ns, uint8_t retry_count);

class DciPool final : public SendQueues {
 public:
  static constexpr uint32_t kMaxBatch = 16;      // requests per doorbell
  static constexpr uint32_t kMaxPollBatch = 32;  // completions per look
  static constexpr uint32_t kMaxDcis = 63;       // with the probation DCI 64, the bits of unrung_
  // Number of failed requests to one target in a row, without an acknowledgement between them, after which the target is closed.
  static constexpr uint8_t kMaxFailures = 3;
  // Cost of a request in a turn, in addition to its bytes.
  static constexpr uint32_t kRequestBytes = 64;
  // Number of attempts (attempt_ns_) after which a DCI that completes nothing is recovered. The device may wait four times as long as
  // configured (facts 200, 201).
  static constexpr int64_t kWatchAttempts = 8;
  // Maximum number of requests posted to one target on probation.
  static constexpr uint32_t kProbationInFlight = 2;

  static absl::StatusOr<std::unique_ptr<DciPool>> Create(device::Device& device, ibv_cq* cq,
                                                         SlotTable& slots, uint32_t lkey,
                                                         const PoolOptions& options,
                                                         poller::Commands& commands,
                                                         QueueUser& user);
  ~DciPool() override;

  // The target starts on probation.
  void Open(Target* target) override;
  void Post(Target* target, uint32_t slot) override;
  void Acknowledged(Target* target) override;
  void Flush() override;
  int Poll(bool thorough = false) override;
  // Posted requests still run. The end of requests without `notify` is not reported.
  void Close(Target* target) override;
  // Finds a DCI that is in RTS and completes nothing, at most kWatchAttempts + 1 periods after its first completion was due. The time is
  // longer if the device retries longer than configured. Recovers the DCI, and counts a failure for each target that may have delayed it.
  bool Watch(int64_t now_ns) override;
  bool completions_due() const override;
  bool scarce(const Target& target) const override {
    if (target.probation || target.waiting || slots_.free_data() < low_water_) return true;
    return target.stream != kNoStream && Posted(*dcis_[target.dci]) >= room_ / 4 * 3;
  }
  bool IsInFront(const Target& target) const override;
  void Abandon(const absl::Status& why) override;
  void UseAddress(uint8_t sgid_index) override { path_.sgid_index = sgid_index; }
  bool busy() const override { return posted_ != 0 || ExpectsCompletion(); }

  // Returns the number of the DCI to whose congestion control address handles are mapped.
  uint32_t template_qpn() const { return template_qpn_; }
  bool streams() const { return exclusive_; }
  uint32_t dci_count() const { return static_cast<uint32_t>(dcis_.size()); }
  const Dci& dci(uint32_t index) const { return *dcis_[index]; }
  const verbs::PathOptions& path() const { return path_; }

 private:
  struct Broken {
    Target* target;
    absl::Status why;
  };

  DciPool(device::Device& device, ibv_cq* cq, SlotTable& slots, uint32_t lkey,
          const PoolOptions& options, poller::Commands& commands, QueueUser& user);
  absl::Status Init();

  absl::Status AddDci(bool probation);

  static uint32_t Posted(const Dci& dci) { return dci.tail - dci.head; }
  bool CanTake(const Dci& dci) const {
    return dci.state == DciState::kReady && Posted(dci) < room_;
  }
  bool AtCap(const Target& target, const Dci& dci) const {
    if (!exclusive_) return AtCapOf(target, dci);
    return dci.streams[target.stream].posted >= CapOf(target);
  }
  bool AtCapOf(const Target& target, const Dci& dci) const;
  uint32_t CapOf(const Target& target) const {
    return target.probation ? kProbationInFlight : in_flight_cap_;
  }
  bool IsCurrent(const Slot& slot) const {
    return slot.dci == slot.target->dci && slot.stream == slot.target->stream;
  }
  // Reports a lost control message. Called before the end of a slot that failed or whose result is unknown.
  void TellIfLost(const Slot& slot) {
    if (!slot.control || IsCurrent(slot) || slot.target->closed || slot.target->broken) return;
    user_.OnControlLost(slot.target);
  }
  // Returns the DCI for the target's next request, with a stream bound, or null if there is none now.
  Dci* Place(Target* target) {
    if (target->stream != kNoStream) {
      Dci* current = dcis_[target->dci].get();
      if (MayStay(*target, *current)) return current;
    }
    return PlaceElsewhere(target);
  }
  Dci* PlaceElsewhere(Target* target);
  bool MayStay(const Target& target, const Dci& current) const {
    const bool outgrown = current.probation && !target.probation && living_[0] != 0;
    return !outgrown && CanTake(current) && !AtCap(target, current);
  }
  Dci* Choose(const Target& target, const Dci* except);
  void Bind(Target* target, Dci& dci);
  void Leave(Target* target);
  void Append(Dci& dci, Target* target, uint32_t slot);
  void Enqueue(Target* target, uint32_t slot);
  void Pump();
  bool Serve(WaitingList::Entry entry);
  void Refill(WaitingList::Entry& entry) const;
  void Ring(Dci& dci);
  // Starts a work request with its operation and data. The caller sets the destination afterwards.
  void Start(ibv_qp_ex* ex, const Slot& slot) const;

  [[gnu::noinline]] int TakeCompletions();
  void OnCompletion(const ibv_wc& wc);
  [[gnu::noinline]] void OnPollError();
  void Unpost(Dci& dci, uint32_t slot);
  void Finish(Dci& dci, uint32_t slot, bool ok);
  void OnSuccess(const Slot& slot);
  void EndProbation(Target* target);
  bool MayLeave(const Target& target);
  void ReleaseUnposted(uint32_t slot);
  void ReleasePending(Target* target);
  void Disown(Target* target);
  void OnStreamIdle(Dci& dci, uint16_t stream, Target* target);

  void Fail(Dci& dci, uint32_t slot, const ibv_wc& wc);
  void FailUnposted(Dci& dci, uint32_t end);
  void FailRest(Dci& dci);
  void Break(Target* target);
  void Blame(Target* target, const absl::Status& why);
  void ResetTargets(Dci& dci, uint16_t stream);

  void ResetStream(Dci& dci, uint16_t stream);
  void StartDrain(Dci& dci);
  void PostSentinel(Dci& dci);
  void Recover(Dci& dci);
  void OnRecovered(Dci& dci, const absl::Status& status);
  void OnSentinel(Dci& dci);
  void Bury(Dci& dci, const absl::Status& why);
  void OnBuried(Dci& dci, const absl::Status& why);
  bool ExpectsCompletion() const;
  void SignalNext(Dci& dci);
  Target* LastToAsk(const Dci& dci) const;
  Target* BulkInFront(const Dci& dci) const;
  void BreakSilent(Dci& dci, uint32_t end);
  void BlameSuspects(Dci& dci, int64_t silent_ns);
  void Measure(const Dci& dci, uint32_t slot);
  int64_t WatchLimitNs() const;
  uint32_t Mask() const { return fifo_size_ - 1; }

  device::Device& device_;
  const verbs::VerbsApi& api_;
  ibv_cq* const cq_;
  const uint32_t lkey_;
  PoolOptions options_;
  poller::Commands& commands_;
  QueueUser& user_;
  verbs::PathOptions path_;
  bool exclusive_ = false;    // DCIs have streams, with one target per stream
  bool can_reset_ = false;    // single streams can be reset
  uint32_t error_limit_ = 1;  // number of errored streams that stops a DCI
  uint32_t template_qpn_ = 0;
  verbs::Ah self_;  // address of this host, for requests that are always flushed
  verbs::DciOptions dci_options_;
  int64_t last_watch_ns_ = 0;   // time of the last Watch()
  uint32_t room_ = 1;           // maximum requests posted to a DCI
  uint32_t in_flight_cap_ = 1;  // maximum requests of a target that is not on probation
  uint32_t moderation_ = 1;
  uint32_t quantum_bytes_ = 0;
  std::vector<std::unique_ptr<Dci>> dcis_;  // the last is for probation
  uint32_t living_[2] = {0, 0};             // DCIs that are not dead; [1] for probation
  WaitingList waiting_;
  Target nobody_;  // closed; owns the posted requests that Disown() took from closed targets
  std::vector<Broken> broken_;     // until their stream is reset, or their DCI recovered
  bool some_need_signal_ = false;  // a DCI has needs_signal
  bool pump_ = false;              // a change may allow a waiting target to post
  bool expecting_ = false;         // ExpectsCompletion() may be true
  uint64_t unrung_ = 0;            // bit per DCI: requests were appended since the last Flush()
  uint32_t posted_ = 0;
  uint32_t fifo_size_ = 0;  // power of two
  uint32_t low_water_ = 0;  // if fewer data slots are free, every request is signalled
  uint32_t quiet_polls_ = 0;
};

}  // namespace sluice::queue

#endif  // SLUICE_TRANSPORT_QUEUE_DCI_POOL_H_
