// SPDX-License-Identifier: Apache-2.0
#include "middleware/flow/flow_engine.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "middleware/frame/status_payload.h"
#include "transport/base/error.h"

namespace sluice::flow {
namespace {

// Places for refused flows, in addition to max_flows.
constexpr uint32_t kRefusals = 1024;

absl::Status NotNow(const char* what, const char* cause) {
  return base::Error(absl::StatusCode::kResourceExhausted, what,
                     {.layer = "flow",
                      .operation = "send",
                      .cause = cause,
                      .remedy = "wait for OnWritable",
                      .retry_safe = true});
}

absl::Status Check(const char* operation, const std::string& name, const FlowOptions& options) {
  std::string cause;
  if (name.empty() || name.size() > frame::kMaxEndNameBytes) {
    cause = absl::StrCat("the end's name has ", name.size(), " bytes, allowed are 1 to ",
                         frame::kMaxEndNameBytes);
  } else if (options.window < 1 || options.window > kMaxWindow) {
    cause = absl::StrCat("window is ", options.window, ", allowed is 1 to ", kMaxWindow);
  } else if (static_cast<int>(options.priority) >= kPriorities) {
    cause = absl::StrCat("unknown priority ", static_cast<int>(options.priority));
  } else {
    return absl::OkStatus();
  }
  return base::Error(absl::StatusCode::kInvalidArgument, absl::StrCat(operation, " refused"),
                     {.layer = "flow",
                      .operation = operation,
                      .cause = cause,
                      .remedy = "change the value",
                      .retry_safe = true});
}

}  // namespace

FlowEngine::FlowEngine(const FlowEngineOptions& options, base::Clock* clock, base::LogSink* log)
    : options_(options),
      clock_(clock),
      log_("flow", log, clock),
      not_open_(base::Error(absl::StatusCode::kFailedPrecondition, "the flow is closed",
                            {.layer = "flow",
                             .operation = "send",
                             .cause = "this side or the peer closed it, or the peer disconnected",
                             .remedy = "open another flow",
                             .retry_safe = true})),
      no_window_(NotNow("the window of the flow is full",
                        "the other end has not consumed the messages sent so far, or has not "
                        "accepted the flow yet")),
      not_its_turn_(NotNow("other flows have priority", "they wait for credits of the same peer")),
      table_(options.max_flows + kRefusals) {}

FlowEngine::~FlowEngine() = default;

// ---- Opening

absl::Status FlowEngine::Accept(const std::string& name, const FlowOptions& options,
                                Acceptor acceptor) {
  if (absl::Status status = Check("accept", name, options); !status.ok()) return status;
  auto end = std::make_unique<End>(End{options, std::move(acceptor)});
  if (ends_.emplace(name, std::move(end)).second) return absl::OkStatus();
  return base::Error(absl::StatusCode::kAlreadyExists,
                     absl::StrCat("end \"", name, "\" not accepted"),
                     {.layer = "flow",
                      .operation = "accept",
                      .cause = "an acceptor is registered for this end",
                      .remedy = "accept each end once",
                      .retry_safe = true});
}

absl::StatusOr<Flow> FlowEngine::Open(const std::string& host, uint16_t port,
                                      const std::string& name, const FlowOptions& options,
                                      FlowHandler* handler) {
  if (closed_) return absl::CancelledError("this side is closed");
  if (absl::Status status = Check("open", name, options); !status.ok()) return status;
  if (live_flows() >= options_.max_flows) {
    return base::Error(absl::StatusCode::kResourceExhausted,
                       absl::StrCat("flow to \"", name, "\" not opened"),
                       {.layer = "flow",
                        .peer = absl::StrCat(host, ":", port),
                        .operation = "open",
                        .cause = absl::StrCat(live_flows(), " flows are open"),
                        .remedy = "close flows, or raise max_flows",
                        .retry_safe = true});
  }
  auto connection = Dial(host, port);
  if (!connection.ok()) return connection.status();
  const uint32_t index = NewFlow(**connection, FlowEvent::kOpen, options, options.priority);
  table_[index].handler = handler;
  names_[index] = name;
  ++counters_.opened;
  Owe(index, kOweOpen);
  return NameOf(index);
}

absl::StatusOr<Connection*> FlowEngine::Dial(const std::string& host, uint16_t port) {
  std::string address = absl::StrCat(host, ":", port);
  if (const auto at = outbound_.find(address); at != outbound_.end()) return Find(at->second);
  const auto peer = endpoint_->Connect(host, port, clock_->NowNs() + options_.connect_timeout_ns);
  if (!peer.ok()) return peer.status();
  if (peer->index >= connections_.size()) connections_.resize(peer->index + 1);
  Park(peer->index);
  auto& connection = connections_[peer->index] = std::make_unique<Connection>();
  connection->peer = *peer;
  connection->address = address;
  outbound_.emplace(std::move(address), *peer);
  return connection.get();
}

uint32_t FlowEngine::NewFlow(Connection& connection, FlowEvent event, const FlowOptions& options,
                             Priority priority) {
  const uint32_t index = table_.Take();
  assert(index != kNone);  // there are places for max_flows and for all refusals
  Record& record = table_[index];
  record.window = options.window;
  record.manual_consume = options.manual_consume;
  record.report_delivery = options.report_delivery;
  record.priority = priority;
  record.connection = connection.peer.index;
  Move(record, event);
  connection.flows.PushBack(table_, index);
  return index;
}

// ---- Ends of flows

void FlowEngine::Move(Record& record, FlowEvent event) {
  [[maybe_unused]] const bool legal = NextFlowState(record.state, event, &record.state);
  assert(legal);
}

void FlowEngine::Tell(uint32_t index, const absl::Status& why) {
  FlowHandler* handler = std::exchange(table_[index].handler, nullptr);
  if (handler == nullptr) return;
  ++counters_.ended;
  handler->OnClosed(NameOf(index), why, table_[index].totals());
}

void FlowEngine::Finish(uint32_t index, const absl::Status& why) {
  Connection& connection = ConnectionOf(table_[index]);
  Unlink(connection, index);
  connection.flows.Remove(table_, index);
  Tell(index, why);
  Forget(index);
}

void FlowEngine::Forget(uint32_t index) {
  names_.erase(index);
  reasons_.erase(index);
  if (table_[index].refused) {
    --refusals_;
    if (table_[index].connection != kNone) --ConnectionOf(table_[index]).refusals;
  }
  table_.Release(index);
}

void FlowEngine::CloseFlow(const Flow& flow, const absl::Status& why) {
  Record* record = Find(flow);
  if (record == nullptr) return;
  const bool unsaid = (record->owed & kOweAccept) != 0;
  const FlowEvent event = unsaid ? FlowEvent::kRefuse : FlowEvent::kClose;
  if (!NextFlowState(record->state, event, &record->state)) return;  // closed before
  if (!why.ok()) reasons_[flow.index_] = why;
  // An opener sends its close after it has received the index that the peer uses for the flow.
  if (record->state == FlowState::kAbandoned) return;
  record->owed = 0;
  Owe(flow.index_, kOweClose);
}

// ---- Sending

// Nearly all messages take the first part: one that is not large, of an open flow, while no flow waits for the peer.
absl::Status FlowEngine::Send(const Flow& flow, std::span<const std::byte> message) {
  Record* const record = Find(flow);
  if (record != nullptr && record->state == FlowState::kOpen && record->has_window() &&
      (record->owed & kOweAccept) == 0) [[likely]] {
    Connection& connection = ConnectionOf(*record);
    if (connection.writers == 0 && !connection.blocked && !connection.ending &&
        message.size() <= connection.eager_bytes) [[likely]] {
      const auto bytes = static_cast<uint32_t>(message.size());
      const endpoint::Room room = sessions_.TryReserve(connection.peer, bytes);
      if (room.data != nullptr) [[likely]] {
        if (bytes > 0) std::memcpy(room.data + frame::kHeaderBytes, message.data(), bytes);
        SendData(flow.index_, *record, connection, room, bytes);
        return absl::OkStatus();
      }
    }
  }
  const auto bytes = static_cast<uint32_t>(std::min<size_t>(message.size(), UINT32_MAX));
  const auto buffer = Reserve(flow, bytes);
  if (!buffer.ok()) return buffer.status();
  if (bytes > 0) std::memcpy(buffer->data, message.data(), bytes);
  Commit(flow, *buffer, bytes);
  return absl::OkStatus();
}

absl::StatusOr<FlowBuffer> FlowEngine::Reserve(const Flow& flow, uint32_t bytes) {
  Record* record = Find(flow);
  if (record == nullptr) return not_open_;
  if (record->state != FlowState::kOpen && record->state != FlowState::kOpening) return not_open_;
  Connection& connection = ConnectionOf(*record);
  if (connection.ending) return not_open_;
  if (!record->has_window()) {
    record->waits_for_window = true;
    return no_window_;
  }
  const bool its_turn = connection.writers == 0 || (served_ == flow.index_ && turn_left_ > 0);
  if (!its_turn || connection.blocked) {
    WaitForTurn(connection, flow.index_);
    return not_its_turn_;
  }
  if (bytes > connection.limit_bytes) {
    return base::Error(
        absl::StatusCode::kInvalidArgument, "message not sent",
        {.layer = "flow",
         .peer = connection.address,
         .operation = "send",
         .cause = absl::StrCat("it has ", bytes, " bytes, the limit is ", connection.limit_bytes),
         .remedy = "send less, or raise max_large_message_bytes on both sides",
         .retry_safe = true});
  }
  if ((record->owed & kOweAccept) != 0 && !Say(connection, flow.index_)) {
    WaitForTurn(connection, flow.index_);
    return not_its_turn_;
  }
  const auto buffer = sessions_.Reserve(connection.peer, bytes);
  if (buffer.ok()) return FlowBuffer{buffer->data, bytes, *buffer};
  return Refused(connection, flow.index_, buffer.status());
}

absl::Status FlowEngine::Refused(Connection& connection, uint32_t index, const absl::Status& why) {
  if (absl::IsResourceExhausted(why)) {
    connection.blocked = true;
    WaitForTurn(connection, index);
  }
  return why;
}

void FlowEngine::WaitForTurn(Connection& connection, uint32_t index) {
  Record& record = table_[index];
  if (record.waits_for_turn) return;
  record.waits_for_turn = true;
  ++connection.writers;
  Link(connection, index);
}

void FlowEngine::Commit(const Flow& flow, const FlowBuffer& buffer, uint32_t bytes) {
  Record* record = Find(flow);
  if (record == nullptr) return;  // the peer went down, and the buffer with it
  Connection& connection = ConnectionOf(*record);
  if (record->state != FlowState::kOpen || connection.ending) return Cancel(flow, buffer);
  assert(bytes <= buffer.capacity_bytes);
  SendData(flow.index_, *record, connection, buffer.place, bytes);
}

template <typename Memory>
void FlowEngine::SendData(uint32_t index, Record& record, Connection& connection,
                          const Memory& memory, uint32_t bytes) {
  record.told = record.consumed + record.window;
  record.owed &= static_cast<uint8_t>(~kOweWindow);  // this message reports it
  ++record.sent;
  sessions_.CommitPlain(
      connection.peer, memory,
      frame::FlowDataHeader{
          .flow_id = record.remote, .flow_window = record.told, .payload_bytes = bytes},
      record.report_delivery);
  connection.under_way.Push(index, record.generation);
  ++counters_.messages_sent;
  if (served_ == index && turn_left_ > 0) --turn_left_;
}

void FlowEngine::Cancel(const Flow& flow, const FlowBuffer& buffer) {
  if (Record* record = Find(flow)) sessions_.Cancel(ConnectionOf(*record).peer, buffer.place);
}

void FlowEngine::Consume(const Flow& flow, uint32_t messages) {
  Record* record = Find(flow);
  if (record == nullptr || record->state != FlowState::kOpen) return;
  assert(messages <= static_cast<uint32_t>(record->received) - record->consumed);
  record->consumed += messages;
  ReportWindow(flow.index_, *record);
}

// ---- Turns

void FlowEngine::Owe(uint32_t index, uint8_t owed) {
  table_[index].owed |= owed;
  Link(ConnectionOf(table_[index]), index);
}

void FlowEngine::Link(Connection& connection, uint32_t index) {
  Record& record = table_[index];
  if (!record.linked) {
    record.linked = true;
    connection.turns.PushBack(table_, index);
  }
  Activate(connection);
}

void FlowEngine::Unlink(Connection& connection, uint32_t index) {
  Record& record = table_[index];
  if (!record.linked) return;
  record.linked = false;
  connection.turns.Remove(table_, index);
  if (record.waits_for_turn) --connection.writers;
  record.waits_for_turn = false;
}

void FlowEngine::Activate(Connection& connection) {
  if (connection.active || connection.blocked || !connection.up || connection.ending) return;
  connection.active = true;
  active_.push_back(connection.peer.index);
}

int FlowEngine::Poll() {
  int done = endpoint_->Poll();
  serving_now_.swap(active_);
  int served = 0;
  for (uint32_t index : serving_now_) {
    Connection* connection = connections_[index].get();
    if (connection != nullptr && connection->active) served += Serve(*connection);
  }
  serving_now_.clear();
  if (served > 0) endpoint_->Flush();
  if (!ending_.empty()) [[unlikely]]
    EndPeers();
  return done + served;
}

int FlowEngine::Serve(Connection& connection) {
  connection.active = false;
  int served = 0;
  while (!connection.blocked && !connection.ending && !connection.turns.empty()) {
    ++served;
    const uint32_t index = connection.turns.Next();
    Record& record = table_[index];
    const Priority priority = record.priority;
    const bool writes = record.waits_for_turn;
    const uint32_t quota = connection.turns.quota(priority);
    const uint32_t before = connection.under_way.size();
    Unlink(connection, index);
    const uint32_t generation = record.generation;
    const bool said = Say(connection, index);
    // A handler may have opened a flow to a new peer that has taken the place of this connection.
    if (connections_[connection.peer.index].get() != &connection) return served;
    if (record.generation != generation) continue;  // the flow has ended
    if (!said) {
      record.linked = true;
      record.waits_for_turn = writes;
      if (writes) ++connection.writers;
      connection.turns.PushFront(table_, index);
      break;
    }
    if (writes && record.state == FlowState::kOpen) {
      served_ = index;
      turn_left_ = quota;
      record.handler->OnWritable(NameOf(index));
      served_ = kNone;
      if (connections_[connection.peer.index].get() != &connection) return served;
    }
    connection.turns.Charge(priority, connection.under_way.size() - before);
  }
  return served;
}

bool FlowEngine::Say(Connection& connection, uint32_t index) {
  Record& record = table_[index];
  while (record.owed != 0) {
    const auto owed = static_cast<uint8_t>(record.owed & -record.owed);  // the lowest
    frame::Header header;
    std::string payload;
    header.flow_id = record.remote;
    header.flow_window = record.consumed + record.window;
    switch (owed) {
      case kOweOpen:
        header.kind = frame::Kind::kFlowOpen;
        header.flow_id = 0;
        header.call_id = index;
        payload = absl::StrCat(std::string(1, static_cast<char>(record.priority)), names_[index]);
        break;
      case kOweAccept:
        header.kind = frame::Kind::kFlowAccept;
        header.call_id = index;
        break;
      case kOweWindow:
        header.kind = frame::Kind::kFlowWindow;
        break;
      case kOweClose:
        header.kind = frame::Kind::kFlowClose;
        header.flow_window = 0;
        if (const auto why = reasons_.find(index); why != reasons_.end()) {
          header.status_code = static_cast<uint16_t>(why->second.code());
          payload = frame::EncodeStatus(why->second, connection.eager_bytes);
        }
        break;
    }
    header.payload_bytes = static_cast<uint32_t>(payload.size());
    const auto buffer = sessions_.Reserve(connection.peer, header.payload_bytes);
    if (!buffer.ok()) {
      connection.blocked = true;  // OnWritable() or OnPeerDown() follows
      return false;
    }
    std::memcpy(buffer->data, payload.data(), payload.size());
    sessions_.Commit(connection.peer, *buffer, header);
    connection.under_way.Push(kNone, 0);
    ++counters_.control_sent;
    record.owed &= static_cast<uint8_t>(~owed);
    if (owed == kOweOpen) names_.erase(index);
    if (owed != kOweClose) {
      record.told = header.flow_window;
      continue;
    }
    Move(record, FlowEvent::kCloseSent);
    if (record.state == FlowState::kFree) {
      Finish(index, absl::OkStatus());
      return true;
    }
  }
  return true;
}

}  // namespace sluice::flow
