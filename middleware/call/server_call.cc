// SPDX-License-Identifier: Apache-2.0
#include "middleware/call/server_call.h"

#include <cassert>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "middleware/call/message_bytes.h"
#include "middleware/call/server_engine.h"
#include "transport/base/error.h"

namespace sluice::call {

ServerCall::ServerCall(ServerEngine* engine, const MethodHandler* handler)
    : engine_(engine),
      handler_(handler),
      request_(handler->request->New()),
      reply_(handler->reply->New()),
      stream_(handler->method->streams == Streams::kNobody ? nullptr
                                                           : std::make_unique<StreamEnd>()) {
  timer_.fire = &ServerEngine::OnCallDeadline;
  timer_.context = this;
}

ReadResult ServerCall::Read(google::protobuf::MessageLite* message) {
  if (cancelled_) return ReadResult::kEnd;
  const ReadResult result = stream_->Read(message);
  wants_to_read_ = result == ReadResult::kNothing;
  if (stream_->WindowIsDue()) engine_->SayWindow(this);
  return result;
}

absl::Status ServerCall::Write(const google::protobuf::MessageLite& message) {
  return engine_->Write(this, message);
}

absl::Status ServerCall::SendInitialMetadata(std::string_view metadata) {
  return engine_->SendInitialMetadata(this, metadata);
}

void ServerCall::Finish(const absl::Status& status) { engine_->Finish(this, status); }

void ServerCall::Refuse(const absl::Status& status) {
  not_run_ = true;
  engine_->Finish(this, status);
}

void ServerCall::Post(base::MailNode* node) { engine_->Post(node); }
void ServerCall::Withdraw(base::MailNode* node) { engine_->Withdraw(node); }
bool ServerCall::PolledElsewhere() const { return engine_->PolledElsewhere(); }

void ServerCall::StartTimer(base::Timer* timer, int64_t after_ns) {
  engine_->wheel_.Schedule(timer, engine_->clock_->NowNs() + after_ns);
}

void ServerCall::StopTimer(base::Timer* timer) { engine_->wheel_.Cancel(timer); }

// ---- The engine's part

void ServerEngine::StartCall(endpoint::PeerId id, Peer* peer, const frame::Header& request,
                             Entry* entry, const Incoming& incoming,
                             std::span<const std::byte> message) {
  if (under_way_.size() >= options_.max_concurrent_calls) {
    ++counters_.refused;
    const absl::Status why = base::Error(
        absl::StatusCode::kResourceExhausted, absl::StrCat(incoming.method->full_name, " refused"),
        {.layer = "call",
         .operation = incoming.method->full_name,
         .cause = absl::StrCat("the server has ", under_way_.size(),
                               " calls in flight, the limit is ", options_.max_concurrent_calls),
         .remedy = "retry later, call less often, or raise max_concurrent_calls",
         .retry_safe = true});
    overload_.Refused(now_ns_, why, &log_);
    return RefuseLetIn(id, peer, request.call_id, entry->stats, incoming, why);
  }
  const bool twice = peer->calls.contains(request.call_id);
  if (twice || request.flow_window > StreamEnd::kWindow + StreamEnd::kMaxGrant) {
    const absl::Status why = absl::InvalidArgumentError(twice ? "the number of a call is used twice"
                                                              : "invalid window of a stream");
    entry->stats->CountError(why.code());
    if (options_.gate != nullptr) EndAtGate(incoming, why);
    return OnProtocolError(id, "malformed message", std::string(why.message()));
  }
  std::unique_ptr<ServerCall> made;
  if (entry->free.empty()) {
    made = std::make_unique<ServerCall>(this, &entry->handler);
  } else {
    made = std::move(entry->free.back());
    entry->free.pop_back();
  }
  if (incoming.method->client_streams()) {
    made->request_->Clear();
  } else if (!incoming.method->request_codec->read(message, made->request_.get())) {
    const absl::Status malformed = Malformed(*incoming.method, message.size(), *made->request_);
    entry->free.push_back(std::move(made));
    return RefuseLetIn(id, peer, request.call_id, entry->stats, incoming, malformed);
  }
  ServerCall* call = made.release();
  call->reply_->Clear();
  call->peer_address_ = *incoming.peer;
  call->tenant_ = *incoming.tenant;
  call->metadata_.assign(incoming.metadata);
  if (!incoming.attachment.empty())
    call->attachment_ = Keep(incoming.attachment, message.size(), &sessions_);
  call->reply_beside_.Clear();
  call->incoming_ = incoming;
  call->incoming_.peer = &call->peer_address_;
  call->incoming_.tenant = &call->tenant_;
  call->incoming_.metadata = call->metadata_;
  call->incoming_.attachment = call->attachment_.bytes();
  call->incoming_.reply = &call->reply_beside_;
  call->peer_ = id;
  call->call_id_ = request.call_id;
  call->serial_ = next_serial_++;
  call->stats_ = entry->stats;
  call->observer_ = nullptr;
  call->cancelled_ = call->wants_to_read_ = call->wants_to_write_ = call->blocked_ =
      call->not_run_ = call->opened_ = false;
  call->why_cancelled_ = absl::OkStatus();
  if (call->stream_ != nullptr) {
    call->stream_->Reset();
    if (incoming.method->client_streams()) {
      call->stream_->SetWindow(options_.stream_window);
    } else {
      call->stream_->SetEnd();
    }
    if (request.flow_window != 0) call->stream_->Grant(request.flow_window);
  }
  if (incoming.deadline_ns != kNoDeadlineNs) wheel_.Schedule(&call->timer_, incoming.deadline_ns);
  peer->calls.emplace(request.call_id, call);
  under_way_.insert(call);
  counters_.calls_under_way = under_way_.size();
  ++counters_.requests;
  if (call->stream_ != nullptr && !call->stream_->end() && call->stream_->FirstWindowIsDue()) {
    SayWindow(call);
  }
  entry->handler.start(call);
}

void ServerEngine::OnStream(endpoint::PeerId id, Peer* peer, const frame::Header& header,
                            std::span<const std::byte> payload) {
  const auto found = peer->calls.find(header.call_id);
  if (found == peer->calls.end()) return;  // answered meanwhile
  ServerCall* call = found->second;
  if (header.kind == frame::Kind::kCancel) {
    return CancelCall(call,
                      base::Error(absl::StatusCode::kCancelled,
                                  absl::StrCat(call->incoming_.method->full_name, " cancelled"),
                                  {.layer = "call",
                                   .peer = peer->address,
                                   .operation = call->incoming_.method->full_name,
                                   .cause = "the caller cancelled the call"}));
  }
  StreamEnd* stream = call->stream_.get();
  const bool of_the_client =
      header.kind == frame::Kind::kStreamData || header.kind == frame::Kind::kStreamEnd;
  if (stream == nullptr || (of_the_client && stream->end())) {
    return OnProtocolError(id, "malformed message",
                           "a stream message without a stream, or after its end");
  }
  if (header.kind != frame::Kind::kStreamEnd && !stream->Grant(header.flow_window)) {
    return OnProtocolError(id, "malformed message", "invalid window of a stream");
  }
  if (header.kind == frame::Kind::kStreamData && !stream->Receive(payload)) {
    return OnProtocolError(id, "malformed message", "more messages of a stream than its window");
  }
  if (header.kind == frame::Kind::kStreamData) call->stats_->CountStreamReceived();
  if (header.kind == frame::Kind::kStreamEnd) stream->SetEnd();
  const uint64_t serial = call->serial_;
  if (of_the_client && call->wants_to_read_) {
    call->wants_to_read_ = false;
    if (call->observer_ != nullptr) call->observer_->OnReadable();
  }
  if (call->serial_ == serial && call->wants_to_write_ && stream->HasRoom(1)) WriterMayGoOn(call);
}

void ServerEngine::WriterMayGoOn(ServerCall* call) {
  call->wants_to_write_ = false;
  if (call->observer_ != nullptr) call->observer_->OnWritable();
}

void ServerEngine::CancelCall(ServerCall* call, const absl::Status& why) {
  if (call->cancelled_) return;
  ++counters_.cancelled;
  call->cancelled_ = true;
  call->why_cancelled_ = why;
  wheel_.Cancel(&call->timer_);
  if (call->observer_ != nullptr) call->observer_->OnCancelled();
}

void ServerEngine::CancelAll(Peer* peer, const absl::Status& why) {
  std::vector<std::pair<ServerCall*, uint64_t>> calls;
  for (const auto& [number, call] : peer->calls) calls.emplace_back(call, call->serial_);
  for (const auto& [call, serial] : calls) {
    // An observer may have finished this call, and the object may already serve another call.
    if (call->serial_ == serial) CancelCall(call, why);
  }
}

void ServerEngine::OnCallDeadline(base::Timer*, void* context) {
  auto* call = static_cast<ServerCall*>(context);
  const bool unread = call->wants_to_write_ && !call->stream_->HasRoom(1);
  call->engine_->CancelCall(
      call,
      base::Error(absl::StatusCode::kDeadlineExceeded,
                  absl::StrCat("deadline of ", call->incoming_.method->full_name, " exceeded"),
                  {.layer = "call",  // no peer: the client adds its address of the server
                   .operation = call->incoming_.method->full_name,
                   .cause = unread ? "the caller does not read the stream, whose window is full"
                                   : "the handler took longer than the deadline of its caller",
                   .remedy = unread ? "let the caller read while it writes"
                                    : "allow more time, or find out what delays the server"}));
}

void ServerEngine::SayWindow(ServerCall* call) {
  Peer* peer = Find(call->peer_);
  if (peer == nullptr) return;
  const Outgoing outgoing = Reserve(call->peer_, peer, 0);
  if (outgoing.data == nullptr) return;
  frame::Header header;
  header.kind = frame::Kind::kStreamWindow;
  header.call_id = call->call_id_;
  header.flow_window = call->stream_->SayWindow();
  Commit(call->peer_, outgoing, header);
}

absl::Status ServerEngine::SendInitialMetadata(ServerCall* call, std::string_view metadata) {
  if (call->cancelled_) return call->why_cancelled_;
  if (call->opened_) {
    return base::Error(
        absl::StatusCode::kFailedPrecondition,
        absl::StrCat("initial metadata of ", call->incoming_.method->full_name, " not sent"),
        {.layer = "call",
         .operation = call->incoming_.method->full_name,
         .cause = "initial metadata or a message has been sent before",
         .remedy = "send it once, before the first message; AddReplyMetadata() adds metadata to "
                   "the end of the call"});
  }
  Peer* peer = Find(call->peer_);
  if (peer == nullptr) return absl::CancelledError("the caller disconnected");
  const uint32_t size = frame::MetadataBytes(metadata.size());
  const uint32_t limit = peer->limit_bytes - frame::kHeaderBytes;
  if (size > limit) {
    return base::Error(
        absl::StatusCode::kResourceExhausted,
        absl::StrCat("initial metadata of ", call->incoming_.method->full_name, " too large"),
        {.layer = "call",
         .operation = call->incoming_.method->full_name,
         .cause = absl::StrCat("it takes ", size, " bytes, the limit is ", limit),
         .remedy = "send less, or raise max_message_bytes on both sides"});
  }
  const Outgoing outgoing = Reserve(call->peer_, peer, size);
  if (outgoing.data == nullptr) return absl::CancelledError("the caller disconnected");
  frame::Header header;
  header.kind = frame::Kind::kStreamMetadata;
  header.call_id = call->call_id_;
  header.payload_bytes = size;
  frame::PutMetadata(metadata, header, outgoing.data);
  Commit(call->peer_, outgoing, header);
  call->opened_ = true;
  return absl::OkStatus();
}

absl::Status ServerEngine::Write(ServerCall* call, const google::protobuf::MessageLite& message) {
  if (call->cancelled_) return call->why_cancelled_;
  Peer* peer = Find(call->peer_);
  if (peer == nullptr) return absl::CancelledError("the caller disconnected");
  const size_t bytes = message.ByteSizeLong();
  if (bytes > peer->largest_bytes) {
    return base::Error(
        absl::StatusCode::kInvalidArgument,
        absl::StrCat("message of ", call->incoming_.method->full_name, " too large"),
        {.layer = "call",
         .operation = call->incoming_.method->full_name,
         .cause = absl::StrCat("it takes ", bytes, " bytes, the limit is ", peer->largest_bytes),
         .remedy = "send smaller messages, or raise max_large_message_bytes on both sides"});
  }
  absl::Status later = absl::ResourceExhaustedError("no room in the stream's window, or no credit");
  if (!call->stream_->HasRoom(bytes)) {
    call->wants_to_write_ = true;  // a window follows
    return later;
  }
  absl::StatusOr<endpoint::SendBuffer> buffer = later;
  if (peer->backlog.empty()) {
    buffer = sessions_.Reserve(call->peer_, static_cast<uint32_t>(bytes));
    if (!buffer.ok() && !absl::IsResourceExhausted(buffer.status())) return buffer.status();
  }
  if (!buffer.ok()) {
    call->wants_to_write_ = true;
    if (!std::exchange(call->blocked_, true)) peer->blocked.push_back(call);
    return later;
  }
  frame::Header header;
  header.kind = frame::Kind::kStreamData;
  header.call_id = call->call_id_;
  header.flow_window = call->stream_->SayWindow();
  header.payload_bytes = static_cast<uint32_t>(bytes);
  WriteMessage(message, bytes, buffer->data);
  sessions_.Commit(call->peer_, *buffer, header);
  call->stream_->CountSent(bytes);
  call->opened_ = true;
  call->stats_->CountStreamSent();
  return absl::OkStatus();
}

void ServerEngine::Finish(ServerCall* call, const absl::Status& status) {
  assert(call->serial_ != 0);
  wheel_.Cancel(&call->timer_);
  RefreshNow();
  // The caller's clock may be a little behind. So the caller gets the reason of the cancellation, not the handler's error. A late reply is
  // complete. A cancelled stream is not complete, even if the handler returns OK: it may not have noticed the cancellation.
  const bool whole = status.ok() && call->stream_ == nullptr;
  const absl::Status& answer = whole || call->why_cancelled_.ok() ? status : call->why_cancelled_;
  if (call->not_run_ && absl::IsResourceExhausted(answer)) {
    overload_.Refused(now_ns_, answer, &log_);
  }
  Peer* const peer = FindAny(call->peer_);
  if (peer != nullptr) {
    peer->used_ns = now_ns_;
    peer->calls.erase(call->call_id_);
    std::erase(peer->blocked, call);
  }
  absl::StatusCode code = absl::StatusCode::kCancelled;
  if (peer != nullptr && !peer->ending) {
    const Method& method = *call->incoming_.method;
    code = answer.code();
    if (answer.ok()) {
      ReplyOk(call->peer_, peer, call->call_id_, call->stats_,
              method.server_streams() ? nullptr : call->reply_.get(), call->reply_beside_);
    } else {
      ReplyError(call->peer_, peer, call->call_id_, call->stats_, answer,
                 call->reply_beside_.metadata, call->not_run_ ? frame::kFlagNotRun : uint16_t{0});
    }
  } else {
    ++counters_.replies_lost;
    call->stats_->CountError(code);
  }
  if (options_.gate != nullptr) EndAtGate(call->incoming_, answer);
  call->stats_->RecordLatency(now_ns_ - call->incoming_.received_ns, 1);
  CheckSlow(call->peer_, *call->stats_, call->incoming_.received_ns, code);
  under_way_.erase(call);
  counters_.calls_under_way = under_way_.size();
  call->serial_ = 0;
  call->observer_ = nullptr;
  call->reply_beside_.Clear();
  if (!call->attachment_.empty()) call->attachment_ = {};
  const auto entry = methods_.find(call->handler_->method->id);
  entry->second->free.emplace_back(call);
}

}  // namespace sluice::call
