// SPDX-License-Identifier: Apache-2.0
//
// Input from the fabric: new wires, messages, the end of wires, and claims of a key that is in use.
#include <arpa/inet.h>

#include <cerrno>
#include <cstring>

#include "transport/softdc/cm/addresses.h"
#include "transport/softdc/cm/engine.h"
#include "transport/softdc/loop/gids.h"
#include "transport/softdc/model/mutation.h"

namespace sluice::softdc::cm {
namespace {

constexpr int kAcceptsPerTurn = 64;  // the next turn takes the rest: watches are level-triggered
constexpr int kMessagesPerTurn = 16;

// One byte more than a message, so that a longer message is detected.
struct Buffer {
  std::byte bytes[sizeof(WireMessage) + 1];
};

}  // namespace

void Engine::OnReady(Handle handle) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (unidentified_.count(handle) != 0) return ReceiveFirst(handle);
  const auto found = ids_by_handle_.find(handle);
  if (found == ids_by_handle_.end()) return;  // closed in the meantime
  Id* id = found->second;
  if (handle == id->key) {
    Arguments arguments;
    if (fabric_->TakeDuplicate(handle)) Apply(id, Input::kDuplicate, &arguments);
  } else if (id->state == State::kListen) {
    AcceptWires(id);
  } else {
    ReceiveMore(id);
  }
}

void Engine::AcceptWires(Id* listener) {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    Handle wire = 0;
    if (fabric_->Accept(listener->wire, &wire) != 0) return;
    if (unidentified_.size() >= kMaxUnidentifiedWires) {
      ++counters_.refused_wires;
      fabric_->Close(wire);
      continue;
    }
    const uint64_t timer = timers_->After(kFirstMessageNs, [this, wire] {
      std::lock_guard<std::mutex> lock(mutex_);
      DropUnidentified(wire, /*refused=*/true);
    });
    unidentified_[wire] = {listener, timer};
  }
}

void Engine::DropUnidentified(Handle wire, bool refused) {
  const auto found = unidentified_.find(wire);
  if (found == unidentified_.end()) return;
  timers_->Cancel(found->second.timer);
  unidentified_.erase(found);
  fabric_->Close(wire);
  if (refused) ++counters_.refused_wires;
}

void Engine::ReceiveFirst(Handle wire) {
  Buffer buffer;
  const ssize_t length = fabric_->Receive(wire, buffer.bytes);
  if (length < 0 && errno == EAGAIN) return;
  WireMessage message;
  const bool understood =
      length > 0 && DecodeMessage({buffer.bytes, static_cast<size_t>(length)}, &message);
  const bool is_request =
      message.type == MessageType::kReq || message.type == MessageType::kSidrReq;
  if (!understood || !is_request) {
    if (length != 0) ++counters_.garbage_messages;
    DropUnidentified(wire, /*refused=*/false);
    return;
  }
  const UnidentifiedWire unidentified = unidentified_[wire];
  timers_->Cancel(unidentified.timer);
  unidentified_.erase(wire);
  OnReq(unidentified.listener, wire, message);
}

void Engine::OnReq(Id* listener, Handle wire, const WireMessage& req) {
  const bool datagram = req.type == MessageType::kSidrReq;
  sockaddr_storage destination;
  FromWire(req.destination, &destination);
  const bool for_us =
      datagram == IsDatagram(listener->qp_type) &&
      req.destination.port == PortOf(listener->from()) &&
      Accepts(listener->from(), listener->v6_only, reinterpret_cast<const sockaddr*>(&destination));
  Handle key = 0;
  const int claim = datagram ? 0 : fabric_->ClaimKey(req.node_guid, req.qp_num, &key);
  if (claim == 0 && for_us && listener->unread_requests < listener->backlog) {
    Id* const id = NewRequest(listener, wire, key, req);
    Send(wire, NewMessage(MessageType::kMra));
    auto event = std::make_unique<Event>();
    event->owner = listener;
    event->request = id;
    event->uid = listener->uid;
    event->id = id->number;
    event->type = RDMA_CM_EVENT_CONNECT_REQUEST;
    event->is_ud = datagram;
    event->private_data_bytes = datagram ? kSidrReqPrivateDataBytes : kReqPrivateDataBytes;
    std::memcpy(event->private_data, req.private_data, event->private_data_bytes);
    rdma_conn_param& conn = event->conn;
    conn.responder_resources = id->facts.responder_resources;
    conn.initiator_depth = id->facts.initiator_depth;
    conn.flow_control = req.flow_control;
    conn.retry_count = req.retry_count;
    conn.rnr_retry_count = req.rnr_retry_count;
    conn.srq = req.srq;
    conn.qp_num = req.qp_num;
    event->ece.vendor_id = req.ece_vendor_id;
    event->ece.options = req.ece_options;
    ++listener->unread_requests;
    listener->channel->Push(std::move(event));
    return;
  }
  if (claim == EEXIST) {
    ++counters_.stale_connections;
    SendRej(wire,
            Mutated(Mutation::kStaleIsPlainReject) ? kRejConsumerDefined : kRejStaleConnection,
            nullptr, 0);
  } else if (claim == 0 && !for_us && datagram) {
    WireMessage refusal = NewMessage(MessageType::kSidrRep);
    refusal.reject_reason = kSidrUnsupported;
    Send(wire, refusal);
  } else if (claim == 0 && !for_us) {
    SendRej(wire, kRejInvalidServiceId, nullptr, 0);
  } else {
    ++counters_.backlog_drops;
    Send(wire, NewMessage(MessageType::kBusy));
  }
  fabric_->Close(key);
  fabric_->Close(wire);
}

