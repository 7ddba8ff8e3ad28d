// SPDX-License-Identifier: Apache-2.0
//
// What the rows of the state machine do.
#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/softdc/cm/addresses.h"
#include "transport/softdc/cm/engine.h"
#include "transport/softdc/loop/gids.h"

namespace sluice::softdc::cm {
namespace {

constexpr uint32_t k24Bits = 0xffffff;
constexpr uint8_t kMaxRetries = 7;

void PutPrivateData(const void* data, size_t bytes, WireMessage* message) {
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
    case Action::kResolveRoute: {
      // The address may have left this host since it was resolved.
      const bool found = IsLocalAddress(&id->route.addr.dst_addr);
      if (found) {
        // As the kernel does: an ACK timeout set later than here no longer changes the path.
        id->packet_lifetime = id->ack_timeout_set && id->ack_timeout != 0
                                  ? static_cast<uint8_t>(id->ack_timeout - 1)
                                  : kRocePacketLifetime;
        id->facts.traffic_class = id->traffic_class;
        ibv_sa_path_rec& path = id->path_record;
        path = {};
        path.dgid = id->facts.peer_gid;
        path.sgid = id->facts.local_gid;
        path.hop_limit = kHopLimit;
        path.traffic_class = id->traffic_class;
        path.reversible = 1;
        path.numb_path = 1;
        path.pkey = htons(0xffff);
        path.mtu = IBV_MTU_4096;
        path.packet_life_time = id->packet_lifetime;
        id->route.path_rec = &path;
        id->route.num_paths = 1;
      }
      *has_next = true;
      *next = found ? Input::kRouteFound : Input::kRouteMissing;
      return 0;
    }
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
      BuildReq(id, *arguments->param);
      *has_next = SendReq(id, arguments, next);
      return 0;
    case Action::kRepeatReq:
      StartTimer(id, kRetryNs);
      CloseWire(id);
      *has_next = SendReq(id, arguments, next);
      return 0;
    case Action::kReconnect:
      if (++id->unanswered >= kMaxUnanswered) {
        arguments->error = ECONNRESET;
        *has_next = true;
        *next = Input::kExhausted;
        return 0;
      }
      id->quick_retry = true;
      StartTimer(id, kQuickRetryNs);
      return 0;
    case Action::kStopRetries:
      id->answered = true;
      id->unanswered = 0;
      StopTimer(id);
      return 0;
    case Action::kAwaitRetry:
      CloseWire(id);
      return 0;
    case Action::kTakeRep:
      TakeRep(id, *arguments->message);
      return 0;
    case Action::kRejectStaleRep:
      SendRej(id->wire, kRejStaleConnection, nullptr, 0);
      CloseWire(id);
      id->answered = false;
      StartTimer(id, kRetryNs);
      return 0;
    case Action::kSendRep:
      SendRep(id, *arguments->param);
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
      StartTimer(id, kRetryNs);
      Send(id->wire, NewMessage(MessageType::kDreq));
      return 0;
    case Action::kSendDrep:
      CloseKey(id);  // the peer may use its number again as soon as it has the answer
      Send(id->wire, NewMessage(MessageType::kDrep));
      return 0;
  }
  return EINVAL;
}

int Engine::DoBind(Id* id, const sockaddr* address) {
  const bool wildcard = IsWildcard(address);
  if (!wildcard && !IsLocalAddress(address)) return EADDRNOTAVAIL;
  uint16_t port = 0;
  const int error = fabric_->ReservePort(ntohs(PortOf(address)), &id->wire, &port);
  if (error != 0) return error;
  ids_by_handle_[id->wire] = id;
  CopyAddress(address, &id->route.addr.src_storage);
  SetPort(htons(port), &id->route.addr.src_storage);
  if (!wildcard) AttachDevice(id);
  return 0;
}

int Engine::DoResolveAddr(Id* id, const Arguments& arguments, Input* next) {
  const sockaddr* const destination = arguments.destination;
  rdma_addr& route = id->route.addr;
  if (route.src_addr.sa_family != destination->sa_family) return EINVAL;
  CopyAddress(destination, &route.dst_storage);
  if (IsWildcard(destination)) {
    const uint16_t port = PortOf(destination);
    route.dst_storage = LoopbackOf(destination->sa_family);
    SetPort(port, &route.dst_storage);
  }
  if (!IsLocalAddress(&route.dst_addr)) {
    *next = Input::kAddrMissing;
    return 0;
  }
  if (IsWildcard(&route.src_addr)) {
    const uint16_t port = PortOf(&route.src_addr);
    CopyAddress(&route.dst_addr, &route.src_storage);
    SetPort(port, &route.src_storage);
  }
  GidOfAddress(&route.src_addr, &id->facts.local_gid);
  GidOfAddress(&route.dst_addr, &id->facts.peer_gid);
  AttachDevice(id);
  *next = Input::kAddrFound;
  return 0;
}

int Engine::DoListen(Id* id, int backlog) {
  id->backlog =
      backlog > 0 ? std::min(static_cast<uint32_t>(backlog), kDefaultBacklog) : kDefaultBacklog;
  return fabric_->Listen(id->wire);
}

void Engine::BuildReq(Id* id, const rdma_conn_param& param) {
  const auto within_device = [](uint8_t value) {
    return value == RDMA_MAX_RESP_RES ? kMaxRdAtomic : value;
  };
  id->local_qp_num = param.qp_num & k24Bits;
  id->path_ack_timeout = AckTimeout(kCaAckDelay, id->packet_lifetime);
  id->facts.local_psn = NextPsn();
  id->facts.responder_resources = within_device(param.responder_resources);
  id->facts.initiator_depth = within_device(param.initiator_depth);
  id->facts.retry_count = std::min(param.retry_count, kMaxRetries);
  id->facts.rnr_retry_count = std::min(param.rnr_retry_count, kMaxRetries);

  WireMessage& req = id->request = NewMessage(MessageType::kReq);
  req.node_guid = hooks_.node_guid;
  req.qp_num = id->local_qp_num;
  req.psn = id->facts.local_psn;
  req.ece_vendor_id = id->local_ece.vendor_id;
  req.ece_options = id->local_ece.options;
  req.source = ToWire(&id->route.addr.src_addr);
  req.destination = ToWire(&id->route.addr.dst_addr);
  req.responder_resources = id->facts.responder_resources;
  req.initiator_depth = id->facts.initiator_depth;
  req.flow_control = param.flow_control;
  req.retry_count = id->facts.retry_count;
  req.rnr_retry_count = id->facts.rnr_retry_count;
  req.srq = param.srq;
  req.ack_timeout = id->path_ack_timeout;
  req.traffic_class = id->facts.traffic_class;
  PutPrivateData(param.private_data, param.private_data_len, &req);
}

bool Engine::SendReq(Id* id, Arguments* arguments, Input* next) {
  int error = 0;
  if (id->wire == 0) {
    // A repetition goes over a new wire. Another may have taken our port meanwhile: then any other
    // will do.
    uint16_t port = ntohs(PortOf(&id->route.addr.src_addr));
    error = fabric_->ReservePort(port, &id->wire, &port);
    if (error == EADDRINUSE) error = fabric_->ReservePort(0, &id->wire, &port);
    if (error == 0) {
      ids_by_handle_[id->wire] = id;
      SetPort(htons(port), &id->route.addr.src_storage);
      id->request.source.port = htons(port);
    }
  }
  if (error == 0) {
    error = fabric_->Connect(id->wire, ntohs(PortOf(&id->route.addr.dst_addr)));
    if (error != 0) CloseWire(id);
  }
  if (error == 0) {
    Send(id->wire, id->request);
    return false;
  }
  if (error == EAGAIN) return false;  // as lost: the timer repeats it
  arguments->error = error;
  *next = error == ECONNREFUSED ? Input::kRefused : Input::kExhausted;
  return true;
}

void Engine::SendRep(Id* id, const rdma_conn_param& param) {
  // An application that asks for the most gets what the requester asked for.
  if (param.responder_resources != RDMA_MAX_RESP_RES) {
    id->facts.responder_resources = param.responder_resources;
  }
  if (param.initiator_depth != RDMA_MAX_INIT_DEPTH) {
    id->facts.initiator_depth = param.initiator_depth;
  }
  id->local_qp_num = param.qp_num & k24Bits;
  WireMessage rep = NewMessage(MessageType::kRep);
  rep.node_guid = hooks_.node_guid;
  rep.qp_num = id->local_qp_num;
  rep.psn = id->facts.local_psn;
  // The kernel's REP carries the requester's vendor with the responder's options.
  rep.ece_vendor_id = id->remote_ece.vendor_id;
  rep.ece_options = id->local_ece.options;
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
  id->remote_ece.vendor_id = rep.ece_vendor_id;
  id->remote_ece.options = rep.ece_options;
}

void Engine::SendRej(Handle wire, int reason, const void* private_data, size_t bytes) {
  WireMessage rej = NewMessage(MessageType::kRej);
  rej.reject_reason = static_cast<uint8_t>(reason);
  PutPrivateData(private_data, bytes, &rej);
  Send(wire, rej);
}

void Engine::Send(Handle wire, const WireMessage& message) {
  if (wire == 0) return;
  // A peer that is gone is noticed by the end of the wire, and what got lost is repeated by timers.
  fabric_->Send(wire, std::as_bytes(std::span(&message, 1)));
}

}  // namespace sluice::softdc::cm
