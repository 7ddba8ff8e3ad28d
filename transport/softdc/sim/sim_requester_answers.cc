// SPDX-License-Identifier: Apache-2.0
//
// Processing of answers, timeouts and timers in a simulated queue.
#include <algorithm>
#include <cstring>

#include "transport/softdc/model/timing.h"
#include "transport/softdc/sim/arrivals.h"
#include "transport/softdc/sim/sim_fabric.h"
#include "transport/softdc/sim/sim_requester.h"

namespace sluice::softdc::sim {
namespace {

void FireRested(void* object, uint64_t) {
  auto* channel = static_cast<Channel*>(object);
  if (channel->owner != nullptr) channel->owner->OnRested(*channel);
  ChannelPool::Unreference(channel);
}

}  // namespace

uint32_t SimRequester::VendorErrorOf(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_LOC_PROT_ERR:
      return kVendorErrorLocalProtection;
    case IBV_WC_LOC_LEN_ERR:
      return kVendorErrorLocalLength;
    case IBV_WC_RETRY_EXC_ERR:
      return kVendorErrorRetryExceeded;
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return kVendorErrorRnrExceeded;
    case IBV_WC_REM_ACCESS_ERR:
      return kVendorErrorRemoteAccess;
    case IBV_WC_REM_INV_REQ_ERR:
      return kVendorErrorRemoteInvalidRequest;
    case IBV_WC_REM_OP_ERR:
      return kVendorErrorRemoteOperation;
    case IBV_WC_WR_FLUSH_ERR:
      return kVendorErrorFlushed;
    default:
      return 0;
  }
}

void SimRequester::TakeDown(Flight& state) {
  if (!state.in_flight) return;
  state.in_flight = false;
  --state.channel->in_flight;
  if (state.reads) --state.channel->reads_in_flight;
}

void SimRequester::PopFront(Channel& channel) {
  Flight& state = flight(channel.queue.front());
  if (state.sequence == channel.queue.front()) TakeDown(state);
  channel.queue.pop_front();
  if (channel.sent != 0) --channel.sent;
}

void SimRequester::DropDead(Channel& channel) {
  while (!channel.queue.empty() && !Alive(channel.queue.front())) PopFront(channel);
}

// Starts a new round: unanswered messages are sent again, from the front.
void SimRequester::Restart(Channel& channel) {
  DropDead(channel);
  for (size_t i = 0; i < channel.sent; ++i) {
    Flight& state = flight(channel.queue[i]);
    if (state.sequence == channel.queue[i]) TakeDown(state);
  }
  ++channel.round;
  channel.broken = false;
  channel.resting = false;
  channel.sent = 0;
}

bool SimRequester::AnswerUpTo(Channel& channel, uint64_t sequence) {
  while (!channel.queue.empty() && channel.queue.front() < sequence) {
    const uint64_t front = channel.queue.front();
    if (Alive(front)) {
      Wqe& wqe = queue_.slot(front);
      // The answer to this WQE was lost. The later answer shows that the WQE was executed, but does not
      // contain its result.
      if (!flight(front).executed || ReturnsData(wqe.opcode)) {
        Restart(channel);
        return false;
      }
      queue_.Finish(wqe, IBV_WC_SUCCESS, 0);
    }
    PopFront(channel);
  }
  return !channel.queue.empty() && channel.queue.front() == sequence;
}

void SimRequester::OnAnswer(Message& message) {
  if (Halted()) return;
  Channel& channel = *message.channel;
  SpinLockHolder hold(queue_.lock());
  if (message.round != channel.round) return;
  channel.heard_ns = world_.now_ns();
  channel.timeouts = 0;
  if (AnswerUpTo(channel, message.sequence)) {
    world_.Log(LogKind::kAcknowledge, port_.node().index, message.from_number, message.sequence);
    TakeAnswer(channel, message);
  }
  Pump(channel, UINT32_MAX);
  EndPass();
}

