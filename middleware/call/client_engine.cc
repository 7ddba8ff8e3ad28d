// SPDX-License-Identifier: Apache-2.0
//
#include "middleware/call/client_engine.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/strings/str_cat.h"
#include "middleware/call/method.h"
#include "middleware/frame/status_payload.h"
#include "transport/base/error.h"

namespace sluice::call {
namespace {

session::InPlace PlaceOf(const CallSpec& spec, size_t payload_bytes) {
  const uint32_t metadata = frame::MetadataBytes(spec.metadata.size());
  const size_t attachment = frame::AttachmentBytes(spec.attachment.size());
  return spec.buffer->PlaceOf(metadata, payload_bytes - metadata - attachment);
}

bool IsUnknownMethod(const absl::Status& status) {
  const auto detail = base::DetailOf(status);
  return detail.has_value() && detail->layer() == "call" && detail->operation() == kDispatch;
}

// Returns the timeout for the header of a request.
uint64_t TimeoutOf(int64_t left_ns) {
  return std::min(static_cast<uint64_t>(std::max<int64_t>(left_ns, 1)), frame::kMaxTimeoutNs);
}

// Returns true for a call with one message each way, whose request has no metadata and no attachment.
bool IsPlain(const CallSpec& spec) {
  return spec.method->streams == Streams::kNobody && spec.stream == nullptr &&
         spec.buffer == nullptr && (spec.metadata.size() | spec.attachment.size()) == 0;
}

// Returns true if the server's engine made the error (a refusal, or a reply that it could not send), not a handler.
bool IsOfTheServersEngine(const absl::Status& status) {
  const auto detail = base::DetailOf(status);
  return detail.has_value() && detail->peer().empty() &&
         (detail->layer() == "call" || detail->layer() == "api");
}

}  // namespace

ClientEngine::ClientEngine(const ClientEngineOptions& options, base::Clock* clock,
                           base::Random* random, base::LogSink* log)
    : options_(options),
      clock_(clock),
      random_(random),
      log_("call", log, clock),
      wheel_(clock->NowNs()),
      exceptions_(log, clock),
      table_(options.max_outstanding_calls, &wheel_, &now_ns_, &ClientEngine::OnDeadline, this,
             &ClientEngine::OnThrown),
      budget_(options.retry),
      limit_bytes_(LimitOf({.max_message_bytes = options.max_message_bytes,
                            .max_large_bytes = options.max_large_bytes})),
      sampler_(options.timed_every),
      trace_(options.trace_records) {
  RefreshNow();
  if (!options.host.empty()) SetServers({{options.host, options.port}});
}

ClientEngine::~ClientEngine() {
  while (!watches_.empty()) Unwatch(watches_.back());
  for (auto* list : {&connections_, &leaving_}) {
    for (const auto& connection : *list) {
      wheel_.Cancel(&connection->backoff);
      ForgetHealth(connection.get());
    }
  }
}

void ClientEngine::RefreshNow() {
  now_ns_ = clock_->NowNs();
  now_is_stale_ = false;
  if (overload_.going_on() || outage_.going_on()) [[unlikely]]
    LookAtOverload();
}

void ClientEngine::LookAtOverload() {
  overload_.Look(now_ns_, &log_);
  outage_.Look(now_ns_, &log_);
}

// ---- Starting and sending

void ClientEngine::BeginKnown(Call* call, uint64_t id) {
  if (ClientStream* const stream = call->spec.stream; stream != nullptr) {
    stream->call_id = id;
    stream->end.SetWindow(options_.stream_window);
  }
  CallControl* const control = call->spec.control;
  if (control == nullptr) return;
  control->call_id.store(id, std::memory_order_seq_cst);
  if (control->cancelled.load(std::memory_order_seq_cst)) EndSoon(id, absl::OkStatus());
}

size_t ClientEngine::FirstChoiceOfSome(const Buffer* buffer) {
  if (some_rest_ || some_given_up_) [[unlikely]]
    DialIdle();
  for (size_t i = 0; buffer != nullptr && i < connections_.size(); ++i) {
    if (connections_[i]->peer == buffer->peer() && MayGetCalls(*connections_[i])) return i;
  }
  if (options_.balancing == Balancing::kPickFirst) return 0;
  const size_t start = next_choice_++ % connections_.size();
  if (options_.balancing == Balancing::kRoundRobin) return start;
  size_t best = start;  // equal servers take turns
  uint32_t fewest = UINT32_MAX;
  for (size_t i = 0; i < connections_.size(); ++i) {
    const size_t at = (start + i) % connections_.size();
    const Connection& connection = *connections_[at];
    if (!MayGetCalls(connection)) continue;
    if (connection.outstanding >= fewest) continue;
    fewest = connection.outstanding;
    best = at;
  }
  return best;
}

[[gnu::always_inline]] inline absl::Status ClientEngine::ReserveFor(const CallSpec& spec,
                                                                    Connection** connection,
                                                                    endpoint::SendBuffer* buffer,
                                                                    uint32_t* payload_bytes) {
  const size_t size = PayloadBytes(spec);
  *payload_bytes = static_cast<uint32_t>(size);
  const size_t first = FirstChoice(spec.buffer);
  bool starved = false;
  for (size_t i = 0; i < connections_.size(); ++i) {
    const size_t at = first + i;
    Connection* const one =
        connections_[at < connections_.size() ? at : at - connections_.size()].get();
    if (!MayGetCalls(*one)) continue;
    if (size > one->limit_bytes - frame::kHeaderBytes) {
      *connection = one;
      return TooLarge(spec, "request", size, one->limit_bytes);
    }
    const auto reserved = spec.buffer == nullptr
                              ? sessions_.Reserve(one->peer, *payload_bytes)
                              : sessions_.Reserve(one->peer, *payload_bytes, PlaceOf(spec, size));
    if (reserved.ok()) [[likely]] {
      *connection = one;
      *buffer = *reserved;
      return absl::OkStatus();
    }
    if (absl::IsAborted(reserved.status())) {
      *connection = one;
      return NoMemory(spec, reserved.status());
    }
    starved = true;
    if (options_.balancing == Balancing::kPickFirst) break;
  }
  // RESOURCE_EXHAUSTED: OnWritable() follows, or Lose(), OnDrain() or SetServers() of the server. UNAVAILABLE: OnPeerUp() follows.
  return starved ? absl::ResourceExhaustedError("") : absl::UnavailableError("");
}

// `payload_bytes` is from ReserveFor() directly before, so the request has its sizes cached.
[[gnu::always_inline]] inline void ClientEngine::SendRequest(Call* call, Connection* connection,
                                                             const endpoint::SendBuffer& buffer,
                                                             uint32_t payload_bytes) {
  call->connection = connection;
  ++connection->outstanding;
  frame::Header header;
  header.kind = frame::Kind::kRequest;
  header.call_id = CallTable::WireId(*call);
  header.method_id = call->spec.method->id;
  if (call->deadline_ns != kNoDeadlineNs) {
    header.timeout_ns = TimeoutOf(call->deadline_ns - now_ns_);
  }
  header.payload_bytes = payload_bytes;
  header.flags = static_cast<uint16_t>(call->spec.method->streams);
  if (ClientStream* const stream = call->spec.stream; stream != nullptr) [[unlikely]] {
    if (call->spec.method->server_streams() && stream->end.FirstWindowIsDue())
      header.flow_window = stream->end.SayWindow();
  }
  std::byte* message = frame::PutMetadata(call->spec.metadata, header, buffer.data);
  message = frame::PutAttachment(call->spec.attachment, header, message);
  if (!call->spec.method->client_streams()) {
    call->spec.method->request_codec->write(
        *call->spec.request, payload_bytes - static_cast<size_t>(message - buffer.data), message);
  }
  sessions_.Commit(connection->peer, buffer, header);
  call->stats->CountRequestBytes(payload_bytes);
}

void ClientEngine::Send(Call* call, Connection* connection, const endpoint::SendBuffer& buffer,
                        uint32_t payload_bytes) {
  SendRequest(call, connection, buffer, payload_bytes);
}

// The fast path of nearly all calls: a plain call to the only server, which is connected, while no call waits. It does the work of
// ReserveFor() and SendRequest() without the steps that such a call does not need.
absl::Status ClientEngine::Start(const CallSpec& spec, uint64_t* call_id) {
  if (now_is_stale_) RefreshNow();
  int64_t deadline_ns = spec.deadline_ns;
  if (spec.timeout_ns < kNoDeadlineNs - now_ns_) {
    deadline_ns = std::min(deadline_ns, now_ns_ + spec.timeout_ns);
  }
  if (deadline_ns <= now_ns_) [[unlikely]]
    return DeadlineExceeded(spec, CallState::kFree);

  Connection* const only = connections_.size() == 1 ? connections_[0].get() : nullptr;
  if (only == nullptr || !MayGetCalls(*only) || !IsPlain(spec) || !MaySendNow()) [[unlikely]]
    return StartOther(spec, deadline_ns, call_id);
  const size_t size = spec.method->request_codec->size(*spec.request);
  if (size > only->limit_bytes - frame::kHeaderBytes) [[unlikely]]
    return StartOther(spec, deadline_ns, call_id);
  const endpoint::Room room = sessions_.TryReserve(only->peer, static_cast<uint32_t>(size));
  if (room.data == nullptr) [[unlikely]]
    return StartOther(spec, deadline_ns, call_id);
  Call* const call = table_.StartSent(spec, deadline_ns);
  Begin(call, call_id);
  call->connection = only;
  ++only->outstanding;
  spec.method->request_codec->write(*spec.request, size, room.data + frame::kHeaderBytes);
  sessions_.CommitPlain(only->peer, room,
                        {.kind = frame::Kind::kRequest,
                         .payload_bytes = static_cast<uint32_t>(size),
                         .call_id = CallTable::FirstWireId(*call),
                         .method_id = spec.method->id,
                         .timeout_ns = deadline_ns == kNoDeadlineNs
                                           ? 0
                                           : std::min(static_cast<uint64_t>(deadline_ns - now_ns_),
                                                      frame::kMaxTimeoutNs)});
  call->stats->CountRequestBytes(size);
  return absl::OkStatus();
}

absl::Status ClientEngine::StartOther(const CallSpec& spec, int64_t deadline_ns,
                                      uint64_t* call_id) {
  if (MaySendNow()) {
    uint32_t payload_bytes = 0;
    Connection* connection = nullptr;
    endpoint::SendBuffer buffer;
    absl::Status reserved = ReserveFor(spec, &connection, &buffer, &payload_bytes);
    if (reserved.ok()) [[likely]] {
      Call* call = table_.StartSent(spec, deadline_ns);
      Begin(call, call_id);
      SendRequest(call, connection, buffer, payload_bytes);
      return reserved;
    }
    if (connection != nullptr) return reserved;  // the request can't be sent there
  }
  if (const size_t size = PayloadBytes(spec); size > limit_bytes_ - frame::kHeaderBytes) {
    return TooLarge(spec, "request", size, limit_bytes_);
  }
  if (closed_ || (!spec.wait_for_ready && !HasHope())) return NotConnected(spec.method->full_name);
  Call* call = table_.Start(spec, deadline_ns);
  if (call == nullptr) {
    absl::Status why = base::Error(
        absl::StatusCode::kResourceExhausted, absl::StrCat(spec.method->full_name, " not started"),
        {.layer = "call",
         .peer = server_,
         .operation = spec.method->full_name,
         .cause = absl::StrCat(table_.limit(), " calls are in flight, the maximum"),
         .remedy = "wait for calls to end, or raise max_outstanding_calls",
         .retry_safe = true});
    overload_.Refused(now_ns_, why, &log_);
    return why;
  }
  Begin(call, call_id);
  // Poll() connects, not Start(): a failed attempt runs callbacks, which must not run here.
  dial_wanted_ = true;
  Trace(observe::TraceEvent::kCallWaits, CallTable::WireId(*call), spec.method->id, 0);
  return absl::OkStatus();
}

void ClientEngine::SendWaiting() {
  bool owed = false;
  while (Call* call = table_.FirstWaiting()) {
    uint32_t payload_bytes = 0;
    Connection* connection = nullptr;
    endpoint::SendBuffer buffer;
    const absl::Status reserved = ReserveFor(call->spec, &connection, &buffer, &payload_bytes);
    if (reserved.ok()) {
      table_.MarkSent(call);
      Send(call, connection, buffer, payload_bytes);
      Trace(observe::TraceEvent::kCallSent, CallTable::WireId(*call), call->spec.method->id,
            (now_ns_ - call->started_ns) >> 10);
      ClientStream* const stream = call->spec.stream;
      if (stream != nullptr) {
        stream->call_id = CallTable::WireId(*call);
        if (stream->wants_to_write || stream->end_owed) {
          Block(call);
          owed = true;
        }
      }
    } else if (connection != nullptr) {  // the request can't be sent there
      End(call, CallEvent::kFail, reserved);
    } else {
      break;
    }
  }
  // For streams whose requests waited: no OnWritable() follows if all requests found credit. Observers may set other servers.
  for (size_t i = 0; owed && i < connections_.size(); ++i) SendOwed(connections_[i].get());
}

void ClientEngine::OnWritable(endpoint::PeerId peer) {
  if (Connection* connection = Find(peer); connection != nullptr) {
    SendOwed(connection);
    SendWaiting();
  }
}

// ---- Receiving and ending

void ClientEngine::OnProtocolError(endpoint::PeerId peer, std::string_view what,
                                   std::string_view explanation) {
  if (Connection* connection = Find(peer); connection != nullptr) {
    Break(connection, what, explanation);
  }
}

inline void ClientEngine::EndOk(Call* call) {
  if (IsSampled()) [[unlikely]]
    return EndRecorded(call, CallEvent::kReply, absl::OkStatus(), true);
  CountOk(call);
  table_.EndOk(call);
}

inline void ClientEngine::Deliver(Connection* connection, const frame::Header& header,
                                  std::span<const std::byte> payload) {
  Call* const call = table_.FindSent(header.call_id);
  if (call == nullptr || call->connection != connection) [[unlikely]] {
    ++counters_.late_replies;
    return;
  }
  const CallSpec& spec = call->spec;
  call->stats->CountReplyBytes(payload.size());
  if ((header.flags | header.status_code) != 0 || spec.method->streams != Streams::kNobody ||
      spec.stream != nullptr) [[unlikely]] {
    return DeliverOther(call, header, payload);
  }
  if (!spec.method->reply_codec->read(payload, spec.reply)) [[unlikely]]
    return DeliverOther(call, header, payload);
  EndOk(call);
}

// Handles an error, the end of a stream, a reply with metadata or attachment, or a reply that can't be parsed.
void ClientEngine::DeliverOther(Call* call, const frame::Header& header,
                                std::span<const std::byte> payload) {
  const CallSpec& spec = call->spec;
  Connection* const connection = call->connection;
  const frame::Parts parts = frame::Split(header, payload);
  if ((header.flags & (frame::kFlagMetadata | frame::kFlagAttachment)) != 0 &&
      spec.reply_beside != nullptr) {
    KeepBeside(spec.reply_beside, parts);
  }
  if (header.status_code != 0) return Fail(call, connection, header, parts.message);
  if (!spec.method->server_streams() &&
      !spec.method->reply_codec->read(parts.message, spec.reply)) {
    return End(call, CallEvent::kReply, NotParsed(*call, *connection, parts.message.size()));
  }
  if (spec.stream != nullptr) return End(call, CallEvent::kReply, absl::OkStatus());
  EndOk(call);
}

void ClientEngine::OnMessage(endpoint::PeerId peer, const frame::Header& header,
                             std::span<const std::byte> payload) {
  Connection* const connection = Find(peer);
  if (connection == nullptr) return;
  if (header.kind == frame::Kind::kReply) return Deliver(connection, header, payload);
  if (header.kind == frame::Kind::kStreamData || header.kind == frame::Kind::kStreamWindow ||
      header.kind == frame::Kind::kStreamMetadata) {
    return OnStream(connection, header, payload);
  }
  if (header.kind == frame::Kind::kDrain) return OnDrain(connection, header);
  Break(connection, "unexpected message", "only replies and messages of streams go this way");
}

void ClientEngine::KeepBeside(Beside* beside, const frame::Parts& parts) {
  if (!parts.metadata.empty()) {
    beside->metadata.assign(reinterpret_cast<const char*>(parts.metadata.data()),
                            parts.metadata.size());
  }
  if (!parts.attachment.empty()) {
    beside->attachment = Keep(parts.attachment, parts.message.size(), &sessions_);
  }
}

void ClientEngine::Fail(Call* call, Connection* connection, const frame::Header& header,
                        std::span<const std::byte> message) {
  absl::Status status = frame::DecodeStatus(header.status_code, message);
  // Only the server's engine knows whether the call ran. A handler may pass on the error of a call of its own.
  const bool not_run = (header.flags & frame::kFlagNotRun) != 0;
  if (!not_run) status = base::NotRetrySafe(std::move(status));
  // The server knows only the number of the method.
  if (not_run && absl::IsUnimplemented(status) && IsUnknownMethod(status)) {
    status = base::Prefix(status, absl::StrCat("unknown method ", call->spec.method->full_name,
                                               " (peer ", connection->server, ")"));
  } else if (IsOfTheServersEngine(status)) {
    status = base::AddPeer(status, connection->server);  // the server does not know this address
  }
  // Both ends detect the deadline. Only this end can report messages that were not read.
  if (absl::IsDeadlineExceeded(status) && call->spec.stream != nullptr &&
      !call->spec.stream->end.empty()) {
    RefreshNow();
    if (now_ns_ >= call->deadline_ns) return OnDeadline(this, call);
  }
  if (Retry(call, status, not_run)) return;
  End(call, CallEvent::kReply, status);
}

void ClientEngine::OnLost(endpoint::PeerId peer, const frame::Header& header,
                          const absl::Status& why) {
  Connection* const connection = Find(peer);
  Call* call = table_.FindSent(header.call_id);
  if (connection == nullptr || call == nullptr || call->connection != connection) return;
  if (header.kind == frame::Kind::kStreamData &&
      !SendControl(connection, frame::Kind::kCancel, header.call_id, 0)) {
    connection->cancels_owed.push_back(header.call_id);
  }
  const absl::Status status = base::Prefix(
      why, absl::StrCat("a large message of ", call->spec.method->full_name, " can't be moved"));
  // The handler has run, as after the loss of a connection.
  if (header.kind == frame::Kind::kReply && Retry(call, status, /*not_run=*/false)) return;
  End(call, CallEvent::kReply, status);
}

void ClientEngine::End(Call* call, CallEvent event, const absl::Status& status) {
  const bool sampled = IsSampled();
  if (sampled || !status.ok()) [[unlikely]]
    return EndRecorded(call, event, status, sampled);
  CountOk(call);
  table_.End(call, event, status);
}

void ClientEngine::EndRecorded(Call* call, CallEvent event, const absl::Status& status,
                               bool sampled) {
  if (sampled) RecordLatency(*call);
  Trace(observe::TraceEvent::kCallEnded, CallTable::WireId(*call), call->spec.method->id,
        (now_ns_ - call->started_ns) >> 10, status);
  if (status.ok()) {
    CountOk(call);
  } else {
    ++counters_.calls_failed;
    call->stats->CountError(status.code());
  }
  // Sends kCancel to the server if the caller cancels. After a deadline the server needs no message: it knows the deadline.
  if (event == CallEvent::kCancel && call->state == CallState::kSent) {
    const uint64_t id = CallTable::WireId(*call);
    if (!SendControl(call->connection, frame::Kind::kCancel, id, 0)) {
      call->connection->cancels_owed.push_back(id);
    }
  }
  table_.End(call, event, status);
}

void ClientEngine::RecordLatency(const Call& call) {
  uint32_t times = 1;
  if (now_is_stale_) {
    if (quiet_passes_ < kQuietPasses) times = sampler_.every();
    RefreshNow();
  }
  call.stats->RecordLatency(now_ns_ - call.started_ns, times);
}

void ClientEngine::OnDeadline(void* owner, Call* call) {
  auto* engine = static_cast<ClientEngine*>(owner);
  engine->End(call, CallEvent::kDeadline,
              engine->DeadlineExceeded(call->spec, call->state, call->attempt));
}

bool ClientEngine::Cancel(uint64_t call_id) {
  Call* call = table_.Find(call_id);
  if (call == nullptr) return false;
  const bool not_sent = call->state == CallState::kWaiting && call->attempt == 1;
  End(call, CallEvent::kCancel, CancelledByCaller(*call->spec.method, not_sent));
  return true;
}

void ClientEngine::EndTheseSoon() {
  const std::vector<std::pair<uint64_t, absl::Status>> calls = std::exchange(end_soon_, {});
  for (const auto& [id, why] : calls) {
    if (why.ok()) {
      Cancel(id);
    } else if (Call* call = table_.Find(id); call != nullptr) {
      End(call, CallEvent::kCancel, why);
    }
  }
}

void ClientEngine::OnThrown(void* owner, const Method& method) {
  auto* engine = static_cast<ClientEngine*>(owner);
  (void)engine->exceptions_.Take(absl::StrCat("callback of ", method.full_name), method.full_name,
                                 engine->server_);
}

void ClientEngine::EndUnstarted(const CallSpec& spec, const absl::Status& why) {
  const Method* const method = spec.method;
  try {
    if (spec.done != nullptr) {
      spec.done(spec.argument, why);
    } else {
      Callback taken = std::move(*spec.callback);  // destroyed before this returns
      std::move(taken)(why);
    }
  } catch (...) {
    OnThrown(this, *method);
  }
}

// ---- Driving

int ClientEngine::Poll() {
  now_is_stale_ = true;
  if (std::exchange(dial_wanted_, false)) {
    // A callback may set other servers.
    for (size_t i = 0; i < connections_.size(); ++i) {
      if (connections_[i]->state == ConnectionState::kIdle && !StaysAtRest(i) &&
          MayDialAgain(connections_[i].get())) {
        Dial(connections_[i].get());
      }
    }
  }
  const bool servers_changed = std::exchange(servers_changed_, false);
  if (!leaving_.empty()) DropLeft();
  if (!end_soon_.empty()) EndTheseSoon();
  // Calls may wait for credit of a server that was removed. Not in SetServers(), which may run inside a callback.
  if (servers_changed && table_.waiting() > 0) [[unlikely]] {
    if (now_is_stale_) RefreshNow();
    SendWaiting();
  }
  const int done = endpoint_->Poll();
  quiet_passes_ = done == 0 ? quiet_passes_ + 1 : 0;
  const bool due = done == 0 ? ++idle_passes_ % kIdlePassesPerClockRead == 0
                             : ++busy_passes_ % kBusyPassesPerClockRead == 0;
  if (!due) return done;
  if (now_is_stale_) RefreshNow();
  const int fired = wheel_.Advance(now_ns_);
  if (fired > 0) endpoint_->Flush();
  return done + fired;
}

int64_t ClientEngine::SleepLimitNs() {
  RefreshNow();
  now_is_stale_ = true;  // a sleep follows, and a call may start before AfterSleep()
  const int64_t below = endpoint_->SleepLimitNs();
  table_.SettleDeadlines();
  const int64_t wake_ns = wheel_.NextWakeNs();
  if (wake_ns < 0) return below;
  const int64_t own = std::max<int64_t>(wake_ns - now_ns_, 0);
  return below < 0 ? own : std::min(below, own);
}

int ClientEngine::AfterSleep() {
  RefreshNow();
  const int fired = wheel_.Advance(now_ns_);
  if (fired > 0) endpoint_->Flush();
  return fired;
}

void ClientEngine::EndCallsOf(const void* owner) {
  const absl::Status why = ChannelClosed();
  const void* const outer = std::exchange(ending_, owner);
  for (const uint64_t id : table_.IdsOf(owner)) {
    // A callback may have ended the call.
    if (Call* call = table_.Find(id); call != nullptr) End(call, CallEvent::kCancel, why);
  }
  EndWatches(owner);
  ending_ = outer;
}

void ClientEngine::Close() {
  if (closed_) return;
  closed_ = true;
  for (auto* list : {&connections_, &leaving_}) {
    for (const auto& connection : *list) {
      Move(connection.get(), ConnectionEvent::kClose);
      wheel_.Cancel(&connection->backoff);
      ForgetHealth(connection.get());
    }
  }
  by_peer_.clear();
  last_error_ = ChannelClosed();
  if (endpoint_ != nullptr) endpoint_->Close();
  const auto all = [](const Call&) { return true; };
  counters_.calls_failed += table_.EndAll(CallState::kSent, CallEvent::kCancel, last_error_, all);
  counters_.calls_failed +=
      table_.EndAll(CallState::kWaiting, CallEvent::kCancel, last_error_, all);
  counters_.calls_failed +=
      table_.EndAll(CallState::kPausing, CallEvent::kCancel, last_error_, all);
  EndWatches(nullptr);
}

}  // namespace sluice::call
