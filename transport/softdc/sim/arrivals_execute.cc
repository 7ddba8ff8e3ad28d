// SPDX-License-Identifier: Apache-2.0
//
// Processing of accepted messages at the target.
#include <algorithm>
#include <array>
#include <cstring>

#include "transport/softdc/model/context.h"
#include "transport/softdc/model/cq.h"
#include "transport/softdc/model/grh.h"
#include "transport/softdc/model/mutation.h"
#include "transport/softdc/model/srq.h"
#include "transport/softdc/sim/arrivals.h"
#include "transport/softdc/sim/sim_fabric.h"
#include "transport/softdc/sim/sim_requester.h"
#include "transport/softdc/sim/target_keys.h"

namespace sluice::softdc::sim {
namespace {

bool CarriesImmediate(uint8_t opcode) {
  return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

}  // namespace

void Arrivals::Execute(Message* message, const Target& target) {
  const uint8_t opcode = message->wqe.opcode;
  message->has_receive = false;
  Channel& channel = *message->channel;
  if (ReturnsData(opcode) && channel.landed_ns > world_.now_ns()) {
    // An earlier message of the channel may still be writing the memory that this message reads.
    world_.clock.ScheduleAt(channel.landed_ns, &FireExecute, this,
                            reinterpret_cast<uint64_t>(message));
    return;
  }
  if (IsSend(opcode)) return ExecuteSend(message, target);
  if (IsAtomic(opcode)) return ExecuteAtomic(message, target);
  if (opcode == IBV_WR_RDMA_READ) return ExecuteRead(message, target);
  ExecuteWrite(message, target);
}

void Arrivals::ExecuteSend(Message* message, const Target& target) {
  std::array<ibv_sge, kMaxSrqSges> pieces;
  const std::optional<TakenReceive> taken = target.responder->srq().Take(pieces);
  if (!taken) return NotReady(message, target);
  message->has_receive = true;
  message->receive = *taken;
  if (taken->status != IBV_WC_SUCCESS) {
    PushReceive(*message, target, taken->status);
    return RefuseWith(message, IBV_WC_REM_OP_ERR, kVendorErrorRemoteOperation);
  }
  const shm::TargetDescriptor& descriptor = target.responder->descriptor();
  const bool invalidates = message->wqe.opcode == IBV_WR_SEND_WITH_INV;
  if (invalidates && !MayInvalidateArriving(target.port->context().regions(), message->wqe.rkey,
                                            descriptor.pd, descriptor.qp_num)) {
    GiveBackReceive(*message, target);
    return Refuse(message, target, Verdict::kAccessDenied);
  }
  const bool datagram = message->meant_for == shm::TargetType::kUd;
  uint64_t room_bytes = 0;
  for (uint32_t i = 0; i < taken->sge_count; ++i) room_bytes += pieces[i].length;
  const uint64_t head_bytes = datagram ? kGrhBytes : 0;
  const Verdict verdict = room_bytes < head_bytes
                              ? Verdict::kInvalidRequest
                              : JudgeLength(room_bytes - head_bytes, message->wqe.length_bytes);
  if (verdict != Verdict::kAccepted) {
    const bool silent =
        message->meant_for == shm::TargetType::kDct &&
        target.port->context().dials().unknowns.too_long_at_target == TooLongAtTarget::kSilent;
    if (datagram || silent) {
      GiveBackReceive(*message, target);
    } else {
      PushReceive(*message, target, IBV_WC_LOC_LEN_ERR);
    }
    return Refuse(message, target, verdict);
  }
  if (invalidates) {
    InvalidateArriving({target.port->context().memory_regions(), shm::kMaxMemoryRegions},
                       message->wqe.rkey, descriptor.pd, descriptor.qp_num);
  }
  const Grh head =
      datagram ? MakeGrh(message->operands.datagram, message->wqe.length_bytes) : Grh{};
  const auto buffer = std::span(pieces).first(taken->sge_count);
  if (std::any_of(buffer.begin(), buffer.end(),
                  [](const ibv_sge& sge) { return IsMkey(sge.lkey); })) {
    return ReceiveThroughKeys(message, target, std::as_bytes(std::span(head)).first(head_bytes),
                              buffer);
  }
  std::array<Place, kMaxSrqSges> places;
  uint32_t skip = static_cast<uint32_t>(head_bytes);
  uint32_t count = 0;
  for (uint32_t i = 0; i < taken->sge_count; ++i) {
    auto* address = reinterpret_cast<std::byte*>(pieces[i].addr);
    const uint32_t used = std::min(skip, pieces[i].length);
    if (used != 0) std::memcpy(address, &head[head_bytes - skip], used);
    skip -= used;
    places[count++] = {.address = address + used, .length_bytes = pieces[i].length - used};
  }
  Land(message, target, std::span(places.data(), count));
}

void Arrivals::ReceiveThroughKeys(Message* message, const Target& target,
                                  std::span<const std::byte> head,
                                  std::span<const ibv_sge> buffer) {
  std::vector<std::byte> wire(head.begin(), head.end());
  if (message->wqe.length_bytes != 0) {
    wire.insert(wire.end(), message->data(), message->data() + message->wqe.length_bytes);
  }
  TargetKeys keys(target.port->context(), *target.responder);
  std::span<const std::byte> left = wire;
  for (const ibv_sge& piece : buffer) {
    const auto here = left.first(std::min<size_t>(left.size(), piece.length));
    left = left.subspan(here.size());
    if (here.empty()) break;
    if (!IsMkey(piece.lkey)) {
      std::memcpy(reinterpret_cast<void*>(piece.addr), here.data(), here.size());
    } else if (!keys.Write(piece.lkey, piece.addr, here, IBV_ACCESS_LOCAL_WRITE)) {
      // An invalid receive buffer is an error of the target's owner, not a missing right of the sender.
      PushReceive(*message, target, IBV_WC_LOC_PROT_ERR);
      return RefuseWith(message, IBV_WC_REM_OP_ERR, kVendorErrorRemoteOperation);
    }
  }
  Landed(message, target, world_.now_ns());
}

bool Arrivals::IsThroughKey(const Wqe& wqe) {
  return wqe.length_bytes != 0 && IsMkey(wqe.rkey) && !IsAtomic(wqe.opcode);
}

bool Arrivals::JudgeKey(Message* message, const Target& target) {
  const Wqe& wqe = message->wqe;
  TargetKeys keys(target.port->context(), *target.responder);
  if (keys.Allows(wqe.rkey, wqe.remote_address, wqe.length_bytes, NeededAccess(wqe.opcode))) {
    return true;
  }
  Refuse(message, target, Verdict::kAccessDenied);
  return false;
}

const shm::MemoryRegionEntry* Arrivals::JudgeMemory(Message* message, const Target& target) {
  const Wqe& wqe = message->wqe;
  Context& context = target.port->context();
  const shm::MemoryRegionEntry* region =
      JudgeRange(context.regions(), wqe.rkey, wqe.remote_address, wqe.length_bytes,
                 NeededAccess(wqe.opcode), target.responder->descriptor());
  if (region == nullptr) Refuse(message, target, Verdict::kAccessDenied);
  return region;
}

void Arrivals::ExecuteWrite(Message* message, const Target& target) {
  const Wqe& wqe = message->wqe;
  const bool through_key = IsThroughKey(wqe);
  if (through_key && !JudgeKey(message, target)) return;
  // A request of length 0 is executed without a check of the key.
  if (!through_key && wqe.length_bytes != 0 && JudgeMemory(message, target) == nullptr) return;
  if (wqe.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
    std::array<ibv_sge, kMaxSrqSges> pieces;
    const std::optional<TakenReceive> taken = target.responder->srq().Take(pieces);
    if (!taken) return NotReady(message, target);
    message->has_receive = true;
    message->receive = *taken;
  }
  if (through_key) {
    TargetKeys(target.port->context(), *target.responder)
        .Write(wqe.rkey, wqe.remote_address, {message->data(), wqe.length_bytes},
               IBV_ACCESS_REMOTE_WRITE);
    return Landed(message, target, world_.now_ns());
  }
  const Place place{.address = reinterpret_cast<std::byte*>(wqe.remote_address),
                    .length_bytes = wqe.length_bytes};
  Land(message, target, std::span(&place, 1));
}

void Arrivals::ExecuteRead(Message* message, const Target& target) {
  const Wqe& wqe = message->wqe;
  if (IsThroughKey(wqe)) {
    std::vector<std::byte> wire;
    if (!JudgeKey(message, target)) return;
    TargetKeys(target.port->context(), *target.responder)
        .Read(wqe.rkey, wqe.remote_address, wqe.length_bytes, &wire);
    std::memcpy(message->Resize(wqe.length_bytes), wire.data(), wire.size());
  } else if (wqe.length_bytes != 0) {
    if (JudgeMemory(message, target) == nullptr) return;
    std::memcpy(message->Resize(wqe.length_bytes), reinterpret_cast<void*>(wqe.remote_address),
                wqe.length_bytes);
  }
  ++world_.counters.delivered;
  world_.Log(LogKind::kDeliver, NodeOfId(wqe.node), message->from_node, message->from_number,
             message->sequence);
  Answered(message, std::max<uint32_t>(1, wqe.length_bytes));
}

void Arrivals::ExecuteAtomic(Message* message, const Target& target) {
  const Wqe& wqe = message->wqe;
  if (JudgeMemory(message, target) == nullptr) return;
  uint64_t value = 0;
  void* const address = reinterpret_cast<void*>(wqe.remote_address);
  std::memcpy(&value, address, sizeof(value));
  message->original = value;
  const AtomicOperands& operands = message->operands.atomic;
  if (wqe.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    value += operands.compare_add;
  } else if (value == operands.compare_add) {
    value = operands.swap;
  }
  std::memcpy(address, &value, sizeof(value));
  ++world_.counters.delivered;
  world_.Log(LogKind::kDeliver, NodeOfId(wqe.node), message->from_node, message->from_number,
             message->sequence);
  Answered(message, 0);
}

void Arrivals::Land(Message* message, const Target& target, std::span<const Place> places) {
  const Wqe& wqe = message->wqe;
  int64_t landed_ns = world_.now_ns();
  if (wqe.length_bytes != 0) {
    const Landings::Ground ground{.port = target.port,
                                  .node = NodeOfId(wqe.node),
                                  .rkey = IsSend(wqe.opcode) ? 0 : wqe.rkey,
                                  .srq_id = message->has_receive ? message->receive.srq_id : 0};
    landed_ns =
        landings_.Land(*message, ground, target.port->context().dials().features.in_order, places);
  }
  Landed(message, target, landed_ns);
}

void Arrivals::Landed(Message* message, const Target& target, int64_t landed_ns) {
  Channel& channel = *message->channel;
  channel.landed_ns = std::max(channel.landed_ns, landed_ns);
  // The message is accepted: a retransmission of it is a duplicate. The sender's timeout starts again when
  // all bytes are in place.
  if (channel.owner != nullptr) channel.owner->OnExecuted(*message, channel.landed_ns);
  if (channel.landed_ns <= world_.now_ns() || Mutated(Mutation::kCompletionBeforeData)) {
    return Complete(message, target);
  }
  world_.clock.ScheduleAt(channel.landed_ns, &FireLanded, this,
                          reinterpret_cast<uint64_t>(message));
}

void Arrivals::OnExecute(Message* message) {
  const Target target = Find(*message);
  if (target.responder == nullptr) return Lose(message);
  Execute(message, target);
}

void Arrivals::OnLanded(Message* message) {
  const Target target = Find(*message);
  if (target.responder == nullptr) return Lose(message);
  Complete(message, target);
}

void Arrivals::Complete(Message* message, const Target& target) {
  if (message->has_receive) PushReceive(*message, target, IBV_WC_SUCCESS);
  ++world_.counters.delivered;
  world_.Log(LogKind::kDeliver, NodeOfId(message->wqe.node), message->from_node,
             message->from_number, message->sequence);
  Answered(message, 0);
}

void Arrivals::PushReceive(const Message& message, const Target& target, ibv_wc_status status) {
  const Wqe& wqe = message.wqe;
  const bool datagram = message.meant_for == shm::TargetType::kUd;
  shm::Cqe cqe;
  cqe.wqe_index = message.receive.wqe_index;
  cqe.srq_id = message.receive.srq_id;
  cqe.byte_len = wqe.length_bytes + (datagram ? kGrhBytes : 0);
  cqe.qp_num = wqe.target_number;
  cqe.src_qp = message.from_number;
  cqe.opcode = static_cast<uint8_t>(IsSend(wqe.opcode) ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM);
  cqe.status = static_cast<uint8_t>(status);
  if (status == IBV_WC_LOC_LEN_ERR) cqe.vendor_err = kVendorErrorLocalLength;
  if (status == IBV_WC_LOC_PROT_ERR) cqe.vendor_err = kVendorErrorLocalProtection;
  if (CarriesImmediate(wqe.opcode)) {
    cqe.imm_data = wqe.imm_data;
    cqe.wc_flags = IBV_WC_WITH_IMM;
  } else if (wqe.opcode == IBV_WR_SEND_WITH_INV) {
    cqe.imm_data = wqe.rkey;
    cqe.wc_flags = IBV_WC_WITH_INV;
  }
  cqe.sl = wqe.service_level;
  if (datagram && message.operands.datagram.has_grh) cqe.wc_flags |= IBV_WC_GRH;
  if ((wqe.flags & IBV_SEND_SOLICITED) != 0) cqe.flags = shm::kCqeSolicited;
  target.responder->cq().PushReceive(cqe);
  world_.Tell(NodeOfId(wqe.node), Activity::kCompletion);
}

void Arrivals::GiveBackReceive(const Message& message, const Target& target) {
  shm::Cqe cqe;
  cqe.wqe_index = message.receive.wqe_index;
  cqe.srq_id = message.receive.srq_id;
  cqe.flags = shm::kCqeUnused;
  target.responder->cq().PushReceive(cqe);
}

}  // namespace sluice::softdc::sim
