// SPDX-License-Identifier: Apache-2.0
//
// Messages on the way to the target and back, and lost messages. The processing at the target is in
// arrivals_execute.cc.
#include "transport/softdc/sim/arrivals.h"

#include <algorithm>
#include <cstring>

#include "transport/softdc/model/context.h"
#include "transport/softdc/model/mutation.h"
#include "transport/softdc/model/qp.h"
#include "transport/softdc/model/timing.h"
#include "transport/softdc/sim/sim_fabric.h"
#include "transport/softdc/sim/sim_requester.h"

namespace sluice::softdc::sim {

void Arrivals::FireArrive(void* self, uint64_t message) {
  static_cast<Arrivals*>(self)->OnArrive(reinterpret_cast<Message*>(message));
}
void Arrivals::FireExecute(void* self, uint64_t message) {
  static_cast<Arrivals*>(self)->OnExecute(reinterpret_cast<Message*>(message));
}
void Arrivals::FireLanded(void* self, uint64_t message) {
  static_cast<Arrivals*>(self)->OnLanded(reinterpret_cast<Message*>(message));
}
void Arrivals::FireAnswer(void* self, uint64_t message) {
  static_cast<Arrivals*>(self)->OnAnswer(reinterpret_cast<Message*>(message));
}
void Arrivals::FireGhost(void* self, uint64_t message) {
  static_cast<Arrivals*>(self)->OnGhost(reinterpret_cast<Message*>(message));
}

void Arrivals::SendOff(Message* message, int64_t arrival_ns) {
  world_.clock.ScheduleAt(arrival_ns, &FireArrive, this, reinterpret_cast<uint64_t>(message));
}

void Arrivals::AnswerAt(Message* message, int64_t when_ns) {
  world_.clock.ScheduleAt(when_ns, &FireAnswer, this, reinterpret_cast<uint64_t>(message));
}

void Arrivals::SendGhost(Message& message) {
  Message* ghost = world_.messages.Take();
  ghost->ghost = true;
  ghost->from_node = message.from_node;
  ghost->from_number = message.from_number;
  ghost->sequence = message.sequence;
  ghost->meant_for = message.meant_for;
  ghost->path_mtu = message.path_mtu;
  ghost->pkey = message.pkey;
  ghost->acknowledged = false;
  ghost->wqe = message.wqe;
  std::byte* to = ghost->Resize(message.wqe.length_bytes);
  if (message.wqe.length_bytes != 0) {
    std::memcpy(to, message.data(), message.wqe.length_bytes);
  }
  world_.clock.ScheduleAt(world_.now_ns() + message.lands_late_ns, &FireGhost, this,
                          reinterpret_cast<uint64_t>(ghost));
}

void Arrivals::OnGhost(Message* message) {
  const bool somewhere = message->wqe.node != kNoNode;
  const Target target = somewhere ? Find(*message) : Target{};
  bool landed = false;
  if (target.responder != nullptr && WayIsUp(*message)) {
    Context& context = target.port->context();
    const shm::TargetDescriptor& descriptor = target.responder->descriptor();
    const Wqe& wqe = message->wqe;
    if (JudgeRequest(wqe, message->meant_for, descriptor, context.dials(), message->path_mtu,
                     message->pkey) == Verdict::kAccepted &&
        JudgeRange(context.regions(), wqe.rkey, wqe.remote_address, wqe.length_bytes,
                   IBV_ACCESS_REMOTE_WRITE, descriptor) != nullptr) {
      std::memcpy(reinterpret_cast<void*>(wqe.remote_address), message->data(), wqe.length_bytes);
      landed = true;
    }
  }
  world_.Log(LogKind::kGhost, NodeOfId(message->wqe.node), message->from_node, message->sequence,
             landed);
  Release(world_, message);
}

bool Arrivals::WayIsUp(const Message& message) const {
  const Node& from = world_.nodes[message.from_node];
  const Node& to = world_.nodes[NodeOfId(message.wqe.node)];
  return from.port_up && to.port_up && world_.faults.LinkIsUp(from.index, to.index);
}

bool Arrivals::HeldUp(Message* message, uint32_t node, bool answer) {
  if (!world_.nodes[node].paused) return false;
  world_.nodes[node].held.push_back({message, answer});
  return true;
}

void Arrivals::Resume(Node& node) {
  std::deque<Node::Held> held;
  held.swap(node.held);
  for (const Node::Held& one : held) {
    if (one.answer) {
      OnAnswer(one.message);
    } else {
      OnArrive(one.message);
    }
  }
}

void Arrivals::OnArrive(Message* message) {
  const Channel& channel = *message->channel;
  // The packet numbers do not follow those that the target has seen: an earlier message was lost, or this is
  // a late copy of a retransmitted message.
  const bool follows = message->round == channel.round && !channel.broken;
  if (!follows && message->acknowledged) {
    world_.Log(LogKind::kUnheard, message->from_node, message->from_node, message->from_number,
               message->sequence);
    return Release(world_, message);
  }
  if (message->wqe.node == kNoNode || !WayIsUp(*message) ||
      world_.random.Chance(world_.faults.messages().loss_ppm)) {
    return Lose(message);
  }
  // What the target's port held does not go back to the sender's: later messages of the channel may wait there.
  if (!message->on_the_way && HeldUp(message, message->from_node, /*answer=*/false)) return;
  message->on_the_way = true;
  if (HeldUp(message, NodeOfId(message->wqe.node), /*answer=*/false)) return;
  const Target target = Find(*message);
  if (target.responder == nullptr) return Lose(message);
  const Verdict verdict =
      JudgeRequest(message->wqe, message->meant_for, target.responder->descriptor(),
                   target.port->context().dials(), message->path_mtu, message->pkey);
  if (verdict == Verdict::kNoResponse) return Lose(message);
  if (verdict != Verdict::kAccepted) return Refuse(message, target, verdict);
  if (message->executed_before && message->wqe.opcode != IBV_WR_RDMA_READ) {
    // Executed already; its answer was lost.
    world_.Log(LogKind::kDuplicate, NodeOfId(message->wqe.node), message->from_node,
               message->from_number, message->sequence);
    return Answered(message, 0);
  }
  Execute(message, target);
}

Arrivals::Target Arrivals::Find(const Message& message) const {
  const Node& node = world_.nodes[NodeOfId(message.wqe.node)];
  Target target;
  target.port = node.numbers.HolderOf(message.wqe.target_number);
  if (target.port == nullptr || target.port->dead()) return {};
  // The pointer stays valid here, because there is only one thread.
  target.port->context().WithResponder(message.wqe.target_number,
                                       [&](Responder* responder) { target.responder = responder; });
  return target;
}

void Arrivals::Lose(Message* message) {
  Channel& channel = *message->channel;
  ++world_.counters.lost;
  world_.Log(LogKind::kLost, message->from_node, message->from_number, message->sequence,
             NodeOfId(message->wqe.node));
  if (message->round == channel.round) channel.broken = true;
  Release(world_, message);
}

void Arrivals::Refuse(Message* message, const Target& target, Verdict verdict) {
  if (message->acknowledged && BringsDown(verdict, message->meant_for) &&
      target.responder->life() != nullptr) {
    Qp::OnBadRequest(target.responder->life(), verdict == Verdict::kAccessDenied
                                                   ? IBV_EVENT_QP_ACCESS_ERR
                                                   : IBV_EVENT_QP_REQ_ERR);
    world_.Tell(NodeOfId(message->wqe.node), Activity::kEvent);
  }
  const CompletionStatus status = StatusOf(verdict);
  RefuseWith(message, status.status, status.vendor_error);
}

void Arrivals::RefuseWith(Message* message, ibv_wc_status status, uint32_t vendor_error) {
  if (!message->acknowledged) return Lose(message);
  world_.Log(LogKind::kRefuse, NodeOfId(message->wqe.node), message->from_node, message->sequence,
             status);
  if (message->round == message->channel->round) message->channel->broken = true;
  message->answer = Answer::kRefused;
  message->status = status;
  message->vendor_error = vendor_error;
  Answered(message, 0);
}

void Arrivals::NotReady(Message* message, const Target& target) {
  if (!message->acknowledged || Mutated(Mutation::kNotReadyIsSilence)) return Lose(message);
  ++world_.counters.not_ready;
  world_.Log(LogKind::kNotReady, NodeOfId(message->wqe.node), message->from_node,
             message->from_number, message->sequence);
  if (message->round == message->channel->round) message->channel->broken = true;
  message->answer = Answer::kNotReady;
  message->rnr_ns =
      RnrTimerNs(target.responder->descriptor().min_rnr_timer.load(std::memory_order_relaxed));
  Answered(message, 0);
}

// Sends the answer of the target. An answer with data waits for its turn on the way out. Later answers of the
// same channel stay behind it.
void Arrivals::Answered(Message* message, uint32_t wire_bytes) {
  if (!message->acknowledged || message->unanswered) return Release(world_, message);
  message->answer_bytes = wire_bytes;
  message->next_answer = nullptr;
  Channel& channel = *message->channel;
  Message*& last = channel.waiting_answer;
  // If the channel has dropped its waiting answers, it may use another target by now.
  const bool behind = last != nullptr && last->wqe.node == message->wqe.node;
  WayOut& way_out = world_.nodes[NodeOfId(message->wqe.node)].way_out;
  if (!behind && (wire_bytes == 0 || !way_out.Busy())) return SendAnswer(message);
  // Reports the execution now, so that the sender does not time out.
  TellExecuted(*message, world_.now_ns());
  if (behind) {
    last->next_answer = message;
  } else {
    way_out.StandInLine({.take = &Arrivals::TakeTurn, .who = this, .what = message});
  }
  last = message;
}

void Arrivals::TellExecuted(const Message& message, int64_t until_ns) {
  // For READs and atomics only. For other messages, Landed has reported it.
  const bool returns = message.answer == Answer::kDone && ReturnsData(message.wqe.opcode);
  if (returns && message.channel->owner != nullptr) {
    message.channel->owner->OnExecuted(message, until_ns);
  }
}

void Arrivals::SendAnswer(Message* message) {
  Channel& channel = *message->channel;
  int64_t when_ns =
      std::max(world_.now_ns(), channel.landed_ns) + world_.options.latency_ns + world_.JitterNs();
  if (message->answer_bytes != 0) {
    WayOut& way_out = world_.nodes[NodeOfId(message->wqe.node)].way_out;
    when_ns += way_out.Take(world_.WireNs(message->answer_bytes, IBV_MTU_4096)) - world_.now_ns();
  }
  channel.last_answer_ns = std::max(channel.last_answer_ns, when_ns);
  TellExecuted(*message, channel.last_answer_ns);
  AnswerAt(message, channel.last_answer_ns);
}

void Arrivals::TakeTurn(void* self, void* message) {
  static_cast<Arrivals*>(self)->OnTurn(static_cast<Message*>(message));
}

// Sends an answer with data, and the answers without data behind it.
void Arrivals::OnTurn(Message* message) {
  Message* next = message;
  do {
    Message* const now = next;
    next = now->next_answer;
    if (now->channel->waiting_answer == now) now->channel->waiting_answer = nullptr;
    SendAnswer(now);
  } while (next != nullptr && next->answer_bytes == 0);
  if (next == nullptr) return;
  world_.nodes[NodeOfId(next->wqe.node)].way_out.StandInLine(
      {.take = &Arrivals::TakeTurn, .who = this, .what = next});
}

void Arrivals::OnAnswer(Message* message) {
  if (!message->planned) {
    if (!WayIsUp(*message) || world_.random.Chance(world_.faults.messages().ack_loss_ppm)) {
      world_.Log(LogKind::kAnswerLost, message->from_node, message->from_number, message->sequence);
      return Release(world_, message);
    }
    if (HeldUp(message, message->from_node, /*answer=*/true)) return;
  }
  if (message->channel->owner != nullptr) message->channel->owner->OnAnswer(*message);
  Release(world_, message);
}

}  // namespace sluice::softdc::sim
