// SPDX-License-Identifier: Apache-2.0
//
// Over 400 lines: a sixth of them the texts of errors, which stand next to what they need to know.
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

// A connection that held this long was a good one: the next loss starts the back-off from its
// beginning.
constexpr int64_t kStableNs = 1'000'000'000;
constexpr uint32_t kMaxBackoffDoublings = 20;

size_t PayloadBytes(const CallSpec& spec) {
  const size_t message = spec.method->client_streams() ? 0 : spec.request->ByteSizeLong();
  return message + frame::MetadataBytes(spec.metadata.size());
}

bool IsUnknownMethod(const absl::Status& status) {
  const auto detail = base::DetailOf(status);
  return detail.has_value() && detail->layer() == "call" && detail->operation() == kDispatch;
}

// Why, without the rest of its sentence: it becomes part of another one.
std::string CauseOf(const absl::Status& status) {
  const auto detail = base::DetailOf(status);
  if (detail.has_value() && !detail->cause().empty()) return detail->cause();
  return std::string(status.message());
}

}  // namespace

ClientEngine::ClientEngine(const ClientEngineOptions& options, base::Clock* clock,
                           base::Random* random)
    : options_(options),
      server_(absl::StrCat(options.host, ":", options.port)),
      clock_(clock),
      random_(random),
      wheel_(clock->NowNs()),
      table_(options.max_outstanding_calls, &wheel_, &ClientEngine::OnDeadline, this),
      backoff_timer_(&ClientEngine::OnBackoffOver, this),
      limit_bytes_(options.max_message_bytes) {
  RefreshNow();
}

ClientEngine::~ClientEngine() { wheel_.Cancel(&backoff_timer_); }

void ClientEngine::RefreshNow() {
  now_ns_ = clock_->NowNs();
  now_is_stale_ = false;
}

void ClientEngine::Move(ConnectionEvent event) {
  [[maybe_unused]] const bool legal = NextConnectionState(state_, event, &state_);
  assert(legal);
}

// ---- Connection

void ClientEngine::Dial() {
  dial_wanted_ = false;
  if (state_ != ConnectionState::kIdle && state_ != ConnectionState::kBackoff) return;
  RefreshNow();
  wheel_.Cancel(&backoff_timer_);
  Move(ConnectionEvent::kDial);
  const auto peer =
      endpoint_->Connect(options_.host, options_.port, now_ns_ + options_.connect_timeout_ns);
  if (peer.ok()) {
    peer_ = *peer;
  } else {
    Lose(peer.status(), absl::StatusCode::kUnavailable);
  }
}

void ClientEngine::OnPeerUp(endpoint::PeerId peer, const endpoint::PeerInfo& info) {
  if (!(peer == peer_) || state_ != ConnectionState::kConnecting) return;
  Move(ConnectionEvent::kPeerUp);
  if (now_is_stale_) RefreshNow();
  limit_bytes_ =
      std::max(frame::kHeaderBytes, std::min(options_.max_message_bytes, info.max_message_bytes));
  up_since_ns_ = now_ns_;
  ++counters_.connections;
  SendWaiting();
}

void ClientEngine::OnPeerDown(endpoint::PeerId peer, const absl::Status& why) {
  if (!(peer == peer_)) return;  // one that Break() gave up
  Lose(why, absl::StatusCode::kUnavailable);
}

void ClientEngine::Lose(const absl::Status& why, absl::StatusCode sent_code) {
  if (state_ == ConnectionState::kClosed) return;
  if (now_is_stale_) RefreshNow();
  peer_ = endpoint::PeerId();
  cancels_owed_.clear();
  blocked_.clear();
  if (state_ == ConnectionState::kUp || state_ == ConnectionState::kDraining) {
    ++counters_.connections_lost;
    if (now_ns_ - up_since_ns_ >= kStableNs) failed_attempts_ = 0;
  }
  last_error_ = why;
  if (++failed_attempts_ > options_.max_reconnect_attempts) {
    Move(ConnectionEvent::kGiveUp);
    failed_attempts_ = 0;
  } else {
    Move(ConnectionEvent::kLost);
    const uint32_t doublings = std::min(failed_attempts_ - 1, kMaxBackoffDoublings);
    const int64_t wait = std::min(options_.backoff_max_ns, options_.backoff_min_ns << doublings);
    // Between 3/4 and 5/4 of it, so that the clients of a server that died do not come back in one
    // wave.
    const int64_t jittered =
        wait - wait / 4 + static_cast<int64_t>(random_->Below(static_cast<uint64_t>(wait / 2) + 1));
    wheel_.Schedule(&backoff_timer_, now_ns_ + jittered);
  }

  if (table_.active() == 0) return;
  counters_.calls_failed += table_.EndAll(
      CallState::kSent, CallEvent::kPeerDown,
      base::Error(sent_code, "connection lost while the call was under way",
                  {.layer = "call",
                   .peer = server_,
                   .operation = "call",
                   .cause = CauseOf(why),
                   .remedy = "the call may have run; repeat it only if that does no harm"}),
      [](const Call&) { return true; });
  counters_.calls_failed +=
      table_.EndAll(CallState::kWaiting, CallEvent::kFail, NotConnected("call"),
                    [](const Call& call) { return !call.spec.wait_for_ready; });
  // Those that were told to wait must not wait for an attempt that nobody makes.
  if (state_ == ConnectionState::kIdle && table_.waiting() > 0) {
    wheel_.Schedule(&backoff_timer_, now_ns_ + options_.backoff_max_ns);
  }
}