void SimRequester::TakeAnswer(Channel& channel, Message& message) {
  const bool alive = Alive(message.sequence);
  Wqe& wqe = queue_.slot(message.sequence);
  switch (message.answer) {
    case Answer::kDone:
      if (alive && (!ReturnsData(wqe.opcode) || TakeResult(message))) {
        queue_.Finish(wqe, IBV_WC_SUCCESS, 0);
      }
      return PopFront(channel);
    case Answer::kNotReady:
      if (alive) return OnNotReady(channel, message);
      return Restart(channel);
    case Answer::kRefused:
      break;
  }
  planned_.erase(message.sequence);
  if (alive) FinishFailed(message.sequence, message.status, message.vendor_error);
  if (alive && message.lands_late_ns != 0) port_.fabric().arrivals().SendGhost(message);
  PopFront(channel);
  Restart(channel);
}

void SimRequester::FinishFailed(uint64_t sequence, ibv_wc_status status, uint32_t vendor_error) {
  world_.Log(LogKind::kGiveUp, port_.node().index, queue_.number(), sequence, status);
  queue_.Finish(queue_.slot(sequence), status, vendor_error);
}

void SimRequester::OnNotReady(Channel& channel, const Message& message) {
  const ibv_qp_attr& attr = queue_.attr();
  Wqe& wqe = queue_.slot(message.sequence);
  if (attr.rnr_retry != kInfiniteRnrRetry && wqe.rnr_tries++ >= attr.rnr_retry) {
    FinishFailed(message.sequence, IBV_WC_RNR_RETRY_EXC_ERR, kVendorErrorRnrExceeded);
    PopFront(channel);
    return Restart(channel);
  }
  Restart(channel);
  channel.resting = true;
  ++channel.references;
  world_.clock.ScheduleAt(world_.now_ns() + message.rnr_ns, &FireRested, &channel, 0);
}

void SimRequester::OnRested(Channel& channel) {
  if (Halted()) return;
  SpinLockHolder hold(queue_.lock());
  channel.resting = false;
  Pump(channel, UINT32_MAX);
  EndPass();
}

// Copies the result of a READ or an atomic to the SGEs of the WQE. Returns false if they no longer name our
// memory. The WQE then has an error.
bool SimRequester::TakeResult(Message& message) {
  if (!queue_.CheckLocalSide(message.sequence)) return false;
  const bool atomic = IsAtomic(message.wqe.opcode);
  const std::byte* from =
      atomic ? reinterpret_cast<const std::byte*>(&message.original) : message.data();
  for (const ibv_sge& sge : queue_.sges(message.sequence)) {
    std::memcpy(reinterpret_cast<void*>(sge.addr), from, sge.length);
    from += sge.length;
  }
  return true;
}

void SimRequester::OnExecuted(const Message& message, int64_t until_ns) {
  Flight& state = flight(message.sequence);
  if (state.sequence != message.sequence) return;
  // A WQE with a planned failure is not in flight itself. It is executed once, even if earlier WQEs are
  // retransmitted.
  if (!state.in_flight && !message.unanswered) return;
  state.executed = true;
  state.original = message.original;
  message.channel->heard_ns = std::max(message.channel->heard_ns, until_ns);
}

void SimRequester::OnSent(Channel& channel, uint64_t sequence) {
  if (Halted()) return;
  SpinLockHolder hold(queue_.lock());
  if (Alive(sequence)) queue_.Finish(queue_.slot(sequence), IBV_WC_SUCCESS, 0);
  DropDead(channel);
  Pump(channel, UINT32_MAX);
  EndPass();
}

void SimRequester::OnTimer(Channel& channel) {
  if (Halted()) return;
  SpinLockHolder hold(queue_.lock());
  DropDead(channel);
  if (channel.in_flight == 0) return;
  if (world_.now_ns() < DeadlineNs(channel)) return ArmTimer(channel);
  const uint64_t front = channel.queue.front();
  ++world_.counters.timeouts;
  world_.Log(LogKind::kTimeout, port_.node().index, queue_.number(), front, channel.timeouts);
  if (channel.timeouts++ >= queue_.attr().retry_cnt) {
    channel.timeouts = 0;
    FinishFailed(front, IBV_WC_RETRY_EXC_ERR, kVendorErrorRetryExceeded);
    PopFront(channel);
  }
  Restart(channel);
  Pump(channel, UINT32_MAX);
  EndPass();
}

}  // namespace sluice::softdc::sim
