// SPDX-License-Identifier: Apache-2.0
//
// SendExecution: what a NIC's send engine does with the WQEs of one DCI, done by whoever holds the
// DCI's lock: the poster inside ibv_wr_complete, or the Loop thread for what had to wait. Lives for
// one pass.
//
//   reach the target -> claim receive WQEs -> copy -> publish completions there -> finish here
//
// A WQE that cannot run now makes its stream wait: later WQEs of that stream stay behind it, other
// streams go on.
#ifndef SLUICE_TRANSPORT_SOFTDC_MODEL_SEND_EXECUTION_H_
#define SLUICE_TRANSPORT_SOFTDC_MODEL_SEND_EXECUTION_H_

#include <cstdint>

#include "transport/softdc/model/dci.h"
#include "transport/softdc/model/receive_delivery.h"
#include "transport/softdc/shm/outbound_links.h"

namespace sluice::softdc {

class SendExecution {
 public:
  // The caller holds the DCI's lock.
  explicit SendExecution(Dci& dci);

  // WQEs [first, head) were just posted.
  void RunPosted(uint64_t first);
  // Something changed, or a timer ended: tries what waits.
  void RunWaiting();

 private:
  enum class Outcome {
    kDone,        // finished, well or not
    kNotReady,    // no receive WQE: RNR
    kCrowded,     // the receiver's CQ is full, or others were faster: soon again
    kNoResponse,  // nobody there, or it does not answer
    kAsking,      // an answer is under way
  };

  void Run(uint64_t first);
  // Runs the WQE at `sequence` and maybe followers of the same kind; the number of WQEs dealt with.
  uint32_t RunFrom(uint64_t sequence);
  uint32_t RunSends(uint64_t sequence, Target::Reach& reach);
  void RunOneSided(Wqe& wqe, uint64_t sequence, Target::Reach& reach);
  void RunWriteWithImm(Wqe& wqe, uint64_t sequence, Target::Reach& reach);
  // Null: see *why_not.
  Target::Reach* Reach(const Wqe& wqe, Outcome* why_not);
  bool Accepts(const Wqe& wqe, const Target::Reach& reach) const;
  // Checks the local side; false: the WQE was finished with a local error.
  bool LocalSideIsGood(Wqe& wqe, uint64_t sequence);
  MessageSource SourceOf(const Wqe& wqe, uint64_t sequence);
  static Outcome OutcomeOf(ReceiveDelivery::WhyNot why_not);
  void FinishDelivery(Wqe& wqe, DeliveryStatus status, Target::Reach& reach);
  // Makes a WQE that could not run wait, or fail when it has waited long enough.
  void Settle(Wqe& wqe, Outcome outcome, const Target::Reach* reach);
  void Wait(Wqe& wqe, int64_t next_try_ns);
  int64_t NowNs();

  Dci& dci_;
  const uint32_t pd_;
  int64_t now_ns_ = 0;
  bool asking_ = false;  // some WQE of this pass waits for an answer
  int64_t next_try_ns_ = INT64_MAX;
};

// Nanoseconds that the 5-bit encoding of min_rnr_timer stands for (IBA 9.7.5.2.8). man
// ibv_modify_qp.
int64_t RnrTimerNs(uint32_t encoded);

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_SEND_EXECUTION_H_