Id* Engine::NewRequest(Id* listener, Handle wire, Handle key, const WireMessage& req) {
  Id* const id = NewId(listener->channel, /*uid=*/0, listener->ps, listener->qp_type);
  id->state = req.type == MessageType::kSidrReq ? State::kSidrReceived : State::kReqReceived;
  id->has_device = true;
  id->has_path = true;
  id->wire = wire;
  id->key = key;
  ids_by_handle_[wire] = id;
  if (key != 0) ids_by_handle_[key] = id;
  FromWire(req.destination, &id->source);
  FromWire(req.source, &id->destination);
  id->path_ack_timeout = req.ack_timeout;
  QpFacts& facts = id->facts;
  GidOfAddress(id->from(), &facts.local_gid);
  GidOfAddress(id->to(), &facts.peer_gid);
  facts.peer_qp_num = req.qp_num;
  facts.local_psn = NextPsn();
  facts.peer_psn = req.psn;
  facts.responder_resources = req.initiator_depth;
  facts.initiator_depth = req.responder_resources;
  facts.retry_count = req.retry_count;
  facts.rnr_retry_count = req.rnr_retry_count;
  facts.traffic_class = req.traffic_class;
  return id;
}

void Engine::ReceiveMore(Id* id) {
  for (int i = 0; i < kMessagesPerTurn && id->wire != 0; ++i) {
    Buffer buffer;
    const ssize_t length = fabric_->Receive(id->wire, buffer.bytes);
    if (length < 0 && errno == EAGAIN) return;
    if (length == 0) {
      CloseWire(id);
      const bool unanswered =
          (id->state == State::kReqSent || id->state == State::kSidrSent) && !id->answered;
      Arguments arguments;
      Apply(id, unanswered ? Input::kUnanswered : Input::kPeerGone, &arguments);
      return;
    }
    WireMessage message;
    if (length < 0 || !DecodeMessage({buffer.bytes, static_cast<size_t>(length)}, &message)) {
      ++counters_.garbage_messages;
      Arguments arguments;
      arguments.reject_reason = kRejConsumerDefined;
      Apply(id, Input::kGarbage, &arguments);
      CloseWire(id);
      return;
    }
    OnMessage(id, message);
  }
}

void Engine::OnMessage(Id* id, const WireMessage& message) {
  Arguments arguments;
  arguments.message = &message;
  Input input = Input::kGarbage;
  switch (message.type) {
    case MessageType::kMra:
      input = Input::kMra;
      break;
    case MessageType::kBusy:
      input = Input::kBusy;
      break;
    case MessageType::kRtu:
      input = Input::kRtu;
      break;
    case MessageType::kRej:
      input = Input::kRej;
      break;
    case MessageType::kDreq:
      input = Input::kDreq;
      break;
    case MessageType::kDrep:
      input = Input::kDrep;
      break;
    case MessageType::kRep: {
      input = Input::kRep;
      if (id->state != State::kReqSent) break;
      const int claim = fabric_->ClaimKey(message.node_guid, message.qp_num, &id->key);
      if (claim == 0) {
        ids_by_handle_[id->key] = id;
      } else if (claim == EEXIST) {
        ++counters_.stale_connections;
        input = Input::kRepStale;
      } else {
        input = Input::kExhausted;
        arguments.error = claim;
      }
      break;
    }
    case MessageType::kSidrRep:
      input = message.reject_reason == kSidrSuccess ? Input::kSidrRep : Input::kSidrRefusal;
      break;
    case MessageType::kSidrReq:
    case MessageType::kReq:
      input = Input::kReq;
      break;
  }
  if (Apply(id, input, &arguments) != 0) ++counters_.ignored_messages;
}

}  // namespace sluice::softdc::cm