void ClientEngine::OnDrain() {
  if (state_ != ConnectionState::kUp) return;
  Move(ConnectionEvent::kDrain);
  counters_.calls_failed +=
      table_.EndAll(CallState::kWaiting, CallEvent::kFail, Draining("call"),
                    [](const Call& call) { return !call.spec.wait_for_ready; });
}

void ClientEngine::OnBackoffOver(base::Timer*, void* context) {
  static_cast<ClientEngine*>(context)->Dial();
}

void ClientEngine::Break(std::string_view what, std::string_view explanation) {
  ++counters_.protocol_errors;
  const endpoint::PeerId peer = peer_;
  const absl::Status why = base::Error(
      absl::StatusCode::kInternal, absl::StrCat(std::string(what), " from the server"),
      {.layer = "call",
       .peer = server_,
       .operation = "receive",
       .cause = explanation,
       .remedy = "check that both sides run releases of Sluice that understand each other"});
  Lose(why, absl::StatusCode::kInternal);
  endpoint_->Disconnect(peer);
}

// ---- Starting and sending

absl::Status ClientEngine::Start(const CallSpec& spec, uint64_t* call_id) {
  if (now_is_stale_) RefreshNow();
  int64_t deadline_ns = spec.deadline_ns;
  if (spec.timeout_ns < kNoDeadlineNs - now_ns_) {
    deadline_ns = std::min(deadline_ns, now_ns_ + spec.timeout_ns);
  }
  if (deadline_ns <= now_ns_) return DeadlineExceeded(spec, CallState::kFree);
  const size_t largest = limit_bytes_ - frame::kHeaderBytes;

  // The way of nearly all calls: connected, nobody waiting in front.
  if (state_ == ConnectionState::kUp && table_.waiting() == 0 &&
      table_.active() < table_.capacity()) {
    uint32_t payload_bytes = 0;
    const auto buffer = ReserveFor(spec, &payload_bytes);
    if (buffer.ok()) {
      Call* call = table_.StartSent(spec, deadline_ns);
      Number(*call, call_id);
      Send(call, *buffer, payload_bytes);
      return absl::OkStatus();
    }
    if (absl::IsInvalidArgument(buffer.status())) return buffer.status();
  } else if (const size_t size = PayloadBytes(spec); size > largest) {
    return TooLarge(spec, size);
  }

  if (state_ == ConnectionState::kClosed ||
      (state_ == ConnectionState::kBackoff && !spec.wait_for_ready)) {
    return NotConnected(spec.method->full_name);
  }
  if (state_ == ConnectionState::kDraining && !spec.wait_for_ready) {
    return Draining(spec.method->full_name);
  }
  Call* call = table_.Start(spec, deadline_ns);
  if (call == nullptr) {
    return base::Error(
        absl::StatusCode::kResourceExhausted, absl::StrCat(spec.method->full_name, " not started"),
        {.layer = "call",
         .peer = server_,
         .operation = spec.method->full_name,
         .cause = absl::StrCat("all ", table_.capacity(), " places for calls are taken"),
         .remedy = "wait for calls to end, or raise max_outstanding_calls",
         .retry_safe = true});
  }
  Number(*call, call_id);
  // A failure of this attempt is heard of in Poll(), not here: callbacks run there only.
  if (state_ == ConnectionState::kIdle) dial_wanted_ = true;
  return absl::OkStatus();
}

void ClientEngine::Number(const Call& call, uint64_t* call_id) {
  ++counters_.calls_started;
  const uint64_t id = CallTable::WireId(call);
  if (call_id != nullptr) *call_id = id;
  if (call.spec.stream != nullptr) call.spec.stream->call_id = id;
  CallControl* const control = call.spec.control;
  if (control == nullptr) return;
  control->call_id.store(id, std::memory_order_seq_cst);
  if (control->cancelled.load(std::memory_order_seq_cst)) cancel_soon_.push_back(id);
}

