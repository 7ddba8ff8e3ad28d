// SPDX-License-Identifier: Apache-2.0
//
// The actions of the state machine.
#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/softdc/cm/addresses.h"
#include "transport/softdc/cm/engine.h"
#include "transport/softdc/loop/gids.h"
#include "transport/softdc/model/mutation.h"

namespace sluice::softdc::cm {
namespace {

constexpr uint32_t k24Bits = 0xffffff;
constexpr uint8_t kMaxRetries = 7;

PortSpace PortSpaceOf(rdma_port_space ps) { return static_cast<PortSpace>(ps); }

void PutPrivateData(const void* data, size_t bytes, WireMessage* message) {
  if (Mutated(Mutation::kUnpaddedPrivateData)) {
    std::memset(message->private_data, 0xcc, sizeof(message->private_data));
  }
  if (data != nullptr && bytes != 0) std::memcpy(message->private_data, data, bytes);
}

}  // namespace

int Engine::Do(Action action, Id* id, Arguments* arguments, Input* next, bool* has_next) {
  switch (action) {
    case Action::kNone:
      return 0;
    case Action::kBind:
      return DoBind(id, arguments->source);
    case Action::kBindAndResolve: {
      if (arguments->source != nullptr &&
          arguments->source->sa_family != arguments->destination->sa_family) {
        return EINVAL;
      }
      const sockaddr_storage any = WildcardOf(arguments->destination->sa_family);
      const int error =
          DoBind(id, arguments->source != nullptr ? arguments->source
                                                  : reinterpret_cast<const sockaddr*>(&any));
      if (error != 0) return error;
      *has_next = true;
      return DoResolveAddr(id, *arguments, next);
    }
    case Action::kResolveAddr:
      *has_next = true;
      return DoResolveAddr(id, *arguments, next);
    case Action::kResolveRoute:
      *has_next = true;
      DoResolveRoute(id, next);
      return 0;
    case Action::kBindAndListen: {
      const sockaddr_storage any = WildcardOf(AF_INET);
      int error = DoBind(id, reinterpret_cast<const sockaddr*>(&any));
      if (error != 0) return error;
      error = DoListen(id, arguments->backlog);
      if (error != 0) CloseWire(id);
      return error;
    }
    case Action::kListen:
      return DoListen(id, arguments->backlog);
    case Action::kSendReq:
      BuildReq(id, *arguments);
      *has_next = SendReq(id, arguments, next);
      return 0;
    case Action::kRepeatReq:
      StartTimer(id, dials_.retry_ns);
      *has_next = SendReq(id, arguments, next);
      return 0;
    case Action::kReconnect:
      if (id->attempts > 1) return 0;  // the peer had time to read it: the timer repeats it
      if (++id->unanswered >= kMaxUnanswered) {
        arguments->error = ECONNRESET;
        *has_next = true;
        *next = Input::kExhausted;
        return 0;
      }
      id->quick_retry = true;
      StartTimer(id, kQuickRetryNs);
      return 0;
    case Action::kExtend:
      id->answered = true;
      id->unanswered = 0;
      StartTimer(id, kApplicationNs);
      return 0;
    case Action::kAwaitRetry:
      CloseWire(id);
      return 0;
    case Action::kTakeRep:
      TakeRep(id, *arguments->message);
      Send(id->wire, NewMessage(MessageType::kMra));
      return 0;
    case Action::kRejectStaleRep:
      SendRej(id->wire, kRejStaleConnection, nullptr, 0);
      CloseWire(id);
      id->answered = false;
      StartTimer(id, dials_.retry_ns);
      return 0;
    case Action::kSendMra:
      Send(id->wire, NewMessage(MessageType::kMra));
      return 0;
    case Action::kRepeatRep:
      StartTimer(id, dials_.retry_ns);
      Send(id->wire, id->sent);
      return 0;
    case Action::kSendRep:
      SendRep(id, *arguments);
      return 0;
    case Action::kSendRej:
      CloseKey(id);
      SendRej(id->wire, arguments->reject_reason, arguments->private_data,
              arguments->private_data_bytes);
      return 0;
    case Action::kSendRtu:
      Send(id->wire, NewMessage(MessageType::kRtu));
      return 0;
    case Action::kSendDreq:
      Send(id->wire, NewMessage(MessageType::kDreq));
      return 0;
    case Action::kRepeatDreq:
      StartTimer(id, dials_.retry_ns);
      Send(id->wire, NewMessage(MessageType::kDreq));
      return 0;
    case Action::kSendDrep:
      CloseKey(id);  // the peer may reuse its number as soon as it has the answer
      Send(id->wire, NewMessage(MessageType::kDrep));
      return 0;
    case Action::kStopRepeats:
      id->answered = true;
      id->unanswered = 0;
      return 0;
    case Action::kSendSidrReq:
      BuildReq(id, *arguments);
      *has_next = SendReq(id, arguments, next);
      return 0;
    case Action::kRepeatSidrReq:
      StartTimer(id, dials_.retry_ns);
      if (id->answered) return 0;  // the peer application has it already
      *has_next = SendReq(id, arguments, next);
      return 0;
    case Action::kTakeSidrRep:
      id->facts.peer_qp_num = arguments->message->qp_num;
      return 0;
    case Action::kSendSidrRep: {
      WireMessage rep = NewMessage(MessageType::kSidrRep);
      rep.qp_num = arguments->param->qp_num & k24Bits;
      rep.qkey = arguments->qkey != 0 ? arguments->qkey : RDMA_UDP_QKEY;
      PutPrivateData(arguments->param->private_data, arguments->param->private_data_len, &rep);
      Send(id->wire, rep);
      return 0;
    }
    case Action::kSendSidrRefusal: {
      WireMessage rep = NewMessage(MessageType::kSidrRep);
      rep.reject_reason = kSidrReject;
      PutPrivateData(arguments->private_data, arguments->private_data_bytes, &rep);
      Send(id->wire, rep);
      return 0;
    }
  }
  return EINVAL;
}

int Engine::DoBind(Id* id, const sockaddr* address) {
  const bool wildcard = IsWildcard(address);
  if (!wildcard && !fabric_->IsOwn(address)) return EADDRNOTAVAIL;
  uint16_t port = 0;
  const int error =
      fabric_->ReservePort(PortSpaceOf(id->ps), ntohs(PortOf(address)), &id->wire, &port);
  if (error != 0) return error;
  ids_by_handle_[id->wire] = id;
  CopyAddress(address, &id->source);
  SetPort(htons(port), &id->source);
  if (!wildcard) {
    GidOfAddress(id->from(), &id->facts.local_gid);
    id->has_device = true;
  }
  return 0;
}

int Engine::DoResolveAddr(Id* id, const Arguments& arguments, Input* next) {
  const sockaddr* const destination = arguments.destination;
  if (id->source.ss_family != destination->sa_family) return EINVAL;
  CopyAddress(destination, &id->destination);
  if (IsWildcard(destination)) {
    id->destination = fabric_->SourceFor(destination);
    SetPort(PortOf(destination), &id->destination);
  }
  if (!fabric_->Reaches(id->to())) {
    *next = Input::kAddrMissing;
    return 0;
  }
  if (IsWildcard(id->from())) {
    const uint16_t port = PortOf(id->from());
    id->source = fabric_->SourceFor(id->to());
    if (hooks_.second_context && id->source.ss_family == AF_INET) {
      reinterpret_cast<sockaddr_in*>(&id->source)->sin_addr.s_addr = SecondDeviceAddress();
    }
    SetPort(port, &id->source);
  }
  GidOfAddress(id->from(), &id->facts.local_gid);
  GidOfAddress(id->to(), &id->facts.peer_gid);
  id->has_device = true;
  *next = Input::kAddrFound;
  return 0;
}

void Engine::DoResolveRoute(Id* id, Input* next) {
  // The address may have left the fabric since it was resolved.
  id->has_path = fabric_->Reaches(id->to());
  if (id->has_path) {
    // As the kernel does: an ACK timeout set later than here no longer changes the path.
    id->packet_lifetime = id->ack_timeout_set && id->ack_timeout != 0
                              ? static_cast<uint8_t>(id->ack_timeout - 1)
                              : dials_.packet_lifetime;
    id->facts.traffic_class = id->traffic_class;
  }
  *next = id->has_path ? Input::kRouteFound : Input::kRouteMissing;
}

int Engine::DoListen(Id* id, int backlog) {
  id->backlog =
      backlog > 0 ? std::min(static_cast<uint32_t>(backlog), kDefaultBacklog) : kDefaultBacklog;
  return fabric_->Listen(id->wire);
}

void Engine::BuildReq(Id* id, const Arguments& arguments) {
  const rdma_conn_param& param = *arguments.param;
  id->local_qp_num = param.qp_num & k24Bits;
  id->path_ack_timeout = AckTimeout(kCaAckDelay, id->packet_lifetime);
  id->facts.local_psn = NextPsn();
  id->facts.responder_resources = param.responder_resources;
  id->facts.initiator_depth = param.initiator_depth;
  id->facts.retry_count = std::min(param.retry_count, kMaxRetries);
  id->facts.rnr_retry_count = std::min(param.rnr_retry_count, kMaxRetries);

  const bool datagram = IsDatagram(id->qp_type);
  WireMessage& req = id->sent = NewMessage(datagram ? MessageType::kSidrReq : MessageType::kReq);
  req.source = ToWire(id->from());
  req.destination = ToWire(id->to());
  req.traffic_class = id->facts.traffic_class;
  PutPrivateData(param.private_data, param.private_data_len, &req);
  if (datagram) return;
  req.node_guid = hooks_.node_guid;
  req.qp_num = id->local_qp_num;
  req.psn = id->facts.local_psn;
  req.ece_vendor_id = arguments.ece.vendor_id & k24Bits;
  req.ece_options = arguments.ece.options;
  req.responder_resources = id->facts.responder_resources;
  req.initiator_depth = id->facts.initiator_depth;
  req.flow_control = param.flow_control;
  req.retry_count = id->facts.retry_count;
  req.rnr_retry_count = id->facts.rnr_retry_count;
  req.srq = param.srq;
  req.ack_timeout = id->path_ack_timeout;
}

bool Engine::SendReq(Id* id, Arguments* arguments, Input* next) {
  if (id->connected) {  // sent before, not answered
    Send(id->wire, id->sent);
    return false;
  }
  int error = 0;
  if (id->wire == 0) {
    // A repetition uses a new wire. If our port is in use by then, any other port is suitable.
    uint16_t port = ntohs(PortOf(id->from()));
    const PortSpace space = PortSpaceOf(id->ps);
    error = fabric_->ReservePort(space, port, &id->wire, &port);
    if (error == EADDRINUSE) error = fabric_->ReservePort(space, 0, &id->wire, &port);
    if (error == 0) {
      ids_by_handle_[id->wire] = id;
      SetPort(htons(port), &id->source);
      id->sent.source.port = htons(port);
    }
  }
  if (error == 0) {
    error = fabric_->Connect(id->wire, id->to());
    if (error != 0) CloseWire(id);
  }
  if (error == 0) {
    id->connected = true;
    Send(id->wire, id->sent);
    return false;
  }
  if (error == EAGAIN) return false;  // like a lost message: the timer repeats it
  arguments->error = error;
  *next = error == ECONNREFUSED ? Input::kRefused : Input::kExhausted;
  return true;
}

void Engine::SendRep(Id* id, const Arguments& arguments) {
  const rdma_conn_param& param = *arguments.param;
  id->facts.responder_resources = param.responder_resources;
  id->facts.initiator_depth = param.initiator_depth;
  id->local_qp_num = param.qp_num & k24Bits;
  WireMessage& rep = id->sent = NewMessage(MessageType::kRep);
  rep.node_guid = hooks_.node_guid;
  rep.qp_num = id->local_qp_num;
  rep.psn = id->facts.local_psn;
  rep.ece_vendor_id = arguments.ece.vendor_id & k24Bits;
  rep.ece_options = arguments.ece.options;
  rep.responder_resources = id->facts.responder_resources;
  rep.initiator_depth = id->facts.initiator_depth;
  rep.flow_control = param.flow_control;
  rep.rnr_retry_count = std::min(param.rnr_retry_count, kMaxRetries);
  rep.srq = param.srq;
  PutPrivateData(param.private_data, param.private_data_len, &rep);
  Send(id->wire, rep);
}

void Engine::TakeRep(Id* id, const WireMessage& rep) {
  id->facts.peer_qp_num = rep.qp_num;
  id->facts.peer_psn = rep.psn;
  id->facts.responder_resources = rep.initiator_depth;
  id->facts.initiator_depth = rep.responder_resources;
  id->facts.rnr_retry_count = rep.rnr_retry_count;
}

void Engine::SendRej(Handle wire, int reason, const void* private_data, size_t bytes) {
  WireMessage rej = NewMessage(MessageType::kRej);
  rej.reject_reason = static_cast<uint8_t>(reason);
  PutPrivateData(private_data, bytes, &rej);
  Send(wire, rej);
}

void Engine::Send(Handle wire, const WireMessage& message) {
  if (wire == 0) return;
  // Ignores errors: the end of the wire shows that a peer is gone, and timers repeat lost messages.
  fabric_->Send(wire, std::as_bytes(std::span(&message, 1)));
}

}  // namespace sluice::softdc::cm
