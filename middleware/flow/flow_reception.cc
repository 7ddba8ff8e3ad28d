// SPDX-License-Identifier: Apache-2.0
//
// FlowEngine: messages and events of peers. A message that does not fit the state of its flow is a protocol error, and ends the
// connection. Messages arrive in order and once, so a correct peer never sends such a message.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "middleware/flow/flow_engine.h"
#include "middleware/frame/status_payload.h"
#include "transport/base/error.h"

namespace sluice::flow {
namespace {

constexpr uint32_t kMaxRefusals = 1024;
constexpr const char* kUnanswered =
    "the peer opens more flows than this side has credits to answer";

constexpr const char* kWindowOutOfRange = "window out of range";

bool SeesMessages(FlowState state) {
  return state == FlowState::kOpen || state == FlowState::kClosing ||
         state == FlowState::kLingering;
}

}  // namespace

// ---- Peers

void FlowEngine::OnPeerUp(endpoint::PeerId peer, const endpoint::PeerInfo& info) {
  if (closed_) return;
  Connection* connection = Find(peer);
  if (connection == nullptr) {
    if (!info.inbound) return;  // disconnected by this side
    if (peer.index >= connections_.size()) connections_.resize(peer.index + 1);
    Park(peer.index);
    connections_[peer.index] = std::make_unique<Connection>();
    connection = connections_[peer.index].get();
    connection->peer = peer;
    connection->address = info.address;
    connection->inbound = true;
  }
  connection->tenant = info.tenant;
  connection->limit_bytes = session::Sessions::LargestPayload(info);
  connection->eager_bytes = session::Sessions::LargestEager(info);
  connection->up = true;
  if (!connection->turns.empty()) Activate(*connection);
}

void FlowEngine::OnPeerDown(endpoint::PeerId peer, const absl::Status& why) { Drop(peer, why); }

void FlowEngine::OnWritable(endpoint::PeerId peer) {
  Connection* connection = Find(peer);
  if (connection == nullptr) return;
  connection->blocked = false;
  // Now, not at the end of the pass: while peers wait for buffers, the endpoint gives them only to the peer whose OnWritable() runs. At
  // the end of the pass the first peer would take the buffers of all.
  if (!connection->turns.empty()) Serve(*connection);
}

void FlowEngine::OnDelivered(endpoint::PeerId peer, uint32_t sequence) {
  Connection* connection = Find(peer);
  if (connection == nullptr) return;
  uint32_t left = sequence - connection->acknowledged;
  connection->acknowledged = sequence;
  while (left > 0) {
    const UnderWay::Run run = connection->under_way.Pop(left);
    left -= run.messages;
    Record* record = run.index == kNone ? nullptr : table_.Find(run.index, run.generation);
    if (record == nullptr) continue;
    record->delivered += run.messages;
    if (left == 0 && touched_.empty()) {  // all are of one flow
      if (record->handler == nullptr) return;
      return record->handler->OnDelivered(NameOf(run.index), record->delivered);
    }
    if (!record->touched) touched_.push_back(run);
    record->touched = true;
  }
  for (const UnderWay::Run& run : touched_) {
    Record* record = table_.Find(run.index, run.generation);
    if (record == nullptr) continue;
    record->touched = false;
    if (record->handler != nullptr) {
      record->handler->OnDelivered(NameOf(run.index), record->delivered);
    }
  }
  touched_.clear();
}

void FlowEngine::OnProtocolError(endpoint::PeerId peer, std::string_view what,
                                 std::string_view explanation) {
  Connection* connection = Find(peer);
  if (connection == nullptr) return;
  ++counters_.protocol_errors;
  const std::string cause = absl::StrCat(std::string(what), ": ", std::string(explanation));
  const absl::Status why = base::Error(
      absl::StatusCode::kInternal, "connection closed",
      {.layer = "flow",
       .peer = connection->address,
       .operation = "receive",
       .cause = cause,
       .remedy = "run the same version of Sluice on both sides, Messenger to Messenger"});
  log_.Say(base::Severity::kWarning, "protocol error", connection->address,
           std::string(why.message()));
  EndLater(connection, why);
}

// If the peer disconnects, that is no protocol error. But its flow cannot continue without the message, so the connection ends.
void FlowEngine::OnLost(endpoint::PeerId peer, const frame::Header& header,
                        const absl::Status& why) {
  if (!absl::IsUnavailable(why)) return session::User::OnLost(peer, header, why);
  if (Connection* connection = Find(peer); connection != nullptr) EndLater(connection, why);
}

// Functions on the call stack may still use the connection, for example a Commit() that loses its message.
void FlowEngine::EndLater(Connection* connection, const absl::Status& why) {
  connection->ending = true;
  if (!connection->inbound) outbound_.erase(connection->address);
  ending_.push_back({connection->peer, why});
}

void FlowEngine::EndPeers() {
  while (!ending_.empty()) {
    const Ending next = std::move(ending_.back());
    ending_.pop_back();
    if (FindAny(next.peer) == nullptr) continue;  // the endpoint reported it down meanwhile
    Drop(next.peer, next.why);
    endpoint_->Disconnect(next.peer);
  }
}

void FlowEngine::Drop(endpoint::PeerId peer, const absl::Status& why) {
  std::unique_ptr<Connection> gone;
  if (FindAny(peer) != nullptr) {
    gone = Detach(peer.index);
  } else {
    const auto parked = std::find_if(parked_.begin(), parked_.end(),
                                     [peer](const auto& one) { return one->peer == peer; });
    if (parked == parked_.end()) return;
    gone = std::move(*parked);
    parked_.erase(parked);
  }
  while (!gone->flows.empty()) {
    const uint32_t index = gone->flows.first();
    const Record& record = table_[index];
    gone->flows.Remove(table_, index);
    if (record.handler != nullptr) {
      const auto detail = base::DetailOf(why);
      const std::string cause = detail.has_value() && !detail->cause().empty()
                                    ? detail->cause()
                                    : std::string(why.message());
      Tell(index, base::Error(
                      why.code(),
                      absl::StrCat("flow ended, ", record.delivered, " of ", record.sent,
                                   " messages are known to be delivered"),
                      {.layer = "flow",
                       .peer = gone->address,
                       .operation = "flow",
                       .cause = cause,
                       .remedy = "open the flow again, and agree with the peer on the next message",
                       .retry_safe = record.sent == record.delivered}));
    }
    Forget(index);
  }
}

// Ends all flows before a handler is called, so that no handler finds a flow that is about to end.
std::unique_ptr<Connection> FlowEngine::Detach(uint32_t index) {
  std::unique_ptr<Connection> gone = std::move(connections_[index]);
  // While this connection was ending, Dial() may have opened another connection to the address.
  if (!gone->inbound && !gone->ending) outbound_.erase(gone->address);
  for (uint32_t i = gone->flows.first(); i != kNone; i = table_[i].of_connection.next) {
    Record& record = table_[i];
    Move(record, FlowEvent::kPeerDown);
    record.linked = false;
    record.connection = kNone;
  }
  return gone;
}

// The endpoint may give the index of a peer to another peer before it calls OnPeerDown() for the first. Calls no handler, because its
// caller may be a handler.
void FlowEngine::Park(uint32_t index) {
  if (connections_[index] != nullptr) parked_.push_back(Detach(index));
}

void FlowEngine::Close() {
  if (closed_) return;
  closed_ = true;
  const absl::Status why = absl::CancelledError("this side was closed");
  for (size_t i = 0; i < connections_.size(); ++i) {
    if (connections_[i] != nullptr) Drop(connections_[i]->peer, why);
  }
  while (!parked_.empty()) Drop(parked_.back()->peer, why);
  ending_.clear();
  endpoint_->Close();
}

// ---- Messages

void FlowEngine::OnMessage(endpoint::PeerId peer, const frame::Header& header,
                           std::span<const std::byte> payload) {
  Connection* const connection = Find(peer);
  if (connection == nullptr) return;  // disconnected by this side
  if (header.kind != frame::Kind::kFlowData) [[unlikely]]
    return OnOtherMessage(*connection, header, payload);
  Record* const record = table_.Find(header.flow_id);
  if (record == nullptr || record->connection != peer.index || record->state != FlowState::kOpen ||
      (record->owed & kOweAccept) != 0) [[unlikely]] {
    return OnOtherMessage(*connection, header, payload);
  }
  const char* const fault = TakeData(*record, header.flow_id, header.flow_window, payload);
  if (fault != nullptr) [[unlikely]]
    OnProtocolError(peer, "wrong message", fault);
}

// Handles the messages that are not data of an open flow.
void FlowEngine::OnOtherMessage(Connection& connection, const frame::Header& header,
                                std::span<const std::byte> payload) {
  const endpoint::PeerId peer = connection.peer;
  const char* fault = nullptr;
  if (header.kind == frame::Kind::kFlowOpen) {
    fault = TakeOpen(connection, header, payload);
  } else if (header.kind < frame::Kind::kFlowOpen || header.kind > frame::Kind::kFlowClose) {
    fault = "the peer made a call; calls need a Server, not a Messenger";
  } else {
    Record* record = table_.Find(header.flow_id);
    // The peer can't know a flow whose open or accept has not been sent.
    if (record == nullptr || record->connection != peer.index || record->refused ||
        (record->owed & (kOweOpen | kOweAccept)) != 0) {
      fault = "a flow that it does not have";
    } else {
      fault = Take(*record, header, payload);
    }
  }
  if (fault != nullptr) OnProtocolError(peer, "wrong message", fault);
}

const char* FlowEngine::Take(Record& record, const frame::Header& header,
                             std::span<const std::byte> payload) {
  const uint32_t index = header.flow_id;
  switch (header.kind) {
    case frame::Kind::kFlowAccept:
      return TakeAccept(record, index, header);
    case frame::Kind::kFlowClose:
      return TakeClose(record, index, header, payload);
    default:
      if (!SeesMessages(record.state)) return "a flow that it has not accepted, or has closed";
      if (header.kind == frame::Kind::kFlowData) {
        return TakeData(record, index, header.flow_window, payload);
      }
      return TakeWindow(record, index, header.flow_window) ? nullptr : kWindowOutOfRange;
  }
}

const char* FlowEngine::TakeOpen(Connection& connection, const frame::Header& header,
                                 std::span<const std::byte> payload) {
  const auto priority = static_cast<uint8_t>(payload[0]);
  if (priority >= kPriorities) return "unknown priority";
  if (header.flow_window > kMaxWindow) return kWindowOutOfRange;
  if (!MakeRoomToRefuse(connection)) return kUnanswered;
  const std::string name(reinterpret_cast<const char*>(payload.data()) + 1, payload.size() - 1);
  const auto remote = static_cast<uint32_t>(header.call_id);
  const auto refuse = [&](absl::StatusCode code, const char* cause, const char* remedy) {
    ++counters_.refused;
    return base::Error(code, absl::StrCat("flow to \"", name, "\" refused"),
                       {.layer = "flow",
                        .operation = "open",
                        .cause = cause,
                        .remedy = remedy,
                        .retry_safe = true});
  };
  const auto end = ends_.find(name);
  if (end == ends_.end()) {
    Refuse(connection, remote,
           refuse(absl::StatusCode::kNotFound, "the peer has no acceptor for this end",
                  "compare the names; call Accept before Listen"));
    return nullptr;
  }
  if (live_flows() >= options_.max_flows) {
    Refuse(connection, remote,
           refuse(absl::StatusCode::kResourceExhausted, "max_flows flows are open at the peer",
                  "raise max_flows at the peer"));
    return nullptr;
  }
  const End& accepting = *end->second;
  const uint32_t index =
      NewFlow(connection, FlowEvent::kOffer, accepting.options, static_cast<Priority>(priority));
  Record& record = table_[index];
  record.remote = remote;
  record.send_limit = header.flow_window;
  Owe(index, kOweAccept);
  FlowHandler* const handler = accepting.acceptor(
      NameOf(index), {name, connection.address, connection.tenant, record.priority});
  if (handler == nullptr) {
    CloseFlow(NameOf(index), refuse(absl::StatusCode::kPermissionDenied,
                                    "the peer's acceptor refused the flow", "ask its operator"));
    // If the acceptor has sent a message, the peer knows the flow, which ends like a flow that was open.
    if (record.state == FlowState::kEnding) CountRefusal(connection, record);
    return nullptr;
  }
  record.handler = handler;
  ++counters_.accepted;
  return nullptr;
}

// All peers share the places for refusals. If none is left, the peer with the most refusals is disconnected, even if another peer needs
// the place.
bool FlowEngine::MakeRoomToRefuse(Connection& connection) {
  if (refusals_ < kMaxRefusals) return true;
  Connection* most = &connection;
  for (const auto& other : connections_) {
    if (other != nullptr && other->refusals > most->refusals) most = other.get();
  }
  if (most == &connection) return false;
  OnProtocolError(most->peer, "wrong message", kUnanswered);
  ForgetRefusals(*most);
  return true;
}

// Releases the refusals of a connection before it ends: no handler knows them, and their places are needed now.
void FlowEngine::ForgetRefusals(Connection& connection) {
  uint32_t next = kNone;
  for (uint32_t index = connection.flows.first(); index != kNone; index = next) {
    next = table_[index].of_connection.next;
    if (!table_[index].refused) continue;
    Move(table_[index], FlowEvent::kPeerDown);
    Unlink(connection, index);
    connection.flows.Remove(table_, index);
    Forget(index);
  }
}

void FlowEngine::Refuse(Connection& connection, uint32_t remote, const absl::Status& why) {
  const uint32_t index = NewFlow(connection, FlowEvent::kRefuse, {}, Priority::kNormal);
  Record& record = table_[index];
  record.remote = remote;
  CountRefusal(connection, record);
  reasons_[index] = why;
  Owe(index, kOweClose);
}

void FlowEngine::CountRefusal(Connection& connection, Record& record) {
  record.refused = true;
  ++refusals_;
  ++connection.refusals;
}

const char* FlowEngine::TakeAccept(Record& record, uint32_t index, const frame::Header& header) {
  if (!NextFlowState(record.state, FlowEvent::kAccepted, &record.state)) {
    return "a flow is accepted that is not being opened";
  }
  record.remote = static_cast<uint32_t>(header.call_id);
  if (!TakeWindow(record, index, header.flow_window)) return kWindowOutOfRange;
  if (record.state == FlowState::kOpen) {
    record.handler->OnOpen(NameOf(index));
  } else {
    Owe(index, kOweClose);
  }
  return nullptr;
}

const char* FlowEngine::TakeData(Record& record, uint32_t index, uint32_t window,
                                 std::span<const std::byte> payload) {
  if (!TakeWindow(record, index, window)) return kWindowOutOfRange;
  if (record.told == static_cast<uint32_t>(record.received)) return "more than the flow's window";
  if (record.state != FlowState::kOpen) {  // closed: drop the message
    --record.told;
    return nullptr;
  }
  ++record.received;
  ++counters_.messages_received;
  const Flow flow = {this, index, record.generation};
  // Counted before the handler runs, so that a message which the handler sends carries the whole window.
  const bool consumed = !record.manual_consume;
  if (consumed) ++record.consumed;
  record.handler->OnMessage(flow, payload);
  if (!consumed) return nullptr;
  const Record* const now = Find(flow);  // the handler may have closed it
  if (now != nullptr && now->state == FlowState::kOpen) ReportWindow(index, *now);
  return nullptr;
}

const char* FlowEngine::TakeClose(Record& record, uint32_t index, const frame::Header& header,
                                  std::span<const std::byte> payload) {
  if (!NextFlowState(record.state, FlowEvent::kCloseReceived, &record.state)) {
    return "a flow that it has closed";
  }
  const absl::Status why =
      header.status_code == 0 ? absl::OkStatus() : frame::DecodeStatus(header.status_code, payload);
  if (record.state == FlowState::kFree) {
    Finish(index, why);
    return nullptr;
  }
  record.owed = 0;
  Owe(index, kOweClose);
  Tell(index, why);
  return nullptr;
}

bool FlowEngine::TakeWindow(Record& record, uint32_t index, uint32_t window) {
  if (window - record.send_limit > kMaxWindow) return false;  // less than before, or too much more
  if (window - static_cast<uint32_t>(record.sent) > kMaxWindow) return false;
  record.send_limit = window;
  if (record.waits_for_window && record.has_window()) {
    record.waits_for_window = false;
    WaitForTurn(ConnectionOf(record), index);
  }
  return true;
}

}  // namespace sluice::flow