absl::StatusOr<endpoint::SendBuffer> ClientEngine::ReserveFor(const CallSpec& spec,
                                                              uint32_t* payload_bytes) {
  const size_t size = PayloadBytes(spec);
  if (size > limit_bytes_ - frame::kHeaderBytes) return TooLarge(spec, size);
  *payload_bytes = static_cast<uint32_t>(size);
  return sessions_.Reserve(peer_, *payload_bytes);
}

// `payload_bytes` is from ReserveFor(), just now: the request has its sizes cached.
void ClientEngine::Send(Call* call, endpoint::SendBuffer buffer, uint32_t payload_bytes) {
  frame::Header header;
  header.kind = frame::Kind::kRequest;
  header.call_id = CallTable::WireId(*call);
  header.method_id = call->spec.method->id;
  if (call->deadline_ns != kNoDeadlineNs) {
    header.timeout_ns =
        std::min(static_cast<uint64_t>(std::max<int64_t>(call->deadline_ns - now_ns_, 1)),
                 frame::kMaxTimeoutNs);
  }
  header.payload_bytes = payload_bytes;
  header.flags = static_cast<uint16_t>(call->spec.method->streams);
  std::byte* const message = frame::PutMetadata(call->spec.metadata, header, buffer.data);
  if (!call->spec.method->client_streams()) {
    call->spec.request->SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(message));
  }
  sessions_.Commit(peer_, buffer, header);
}

void ClientEngine::SendWaiting() {
  while (state_ == ConnectionState::kUp) {
    Call* call = table_.FirstWaiting();
    if (call == nullptr) return;
    uint32_t payload_bytes = 0;
    const auto buffer = ReserveFor(call->spec, &payload_bytes);
    if (buffer.ok()) {
      table_.MarkSent(call);
      Send(call, *buffer, payload_bytes);
      ClientStream* const stream = call->spec.stream;
      if (stream != nullptr && (stream->wants_to_write || stream->end_owed)) Block(stream);
    } else if (absl::IsInvalidArgument(buffer.status())) {
      End(call, CallEvent::kFail, buffer.status());
    } else {
      return;  // OnWritable() or OnPeerDown() follows
    }
  }
}

void ClientEngine::OnWritable(endpoint::PeerId peer) {
  if (!(peer == peer_)) return;
  SendOwed();
  SendWaiting();
}

// ---- Receiving and ending

void ClientEngine::OnMessage(endpoint::PeerId peer, const frame::Header& header,
                             std::span<const std::byte> payload) {
  if (!(peer == peer_)) return;
  if (header.kind == frame::Kind::kReply) return Deliver(header, payload);
  if (header.kind == frame::Kind::kStreamData || header.kind == frame::Kind::kStreamWindow) {
    return OnStream(header, payload);
  }
  if (header.kind == frame::Kind::kDrain) return OnDrain();
  Break("unexpected message", "only replies and messages of streams go this way");
}

void ClientEngine::OnProtocolError(endpoint::PeerId peer, std::string_view what,
                                   std::string_view explanation) {
  if (peer == peer_) Break(what, explanation);
}

void ClientEngine::Deliver(const frame::Header& header, std::span<const std::byte> payload) {
  Call* call = table_.FindSent(header.call_id);
  if (call == nullptr) {
    ++counters_.late_replies;
    return;
  }
  const frame::Parts parts = frame::Split(header, payload);
  if (!parts.metadata.empty() && call->spec.reply_metadata != nullptr) {
    call->spec.reply_metadata->assign(reinterpret_cast<const char*>(parts.metadata.data()),
                                      parts.metadata.size());
  }
  payload = parts.message;
  if (header.status_code != 0) {
    absl::Status status = frame::DecodeStatus(header.status_code, payload);
    // The server knows the number only.
    if (absl::IsUnimplemented(status) && IsUnknownMethod(status)) {
      status = base::Prefix(status, absl::StrCat("unknown method ", call->spec.method->full_name,
                                                 " (peer ", server_, ")"));
    }
    return End(call, CallEvent::kReply, status);
  }
  const bool has_message = !call->spec.method->server_streams();
  if (has_message &&
      !call->spec.reply->ParseFromArray(payload.data(), static_cast<int>(payload.size()))) {
    return End(
        call, CallEvent::kReply,
        base::Error(absl::StatusCode::kInternal,
                    absl::StrCat("reply of ", call->spec.method->full_name, " can't be parsed"),
                    {.layer = "call",
                     .peer = server_,
                     .operation = call->spec.method->full_name,
                     .cause = absl::StrCat(payload.size(), " bytes are not a ",
                                           call->spec.reply->GetTypeName()),
                     .remedy = "build client and server from the same .proto"}));
  }
  End(call, CallEvent::kReply, absl::OkStatus());
}

void ClientEngine::End(Call* call, CallEvent event, const absl::Status& status) {
  ++(status.ok() ? counters_.calls_ok : counters_.calls_failed);
  // Who waits no longer says so; a deadline the server knows itself.
  if (event == CallEvent::kCancel && call->state == CallState::kSent) {
    const uint64_t id = CallTable::WireId(*call);
    if (!SendControl(frame::Kind::kCancel, id, 0)) cancels_owed_.push_back(id);
  }
  table_.End(call, event, status);
}

