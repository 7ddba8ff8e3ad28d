// SPDX-License-Identifier: Apache-2.0
//
// Sending of a simulated queue. The processing of answers is in sim_requester_answers.cc.
#include "transport/softdc/sim/sim_requester.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "transport/softdc/model/context.h"
#include "transport/softdc/model/pkey.h"
#include "transport/softdc/model/timing.h"
#include "transport/softdc/sim/arrivals.h"
#include "transport/softdc/sim/sim_fabric.h"

namespace sluice::softdc::sim {
namespace {

void FireTimer(void* object, uint64_t) {
  auto* channel = static_cast<Channel*>(object);
  channel->timer = 0;
  if (channel->owner != nullptr) channel->owner->OnTimer(*channel);
  ChannelPool::Unreference(channel);
}

void FireSent(void* object, uint64_t sequence) {
  auto* channel = static_cast<Channel*>(object);
  if (channel->owner != nullptr) channel->owner->OnSent(*channel, sequence);
  ChannelPool::Unreference(channel);
}

}  // namespace

SimRequester::SimRequester(World& world, SimPort& port, SendQueue& queue)
    : world_(world),
      port_(port),
      queue_(queue),
      channels_(queue.attributes().has_streams
                    ? size_t{1} << queue.attributes().log_concurrent_streams
                    : 1),
      flights_(queue.capacity()) {
  port_.Add(this);
}

SimRequester::~SimRequester() {
  port_.Remove(this);
  Forget();
}

void SimRequester::Forget() {
  for (Channel*& channel : channels_) {
    if (channel == nullptr) continue;
    channel->owner = nullptr;
    if (channel->timer != 0 && world_.clock.Cancel(channel->timer)) --channel->references;
    channel->timer = 0;
    ChannelPool::Unreference(channel);
    channel = nullptr;
  }
  std::fill(flights_.begin(), flights_.end(), Flight{});
  planned_.clear();
  stuck_ = false;
  fenced_ = false;
}

bool SimRequester::Halted() const { return stuck_ || port_.dead(); }

Channel& SimRequester::ChannelOf(const Wqe& wqe) {
  Channel*& channel = channels_[wqe.stream_id & (channels_.size() - 1)];
  if (channel == nullptr) channel = world_.channels.Take(this);
  return *channel;
}

void SimRequester::RunPosted(uint64_t first) {
  for (uint64_t sequence = first; sequence != queue_.posted(); ++sequence) {
    Channel& channel = ChannelOf(queue_.slot(sequence));
    TakeDown(flight(sequence));  // the slot's flushed predecessor may still be counted
    flight(sequence) = Flight{.sequence = sequence, .channel = &channel};
    channel.queue.push_back(sequence);
    Pump(channel, UINT32_MAX);
  }
  if (!Halted()) Settle();
}

void SimRequester::RunWaiting() {
  if (Halted()) return;
  PumpAll();
  Settle();
}

void SimRequester::PumpAll() {
  for (Channel* channel : channels_) {
    if (channel != nullptr) Pump(*channel, UINT32_MAX);
  }
}

void SimRequester::Pump(Channel& channel, uint32_t limit) {
  if (Halted()) return;
  const bool failed = queue_.state() == IBV_QPS_ERR;
  if (!failed && (channel.resting || (channel.in_line && limit == UINT32_MAX))) return;
  uint32_t sent = 0;
  while (channel.sent < channel.queue.size()) {
    if (sent == limit) return StandInLine(channel);
    if (PumpOne(channel, channel.queue[channel.sent], &sent) == Step::kStop) return;
    ++channel.sent;
  }
  DropDead(channel);
}

SimRequester::Step SimRequester::PumpOne(Channel& channel, uint64_t sequence, uint32_t* sent) {
  if (!Alive(sequence)) return Step::kGoOn;
  Wqe& wqe = queue_.slot(sequence);
  switch (queue_.TurnOf(sequence)) {
    case SendQueue::Turn::kFlush:
      queue_.Flush(wqe);
      return Step::kGoOn;
    case SendQueue::Turn::kBehind:
      fenced_ = true;
      return Step::kStop;
    case SendQueue::Turn::kRun:
      break;
  }
  if (IsLocal(wqe.opcode) || wqe.cancelled) {
    queue_.RunLocally(sequence);  // no copy is in progress between two events
    return Step::kGoOn;
  }
  if (!MayStart(channel, wqe)) return Step::kStop;
  if (!queue_.CheckLocalSide(sequence)) return Step::kGoOn;
  const Node& node = port_.node();
  const bool in_turn = *sent == 0 && channel.has_turn;
  if (!in_turn && node.way_out.Busy()) {
    StandInLine(channel);
    return Step::kStop;
  }
  // Earlier READs must be answered first. Otherwise this failure would mean that their answers were lost.
  if (channel.reads_in_flight != 0 && WillFail(sequence)) return Step::kStop;
  if (!StartPlannedFailure(channel, sequence)) Transmit(channel, sequence);
  ++*sent;
  if (!channel.resting) return Step::kGoOn;
  ++channel.sent;  // the WQE that fails; nothing is sent until it has failed
  return Step::kStop;
}

// Returns whether the channel can start this WQE now. If not, it must wait for answers first.
bool SimRequester::MayStart(Channel& channel, const Wqe& wqe) const {
  if (channel.in_flight == 0) return true;
  if (!queue_.traits().acknowledged) return true;
  if (channel.connected && (channel.node != wqe.node || channel.number != wqe.target_number)) {
    return false;
  }
  return !ReturnsData(wqe.opcode) ||
         channel.reads_in_flight < std::max<uint32_t>(1, queue_.attr().max_rd_atomic);
}

void SimRequester::StandInLine(Channel& channel) {
  if (channel.in_line) return;
  channel.in_line = true;
  ++channel.references;
  port_.node().way_out.StandInLine({.take = &SimRequester::TakeTurn, .what = &channel});
}

void SimRequester::TakeTurn(void*, void* what) {
  auto* channel = static_cast<Channel*>(what);
  channel->in_line = false;
  if (channel->owner != nullptr) channel->owner->OnTurn(*channel);
  ChannelPool::Unreference(channel);
}

void SimRequester::OnTurn(Channel& channel) {
  SpinLockHolder hold(queue_.lock());
  channel.has_turn = true;
  Pump(channel, 1);
  channel.has_turn = false;
  if (!Halted()) EndPass();
}

Message* SimRequester::Pack(Channel& channel, uint64_t sequence) {
  const Wqe& wqe = queue_.slot(sequence);
  const Flight& state = flight(sequence);
  Message* message = world_.messages.Take();
  message->channel = &channel;
  ++channel.references;
  message->sequence = sequence;
  message->round = channel.round;
  message->from_node = port_.node().index;
  message->from_number = queue_.number();
  message->meant_for = queue_.traits().target;
  message->path_mtu = queue_.attr().path_mtu;
  message->pkey = PkeyAt(queue_.context().dials(), queue_.attr().pkey_index);
  message->acknowledged = queue_.traits().acknowledged;
  message->executed_before = state.executed;
  message->ghost = false;
  message->on_the_way = false;
  message->wqe = wqe;
  message->answer = Answer::kDone;
  message->status = IBV_WC_SUCCESS;
  message->original = state.original;
  message->lands_late_ns = 0;
  message->planned = false;
  message->unanswered = false;
  if (IsAtomic(wqe.opcode) || message->meant_for == shm::TargetType::kUd) {
    message->operands = queue_.operands(sequence);
  }
  if (ReturnsData(wqe.opcode)) return message;
  std::byte* to = message->Resize(wqe.length_bytes);
  if (wqe.inlined) {
    const std::span<const std::byte> data = queue_.inline_data(sequence);
    if (!data.empty()) std::memcpy(to, data.data(), data.size());
    return message;
  }
  for (const ibv_sge& sge : queue_.sges(sequence)) {
    std::memcpy(to, reinterpret_cast<const void*>(sge.addr), sge.length);
    to += sge.length;
  }
  return message;
}

void SimRequester::Transmit(Channel& channel, uint64_t sequence) {
  Message* message = Pack(channel, sequence);
  const Wqe& wqe = message->wqe;
  Node& node = port_.node();
  int64_t connect_ns = 0;
  if (message->meant_for == shm::TargetType::kDct &&
      !(channel.connected && channel.node == wqe.node && channel.number == wqe.target_number)) {
    connect_ns = world_.options.dc_connect_ns;
    world_.Log(LogKind::kConnect, node.index, message->from_number, NodeOfId(wqe.node),
               wqe.target_number);
  }
  channel.connected = true;
  channel.node = wqe.node;
  channel.number = wqe.target_number;
  const uint32_t payload_bytes = ReturnsData(wqe.opcode) ? 0 : wqe.length_bytes;
  message->wire_end_ns = node.way_out.Take(world_.WireNs(payload_bytes, queue_.attr().path_mtu));

  const MessageFaults& faults = world_.faults.messages();
  int64_t arrival_ns =
      message->wire_end_ns + connect_ns + world_.options.latency_ns + world_.JitterNs();
  if (world_.random.Chance(faults.delay_ppm)) arrival_ns += faults.delay_ns;
  channel.last_arrival_ns = std::max(channel.last_arrival_ns, arrival_ns);

  Flight& state = flight(sequence);
  state.in_flight = true;
  state.reads = ReturnsData(wqe.opcode);
  state.sent_ns = message->wire_end_ns;
  ++channel.in_flight;
  if (state.reads) ++channel.reads_in_flight;
  ++world_.counters.sent;
  world_.Log(LogKind::kTransmit, node.index, message->from_number, sequence, payload_bytes);
  if (message->acknowledged) {
    ArmTimer(channel);
  } else {
    ++channel.references;
    world_.clock.ScheduleAt(message->wire_end_ns, &FireSent, &channel, sequence);
  }
  port_.fabric().arrivals().SendOff(message, channel.last_arrival_ns);
}

FaultState::Request SimRequester::RequestOf(uint64_t sequence) const {
  const Wqe& wqe = queue_.slot(sequence);
  return {.node = port_.node().index,
          .peer = NodeOfId(wqe.node),
          .stream = wqe.stream_id,
          .opcode = wqe.opcode};
}

bool SimRequester::WillFail(uint64_t sequence) {
  return planned_.contains(sequence) ||
         (!flight(sequence).considered && world_.faults.Matches(RequestOf(sequence)));
}

bool SimRequester::StartPlannedFailure(Channel& channel, uint64_t sequence) {
  const auto known = planned_.find(sequence);
  std::optional<RequestRule> rule;
  if (known != planned_.end()) {
    rule = known->second;
  } else if (world_.faults.HasRules() && !flight(sequence).considered) {
    rule = world_.faults.Match(RequestOf(sequence));
    if (rule) planned_[sequence] = *rule;
  }
  flight(sequence).considered = true;
  if (!rule) return false;
  Message* message = Pack(channel, sequence);
  message->answer = Answer::kRefused;
  message->status = rule->status;
  message->vendor_error = VendorErrorOf(rule->status);
  const uint8_t opcode = message->wqe.opcode;
  message->lands_late_ns = IsSend(opcode) || ReturnsData(opcode) ? 0 : rule->lands_late_ns;
  message->planned = true;
  int64_t told_ns = channel.last_answer_ns;
  if (rule->carried_out && IsSend(message->wqe.opcode)) {
    Message* twin = Pack(channel, sequence);
    twin->unanswered = true;
    // The twin arrives after earlier messages. Its failure is reported when they have been answered.
    channel.last_arrival_ns =
        std::max(channel.last_arrival_ns, world_.now_ns() + world_.options.latency_ns);
    told_ns = std::max(
        told_ns, channel.last_arrival_ns + world_.options.latency_ns + world_.options.jitter_ns);
    int64_t arrival_ns = channel.last_arrival_ns;
    // Only if no earlier message is in flight. Otherwise this message could overtake an earlier message that
    // is retransmitted.
    if (rule->lands_late_ns != 0 && channel.in_flight == 0) {
      arrival_ns += rule->lands_late_ns;
      twin->acknowledged = false;  // so that a later round does not make it a late copy
    }
    port_.fabric().arrivals().SendOff(twin, arrival_ns);
  }
  const ibv_qp_attr& attr = queue_.attr();
  int64_t after_ns = 2 * world_.options.latency_ns;
  if (rule->status == IBV_WC_RETRY_EXC_ERR && attr.timeout != 0) {
    after_ns = TryNs() * (attr.retry_cnt + 1);
  }
  channel.resting = true;
  // channel.last_answer_ns is unchanged, so answers to earlier messages do not wait for this failure. If they
  // waited, their messages would be retransmitted, and fail.
  told_ns = std::max(told_ns, world_.now_ns() + after_ns);
  world_.Log(LogKind::kInjected, port_.node().index, message->from_number, sequence, rule->status);
  world_.faults.ToldAt(port_.node().index, NodeOfId(queue_.slot(sequence).node), told_ns);
  port_.fabric().arrivals().AnswerAt(message, told_ns);
  return true;
}

int64_t SimRequester::DeadlineNs(Channel& channel) {
  return std::max(flight(channel.queue.front()).sent_ns, channel.heard_ns) + TryNs();
}

int64_t SimRequester::TryNs() const {
  const ibv_qp_attr& attr = queue_.attr();
  return softdc::TryNs(attr.timeout, attr.retry_cnt, queue_.context().dials().retries);
}

void SimRequester::ArmTimer(Channel& channel) {
  if (channel.timer != 0 || channel.in_flight == 0 || queue_.attr().timeout == 0) return;
  ++channel.references;
  channel.timer = world_.clock.ScheduleAt(DeadlineNs(channel), &FireTimer, &channel, 0);
}

void SimRequester::Settle() {
  queue_.Settle();
  if (completions_ == queue_.completions()) return;
  world_.Tell(port_.node().index,
              failures_ == queue_.failures() ? Activity::kCompletion : Activity::kFailure);
  completions_ = queue_.completions();
  failures_ = queue_.failures();
}

void SimRequester::EndPass() {
  Settle();
  if (!fenced_) return;
  fenced_ = false;
  PumpAll();
  Settle();
}

}  // namespace sluice::softdc::sim
