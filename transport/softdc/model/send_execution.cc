// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/model/send_execution.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "transport/softdc/loop/loop.h"
#include "transport/softdc/model/context.h"
#include "transport/softdc/model/memory_region.h"
#include "transport/softdc/model/receive_delivery.h"

namespace sluice::softdc {
namespace {

constexpr int64_t kAskAgainNs = 100'000;  // while an answer is under way: a lost one costs no more
constexpr int64_t kAskingMaxNs =
    10'000'000'000;  // a context that lives but does not answer for this long is dead
constexpr int64_t kCompletionSpaceNs = 50'000;  // the receiver's CQ is full: it has to poll
constexpr uint8_t kInfiniteRnrRetry = 7;

bool NeedsReceive(uint8_t opcode) {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM;
}

// man ibv_modify_qp: 4.096 us * 2^timeout; 0 waits for ever.
int64_t AckTimeoutNs(uint8_t timeout) {
  return timeout == 0 ? INT64_MAX / 16 : int64_t{4096} << timeout;
}

}  // namespace

int64_t RnrTimerNs(uint32_t encoded) {
  // In units of 10 us, by code.
  static constexpr std::array<uint32_t, 32> kTenUs = {
      65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
      48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
      2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
  return int64_t{kTenUs[encoded % kTenUs.size()]} * 10'000;
}

SendExecution::SendExecution(Dci& dci) : dci_(dci), pd_(Pd::From(dci.qp_ex.qp_base.pd)->number) {}

int64_t SendExecution::NowNs() {
  if (now_ns_ == 0) now_ns_ = Loop::NowNs();
  return now_ns_;
}

void SendExecution::RunPosted(uint64_t first) {
  for (uint64_t sequence = first; sequence != dci_.batch_head_; ++sequence) {
    ++dci_.stream(dci_.slot(sequence)).outstanding;
  }
  Run(first);
}

void SendExecution::RunWaiting() {
  for (uint64_t sequence = dci_.emitted_; sequence != dci_.batch_head_; ++sequence) {
    Wqe& wqe = dci_.slot(sequence);
    if (wqe.state != WqeState::kWaiting) continue;
    // Each is looked at anew; what still cannot run waits again.
    wqe.state = WqeState::kPosted;
    --dci_.waiting_;
    --dci_.stream(wqe).waiting;
  }
  Run(dci_.emitted_);
}

void SendExecution::Run(uint64_t first) {
  for (uint64_t sequence = first; sequence != dci_.batch_head_;) {
    Wqe& wqe = dci_.slot(sequence);
    if (wqe.state == WqeState::kPosted) {
      sequence += RunFrom(sequence);
    } else {
      ++sequence;
    }
  }
  if (dci_.errored_streams_ != 0) dci_.FlushErrored();
  dci_.EmitCompletions();
  if (dci_.waiting_ == 0) return;
  if (asking_) dci_.context_.AddWaiting(dci_.continuation_);
  dci_.ScheduleContinuation(next_try_ns_);
}

uint32_t SendExecution::RunFrom(uint64_t sequence) {
  Wqe& wqe = dci_.slot(sequence);
  StreamState& stream = dci_.stream(wqe);
  if (dci_.state_ == IBV_QPS_ERR || stream.errored) {
    dci_.Finish(wqe, IBV_WC_WR_FLUSH_ERR, kVendorErrorFlushed);
    return 1;
  }
  // Behind another of its stream, or not yet time to ask again.
  if (stream.waiting != 0) {
    Wait(wqe, INT64_MAX);
    return 1;
  }
  if (!wqe.asking && wqe.next_try_ns != 0 && wqe.next_try_ns > NowNs()) {
    Wait(wqe, wqe.next_try_ns);
    return 1;
  }
  if (!LocalSideIsGood(wqe, sequence)) return 1;
  Outcome outcome = Outcome::kDone;
  Target::Reach* reach = Reach(wqe, &outcome);
  if (reach != nullptr) {
    wqe.asking = false;
    if (NeedsReceive(wqe.opcode)) return RunSends(sequence, *reach);
    if (wqe.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
      RunWriteWithImm(wqe, sequence, *reach);
    } else {
      RunOneSided(wqe, sequence, *reach);
    }
    return 1;
  }
  Settle(wqe, outcome, reach);
  return 1;
}

Target::Reach* SendExecution::Reach(const Wqe& wqe, Outcome* why_not) {
  *why_not = Outcome::kNoResponse;
  if (!wqe.reachable) return nullptr;
  Target*& cached = dci_.target_cache_[wqe.target_number % kTargetCacheEntries];
  if (cached == nullptr || cached->qp_number != wqe.target_number) {
    cached = dci_.context_.outbound().Find(wqe.target_number);
  }
  switch (cached->status.load(std::memory_order_acquire)) {
    case TargetStatus::kReady:
      break;
    case TargetStatus::kAsking:
      *why_not = Outcome::kAsking;
      return nullptr;
    case TargetStatus::kUnknown:
      // Each try asks once; the answer "nobody" is no response, until the next ack timeout.
      if (!wqe.asking) {
        dci_.context_.outbound().Ask(cached);
        *why_not = Outcome::kAsking;
      }
      return nullptr;
  }
  Target::Reach* reach = cached->reach.load(std::memory_order_acquire);
  if (reach == nullptr || reach->link->dead() || !Accepts(wqe, *reach)) return nullptr;
  return reach;
}

bool SendExecution::Accepts(const Wqe& wqe, const Target::Reach& reach) const {
  const shm::TargetDescriptor& target = *reach.descriptor;
  // A wrong DC key is dropped without a word, like a number that is gone: the sender sees no
  // response.
  return target.state.load(std::memory_order_acquire) ==
             static_cast<uint32_t>(shm::TargetState::kReadyToReceive) &&
         target.qp_num == wqe.target_number && target.dc_key == wqe.dc_key;
}

bool SendExecution::LocalSideIsGood(Wqe& wqe, uint64_t sequence) {
  if (wqe.inlined) return true;
  const uint32_t access = wqe.opcode == IBV_WR_RDMA_READ ? uint32_t{IBV_ACCESS_LOCAL_WRITE} : 0;
  for (uint16_t i = 0; i < wqe.num_sge; ++i) {
    if (FindLocalRegion(dci_.context_, dci_.sges(sequence)[i], pd_, access) == nullptr) {
      dci_.Finish(wqe, IBV_WC_LOC_PROT_ERR, kVendorErrorLocalProtection);
      return false;
    }
  }
  return true;
}

uint32_t SendExecution::RunSends(uint64_t sequence, Target::Reach& reach) {
  // As many as one claim can serve: consecutive SENDs to the same target whose streams are free to
  // run.
  uint32_t want = 1;
  const Wqe& first = dci_.slot(sequence);
  while (want < shm::kClaimBatchMax && sequence + want != dci_.batch_head_) {
    Wqe& next = dci_.slot(sequence + want);
    const StreamState& stream = dci_.stream(next);
    if (next.state != WqeState::kPosted || !NeedsReceive(next.opcode) ||
        next.target_number != first.target_number || next.dc_key != first.dc_key ||
        !next.reachable || stream.errored || stream.waiting != 0 || next.next_try_ns != 0 ||
        !LocalSideIsGood(next, sequence + want)) {
      break;
    }
    ++want;
  }
  SpinLockHolder hold(reach.link->lock);
  if (reach.link->dead()) {
    Settle(dci_.slot(sequence), Outcome::kNoResponse, &reach);
    return 1;
  }
  ReceiveDelivery delivery(dci_.context_.outbound(), reach, dci_.qp_ex.qp_base.qp_num);
  std::array<shm::ClaimedWqe, shm::kClaimBatchMax>& claimed = reach.link->claimed;
  const ReceiveDelivery::Claim claim = delivery.ClaimWqes(want, claimed);
  if (claim.count == 0) {
    Settle(dci_.slot(sequence), OutcomeOf(claim.why_not), &reach);
    return 1;
  }
  // What goes wrong with one of them leaves the streams of the others alone.
  for (uint32_t i = 0; i < claim.count; ++i) {
    Wqe& wqe = dci_.slot(sequence + i);
    const StreamState& stream = dci_.stream(wqe);
    if (dci_.state_ == IBV_QPS_ERR || stream.errored || stream.waiting != 0) {
      delivery.GiveBack(claimed[i]);
      if (stream.waiting != 0) {
        Wait(wqe, INT64_MAX);
      } else {
        dci_.Finish(wqe, IBV_WC_WR_FLUSH_ERR, kVendorErrorFlushed);
      }
      continue;
    }
    const DeliveryStatus status = delivery.Deliver(wqe, SourceOf(wqe, sequence + i), claimed[i]);
    FinishDelivery(wqe, status, reach);
  }
  return claim.count;
}

void SendExecution::FinishDelivery(Wqe& wqe, DeliveryStatus status, Target::Reach& reach) {
  switch (status) {
    case DeliveryStatus::kDelivered:
      return dci_.Finish(wqe, IBV_WC_SUCCESS, 0);
    case DeliveryStatus::kTooLong:
      return dci_.Finish(wqe, IBV_WC_REM_INV_REQ_ERR, kVendorErrorRemoteInvalidRequest);
    case DeliveryStatus::kDenied:
      return dci_.Finish(wqe, IBV_WC_REM_ACCESS_ERR, kVendorErrorRemoteAccess);
    case DeliveryStatus::kNotMapped:
      return Settle(wqe, Outcome::kAsking, &reach);
    case DeliveryStatus::kFailed:
      return dci_.Finish(wqe, IBV_WC_REM_OP_ERR, kVendorErrorRemoteOperation);
    case DeliveryStatus::kNoResponse:
      return Settle(wqe, Outcome::kNoResponse, &reach);
  }
}

SendExecution::Outcome SendExecution::OutcomeOf(ReceiveDelivery::WhyNot why_not) {
  switch (why_not) {
    case ReceiveDelivery::WhyNot::kNoReceive:
      return Outcome::kNotReady;
    case ReceiveDelivery::WhyNot::kNoCompletionSpace:
      return Outcome::kCrowded;
    case ReceiveDelivery::WhyNot::kBroken:
      return Outcome::kNoResponse;
  }
  return Outcome::kNoResponse;
}

MessageSource SendExecution::SourceOf(const Wqe& wqe, uint64_t sequence) {
  MessageSource source;
  if (wqe.inlined) {
    source.inlined = {dci_.inline_data(sequence), wqe.length_bytes};
  } else {
    source.sges = {dci_.sges(sequence), wqe.num_sge};
  }
  source.length_bytes = wqe.length_bytes;
  return source;
}

void SendExecution::RunOneSided(Wqe& wqe, uint64_t sequence, Target::Reach& reach) {
  const bool read = wqe.opcode == IBV_WR_RDMA_READ;
  const uint32_t access = read ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
  SpinLockHolder hold(reach.link->lock);
  if (reach.link->dead()) return Settle(wqe, Outcome::kNoResponse, &reach);
  ReceiveDelivery delivery(dci_.context_.outbound(), reach, dci_.qp_ex.qp_base.qp_num);
  const DeliveryStatus status =
      delivery.OneSided(wqe, SourceOf(wqe, sequence), access, /*write=*/!read);
  FinishDelivery(wqe, status, reach);
}

void SendExecution::RunWriteWithImm(Wqe& wqe, uint64_t sequence, Target::Reach& reach) {
  SpinLockHolder hold(reach.link->lock);
  if (reach.link->dead()) return Settle(wqe, Outcome::kNoResponse, &reach);
  ReceiveDelivery delivery(dci_.context_.outbound(), reach, dci_.qp_ex.qp_base.qp_num);
  // The write goes first: a target without a receive WQE answers RNR before it touches memory only
  // if it looks at the queue first, so the WQE is claimed first, and given back when the write is
  // refused.
  std::array<shm::ClaimedWqe, 1> claimed;
  const ReceiveDelivery::Claim claim = delivery.ClaimWqes(1, claimed);
  if (claim.count == 0) return Settle(wqe, OutcomeOf(claim.why_not), &reach);
  const DeliveryStatus status =
      delivery.OneSided(wqe, SourceOf(wqe, sequence), IBV_ACCESS_REMOTE_WRITE, /*write=*/true);
  if (status == DeliveryStatus::kDelivered) {
    delivery.PublishImmediate(wqe, claimed[0]);
  } else {
    delivery.GiveBack(claimed[0]);
  }
  FinishDelivery(wqe, status, reach);
}

void SendExecution::Settle(Wqe& wqe, Outcome outcome, const Target::Reach* reach) {
  const ibv_qp_attr& attr = dci_.attr_;
  switch (outcome) {
    case Outcome::kDone:
      return;
    case Outcome::kCrowded:
      return Wait(wqe, NowNs() + kCompletionSpaceNs);
    case Outcome::kAsking:
      // The owner's firmware thread may be slow where a NIC would not be: that is not the peer's
      // silence yet.
      if (wqe.asking_until_ns == 0) wqe.asking_until_ns = NowNs() + kAskingMaxNs;
      if (NowNs() >= wqe.asking_until_ns) break;
      wqe.asking = true;
      asking_ = true;
      return Wait(wqe, NowNs() + kAskAgainNs);
    case Outcome::kNotReady:
      if (attr.rnr_retry != kInfiniteRnrRetry && wqe.rnr_tries++ >= attr.rnr_retry) {
        return dci_.Finish(wqe, IBV_WC_RNR_RETRY_EXC_ERR, kVendorErrorRnrExceeded);
      }
      return Wait(wqe, NowNs() + RnrTimerNs(reach->descriptor->min_rnr_timer));
    case Outcome::kNoResponse:
      wqe.asking = false;
      wqe.asking_until_ns = 0;
      if (wqe.give_up_ns == 0) {
        wqe.give_up_ns = NowNs() + AckTimeoutNs(attr.timeout) * (attr.retry_cnt + 1);
      }
      if (NowNs() >= wqe.give_up_ns) break;
      return Wait(wqe, std::min(wqe.give_up_ns, NowNs() + AckTimeoutNs(attr.timeout)));
  }
  dci_.Finish(wqe, IBV_WC_RETRY_EXC_ERR, kVendorErrorRetryExceeded);
}

void SendExecution::Wait(Wqe& wqe, int64_t next_try_ns) {
  wqe.state = WqeState::kWaiting;
  wqe.next_try_ns = next_try_ns == INT64_MAX ? 0 : next_try_ns;
  ++dci_.waiting_;
  ++dci_.stream(wqe).waiting;
  next_try_ns_ = std::min(next_try_ns_, next_try_ns);
}

}  // namespace sluice::softdc