void ClientEngine::OnDeadline(void* owner, Call* call) {
  auto* engine = static_cast<ClientEngine*>(owner);
  engine->End(call, CallEvent::kDeadline, engine->DeadlineExceeded(call->spec, call->state));
}

bool ClientEngine::Cancel(uint64_t call_id) {
  Call* call = table_.Find(call_id);
  if (call == nullptr) return false;
  End(call, CallEvent::kCancel,
      base::Error(absl::StatusCode::kCancelled,
                  absl::StrCat(call->spec.method->full_name, " cancelled"),
                  {.layer = "call",
                   .peer = server_,
                   .operation = call->spec.method->full_name,
                   .cause = "the caller asked for it",
                   .retry_safe = call->state == CallState::kWaiting}));
  return true;
}

// ---- Driving

int ClientEngine::Poll() {
  now_is_stale_ = true;
  if (dial_wanted_) Dial();
  if (!cancel_soon_.empty()) {
    const std::vector<uint64_t> ids = std::exchange(cancel_soon_, {});
    for (const uint64_t id : ids) Cancel(id);
  }
  const int done = endpoint_->Poll();
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
  const int64_t below = endpoint_->SleepLimitNs();
  const int64_t wake_ns = wheel_.NextWakeNs();
  if (wake_ns < 0) return below;
  const int64_t own = std::max<int64_t>(wake_ns - now_ns_, 0);
  return below < 0 ? own : std::min(below, own);
}

void ClientEngine::AfterSleep() {
  RefreshNow();
  if (wheel_.Advance(now_ns_) > 0) endpoint_->Flush();
}

void ClientEngine::Close() {
  if (state_ == ConnectionState::kClosed) return;
  Move(ConnectionEvent::kClose);
  peer_ = endpoint::PeerId();
  wheel_.Cancel(&backoff_timer_);
  last_error_ = base::Error(absl::StatusCode::kCancelled, "channel closed",
                            {.layer = "call", .peer = server_, .operation = "close"});
  if (endpoint_ != nullptr) endpoint_->Close();
  const auto all = [](const Call&) { return true; };
  counters_.calls_failed += table_.EndAll(CallState::kSent, CallEvent::kCancel, last_error_, all);
  counters_.calls_failed +=
      table_.EndAll(CallState::kWaiting, CallEvent::kCancel, last_error_, all);
}

// ---- Errors

absl::Status ClientEngine::TooLarge(const CallSpec& spec, uint64_t payload_bytes) const {
  return base::Error(absl::StatusCode::kInvalidArgument,
                     absl::StrCat("request of ", spec.method->full_name, " too large"),
                     {.layer = "call",
                      .peer = server_,
                      .operation = spec.method->full_name,
                      .cause = absl::StrCat("it takes ", payload_bytes, " bytes, the limit is ",
                                            limit_bytes_ - frame::kHeaderBytes),
                      .remedy = "send less, or raise max_message_bytes on both sides",
                      .retry_safe = true});
}

absl::Status ClientEngine::NotConnected(std::string_view operation) const {
  return base::Error(absl::StatusCode::kUnavailable, "not connected",
                     {.layer = "call",
                      .peer = server_,
                      .operation = operation,
                      .cause = CauseOf(last_error_),
                      .remedy = "it is tried again by itself; set wait_for_ready to wait for that",
                      .retry_safe = true});
}

absl::Status ClientEngine::Draining(std::string_view operation) const {
  return base::Error(absl::StatusCode::kUnavailable, "server is draining",
                     {.layer = "call",
                      .peer = server_,
                      .operation = operation,
                      .cause = "it ends, and takes no new calls",
                      .remedy = "call another server; set wait_for_ready to wait for its successor",
                      .retry_safe = true});
}

absl::Status ClientEngine::DeadlineExceeded(const CallSpec& spec, CallState state) const {
  std::string cause = "the reply did not come in time";
  if (state == CallState::kFree) cause = "the deadline had passed when the call was started";
  if (state == CallState::kWaiting) {
    cause = state_ == ConnectionState::kUp
                ? "the server gave no credit to send it in time"
                : absl::StrCat("there was no connection (", Name(state_), ")");
  }
  return base::Error(absl::StatusCode::kDeadlineExceeded,
                     absl::StrCat("deadline of ", spec.method->full_name, " exceeded"),
                     {.layer = "call",
                      .peer = server_,
                      .operation = spec.method->full_name,
                      .cause = cause,
                      .remedy = "give it more time, or look for what keeps the server busy",
                      .retry_safe = state != CallState::kSent});
}

}  // namespace sluice::call
