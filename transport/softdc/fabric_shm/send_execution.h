// SPDX-License-Identifier: Apache-2.0
//
// SendExecution: executes the WQEs of one send queue, as the send engine of a NIC does. It lives for one pass.
//
//   reach the target -> claim receive WQEs -> copy -> publish completions there -> finish here
//
// A WQE that cannot run now makes its stream wait: later WQEs of the stream stay behind it, other streams continue. A queue without
// acknowledgements (UC, UD) drops a message that it cannot deliver, and the WQE succeeds.
//
// Threads       The holder of the queue's lock: the poster inside ibv_wr_complete, or the Loop thread for WQEs that had to wait.
#ifndef SLUICE_TRANSPORT_SOFTDC_FABRIC_SHM_SEND_EXECUTION_H_
#define SLUICE_TRANSPORT_SOFTDC_FABRIC_SHM_SEND_EXECUTION_H_

#include <cstdint>
#include <optional>

#include "transport/softdc/fabric_shm/receive_delivery.h"
#include "transport/softdc/fabric_shm/shm_requester.h"
#include "transport/softdc/model/arrival.h"
#include "transport/softdc/model/send_queue.h"
#include "transport/softdc/shm/outbound_links.h"

namespace sluice::softdc {

class SendExecution {
 public:
  // The caller holds the queue's lock.
  explicit SendExecution(ShmRequester& requester)
      : requester_(requester), queue_(requester.queue_) {}

  // WQEs [first, posted) are looked at; those that are kPosted run, or wait.
  void Run(uint64_t first);
  // Delivers one SEND that has its receive WQE and is not plain enough for DeliverPlain. The caller holds the link's lock. If the WQE waits
  // afterwards, the caller arranges that it is continued.
  void RunClaimed(uint64_t sequence, ReceiveDelivery& delivery, const shm::ClaimedWqe& claimed,
                  Target::Reach& reach);
  // Under the link's lock, with copies begun: whether the target can be used. Once more after the request was judged, now that its owner
  // waits for our copies: it may have destroyed the target since, and its memory region and queues with it.
  [[gnu::always_inline]] static bool IsNow(Target::Reach& reach) {
    return !reach.link->dead() && reach.link->ReadyForPrivate() &&
           reach.descriptor->state.load(std::memory_order_acquire) !=
               static_cast<uint32_t>(shm::TargetState::kGone);
  }

 private:
  enum class Outcome {
    kNotReady,    // no receive WQE: RNR
    kCrowded,     // the receiver's CQ is full, or others were faster: soon again
    kNoResponse,  // nobody there, or it does not answer
    kAsking,      // an answer is under way
  };

  // Runs the WQE at `sequence` and maybe followers of the same kind; the number of WQEs dealt with.
  uint32_t RunFrom(uint64_t sequence);
  uint32_t RunSends(uint64_t sequence, Target::Reach& reach);
  uint32_t RunWrites(uint64_t sequence, Target::Reach& reach);
  void RunOneSided(Wqe& wqe, uint64_t sequence, Target::Reach& reach);
  void RunWriteWithImm(Wqe& wqe, uint64_t sequence, Target::Reach& reach);
  // Why the target cannot be used, if IsNow says so.
  static std::optional<Outcome> NotNow(Target::Reach& reach);
  // Null: see *why_not.
  Target::Reach* Reach(const Wqe& wqe, Outcome* why_not);
  // The same when the target that is remembered was dropped.
  [[gnu::noinline, gnu::cold]] Target::Reach* ReachAnew(const Wqe& wqe, Outcome* why_not);
  // Whether the next WQE can run in one go with the first of a run of SENDs.
  bool Joins(uint64_t sequence, const Wqe& first);
  // Whether its local side passes without more ado (SendQueue::CheckLocalSide decides otherwise, in its turn).
  bool MayBeRead(uint64_t sequence);
  // The same for most SENDs and short WRITEs, without side effects and with little but comparisons: a fresh WQE of the
  // same opcode without a fence, of 1 to max_bytes in one place. That place; null: it does not, or Joins
  // has to say. calm: the queue is (SendQueue::Calm).
  const std::byte* JoinsPlainly(uint64_t sequence, const Wqe& first, uint32_t max_bytes, bool calm);
  // SENDs that can: consecutive ones to the same target whose streams are free to run, as many
  // as one claim can serve.
  uint32_t RunLength(uint64_t sequence);
  // Whether an earlier one of its run has made it wait, or flushed it.
  bool Spoiled(Wqe& wqe);
  ReceiveDelivery Deliver(Target::Reach& reach);
  const std::byte* PlainSource(const Wqe& wqe, uint64_t sequence);
  MessageSource SourceOf(const Wqe& wqe, uint64_t sequence);
  static Outcome OutcomeOf(ReceiveDelivery::WhyNot why_not);
  void FinishDelivery(Wqe& wqe, DeliveryStatus status, Target::Reach& reach);
  // The target refuses: finishes the WQE, and brings an RC target down.
  void Refuse(Wqe& wqe, Verdict verdict, Target::Reach& reach);
  // Makes a WQE that could not run wait, or fail when it has waited long enough.
  void Settle(Wqe& wqe, Outcome outcome, const Target::Reach* reach);
  void Wait(Wqe& wqe, int64_t next_try_ns);
  void WaitBehind(Wqe& wqe) { Wait(wqe, INT64_MAX); }
  int64_t NowNs();

  ShmRequester& requester_;
  SendQueue& queue_;
  int64_t now_ns_ = 0;
  SendQueue::LocalRange local_;  // of the last plain WQE
  bool awaits_answer_ = false;   // some WQE of this pass waits for an answer
  int64_t next_try_ns_ = INT64_MAX;
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_FABRIC_SHM_SEND_EXECUTION_H_
