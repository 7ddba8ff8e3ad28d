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

  // Examines WQEs [first, posted). Each WQE in state kPosted runs, or waits.
  void Run(uint64_t first);
  // Delivers one SEND that has its receive WQE and is not plain enough for DeliverPlain. The caller holds the link's lock. If the WQE waits
  // afterwards, the caller arranges that it is continued.
  void RunClaimed(uint64_t sequence, ReceiveDelivery& delivery, const shm::ClaimedWqe& claimed,
                  Target::Reach& reach);
  // Returns whether the target can be used. Called under the link's lock, with copies begun. Repeats a check of JudgeRequest: the owner
  // waits for our copies only from now on. Before, it may have destroyed the target, with its memory region and queues.
  [[gnu::always_inline]] static bool IsNow(Target::Reach& reach) {
    return !reach.link->dead() && reach.link->ReadyForPrivate() &&
           reach.descriptor->state.load(std::memory_order_acquire) !=
               static_cast<uint32_t>(shm::TargetState::kGone);
  }

 private:
  enum class Outcome {
    kNotReady,    // no receive WQE: RNR
    kCrowded,     // the receiver's CQ is full, or other senders were faster: retry soon
    kNoResponse,  // no such target, or it does not answer
    kAsking,      // an answer is awaited
  };

  // Runs the WQE at `sequence`, and maybe later WQEs of the same kind. Returns the number of WQEs that it handled.
  uint32_t RunFrom(uint64_t sequence);
  uint32_t RunSends(uint64_t sequence, Target::Reach& reach);
  uint32_t RunWrites(uint64_t sequence, Target::Reach& reach);
  void RunOneSided(Wqe& wqe, uint64_t sequence, Target::Reach& reach);
  void RunWriteWithImm(Wqe& wqe, uint64_t sequence, Target::Reach& reach);
  // Returns the reason why the target cannot be used, or nullopt if it can (IsNow).
  static std::optional<Outcome> NotNow(Target::Reach& reach);
  // Returns the target. Null: *why_not is the reason.
  Target::Reach* Reach(const Wqe& wqe, Outcome* why_not);
  // As Reach, after the cached target was dropped.
  [[gnu::noinline, gnu::cold]] Target::Reach* ReachAnew(const Wqe& wqe, Outcome* why_not);
  // Returns whether the next WQE can run together with the first WQE of a run of SENDs.
  bool Joins(uint64_t sequence, const Wqe& first);
  // Returns whether the local side of the WQE passes a quick check. If not, SendQueue::CheckLocalSide decides when the WQE runs.
  bool MayBeRead(uint64_t sequence);
  // Quick form of Joins for most SENDs and short WRITEs, without side effects. Accepts a fresh WQE of the same opcode without a fence, of 1
  // to max_bytes in one place, and returns that place. Null: the WQE does not join, or Joins must decide. `calm`: result of
  // SendQueue::Calm.
  const std::byte* JoinsPlainly(uint64_t sequence, const Wqe& first, uint32_t max_bytes, bool calm);
  // Returns the length of a run of SENDs that can be claimed together: consecutive SENDs to the same target whose streams are free to run.
  uint32_t RunLength(uint64_t sequence);
  // Returns true if an earlier WQE of the run has stopped the stream of this WQE. The WQE then waits or is flushed.
  bool Spoiled(Wqe& wqe);
  ReceiveDelivery Deliver(Target::Reach& reach);
  const std::byte* PlainSource(const Wqe& wqe, uint64_t sequence);
  MessageSource SourceOf(const Wqe& wqe, uint64_t sequence);
  static Outcome OutcomeOf(ReceiveDelivery::WhyNot why_not);
  void FinishDelivery(Wqe& wqe, DeliveryStatus status, Target::Reach& reach);
  // Called when the target refuses the request: finishes the WQE, and moves an RC target to ERR.
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
