// SPDX-License-Identifier: Apache-2.0
#include "middleware/call/server_engine.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "middleware/frame/status_payload.h"
#include "transport/base/error.h"

namespace sluice::call {
namespace {

// A reply without metadata and attachment. One object: to make one costs more than the rest of a plain reply's decisions.
const Beside& NothingBeside() {
  static const Beside* const nothing = new Beside;
  return *nothing;
}

}  // namespace

ServerEngine::Peer::Peer(const ServerEngineOptions& options, uint32_t the_generation,
                         const endpoint::PeerInfo& info)
    : generation(the_generation),
      address(info.address),
      tenant(info.tenant),
      // There is always room for an error reply.
      limit_bytes(std::max(frame::kHeaderBytes + frame::kMinStatusBytes,
                           std::min(options.max_message_bytes, info.max_message_bytes))),
      largest_bytes(session::Sessions::LargestPayload(
          {.max_message_bytes = limit_bytes, .max_large_bytes = info.max_large_bytes})),
      backlog(options.max_waiting_replies_per_peer, options.max_waiting_bytes_per_peer) {}

ServerEngine::ServerEngine(const ServerEngineOptions& options, base::Clock* clock,
                           base::LogSink* log)
    : options_(options),
      clock_(clock),
      log_("call", log, clock),
      exceptions_(log, clock),
      wheel_(clock->NowNs()),
      spans_(options.span_seed),
      sampler_(options.timed_every),
      traced_(options.timed_every),
      trace_(options.trace_records) {}

ServerEngine::~ServerEngine() { assert(under_way_.empty()); }

absl::Status ServerEngine::Register(MethodHandler handler) {
  const Method& method = *handler.method;
  auto owned = std::make_unique<Entry>();
  owned->handler = std::move(handler);
  owned->stats = stats_.Of(method.id, method.full_name);
  owned->plain = method.streams == Streams::kNobody && !owned->handler.start;
  owned->incoming.method = &method;
  owned->incoming.engine = this;
  owned->incoming.reply = &reply_beside_;
  const auto [at, inserted] = methods_.try_emplace(method.id, std::move(owned));
  if (inserted) return absl::OkStatus();
  return base::Error(
      absl::StatusCode::kAlreadyExists,
      absl::StrCat("method ", method.full_name, " not registered"),
      {.layer = "call",
       .operation = "register",
       .cause = absl::StrCat("it has the same number as ", at->second->handler.method->full_name,
                             ", which is registered"),
       .remedy = "register each service once; if the names differ, rename one method"});
}

void ServerEngine::ReadClock() {
  now_ns_ = clock_->NowNs();
  now_is_stale_ = false;
  if (overload_.going_on()) [[unlikely]]
    overload_.Look(now_ns_, &log_);
  if (ran_count_ != 0 && now_ns_ - ran_since_ns_ >= options_.slow_call_ns) SettleInline(0);
  ran_count_ = 0;
  ran_since_ns_ = now_ns_;
}

int ServerEngine::Poll() {
  const int done = Pass();
  if (!ending_.empty()) [[unlikely]]
    EndPeers();
  return done;
}

int ServerEngine::Pass() {
  now_is_stale_ = true;
  if (asleep_.load(std::memory_order_relaxed)) asleep_.store(false, std::memory_order_relaxed);
  int done = mail_.Run();
  if (done > 0) endpoint_->Flush();
  done += endpoint_->Poll();
  if (drain_.started()) StepDrain();
  if (ran_count_ > 0 && TimeIsDue()) TimeInline();
  quiet_passes_ = done == 0 ? quiet_passes_ + 1 : 0;
  // Only calls in flight have timers.
  if (under_way_.empty() || (done == 0 && ++idle_passes_ % kIdlePassesPerClockRead != 0))
    return done;
  RefreshNow();
  const int fired = wheel_.Advance(now_ns_);
  if (fired > 0) endpoint_->Flush();
  return done + fired;
}

// The polling thread may run the node at once, which may end the last call, while this thread still calls Wake(): see in_use().
void ServerEngine::Post(base::MailNode* node) {
  posting_.fetch_add(1, std::memory_order_relaxed);
  mail_.Post(node);
  if (asleep_.load(std::memory_order_seq_cst)) endpoint_->Wake();
  posting_.fetch_sub(1, std::memory_order_release);
}

bool ServerEngine::PrepareToSleep() {
  if (ran_count_ > 0) ReadClock();
  asleep_.store(true, std::memory_order_seq_cst);
  if (mail_.empty() && ending_.empty() && endpoint_->PrepareToSleep()) {
    idle_passes_ = kIdlePassesPerClockRead - 1;  // time has passed when Poll() is called next
    return true;
  }
  asleep_.store(false, std::memory_order_relaxed);
  return false;
}

int64_t ServerEngine::SleepLimitNs() {
  const int64_t below = endpoint_->SleepLimitNs();
  int64_t wake_ns = under_way_.empty() ? -1 : wheel_.NextWakeNs();
  if (drain_.started() && !drain_.over()) {
    wake_ns = wake_ns < 0 ? drain_.next_ns() : std::min(wake_ns, drain_.next_ns());
  }
  if (wake_ns < 0) return below;
  const int64_t own = std::max<int64_t>(wake_ns - clock_->NowNs(), 0);
  return below < 0 ? own : std::min(below, own);
}

void ServerEngine::Close() {
  if (closed_) return;
  closed_ = true;
  endpoint_->Close();
  peers_.clear();
  ending_.clear();
  waiting_replies_ = 0;
  untold_ = 0;
  CancelUnderWay(absl::CancelledError("the server is shut down"));
}

void ServerEngine::CancelUnderWay(const absl::Status& why) {
  // An observer may finish its own call, and other calls.
  const std::vector<ServerCall*> calls(under_way_.begin(), under_way_.end());
  for (ServerCall* call : calls) {
    if (under_way_.contains(call)) CancelCall(call, why);
  }
}

// ---- Peers

void ServerEngine::Drop(endpoint::PeerId id) {
  Peer* peer = FindAny(id);
  if (peer == nullptr) return;
  counters_.replies_lost += peer->backlog.size();
  waiting_replies_ -= peer->backlog.size();
  if (peer->untold) --untold_;
  ++counters_.peers_down;
  const std::unique_ptr<Peer> gone = std::move(peers_[id.index]);
  CancelAll(gone.get(), absl::CancelledError(absl::StrCat("caller ", gone->address, " is gone")));
}

void ServerEngine::OnPeerUp(endpoint::PeerId id, const endpoint::PeerInfo& info) {
  if (id.index >= peers_.size()) peers_.resize(id.index + 1);
  peers_[id.index] = std::make_unique<Peer>(options_, id.generation, info);
  ++counters_.peers_up;
  if (drain_.started()) TellDrain(id, peers_[id.index].get());
  RefreshNow();
  peers_[id.index]->used_ns = now_ns_;
  Trace(observe::TraceEvent::kPeerUp, id, 0, 0);
}

void ServerEngine::OnPeerDown(endpoint::PeerId id, const absl::Status& why) {
  RefreshNow();
  Trace(observe::TraceEvent::kPeerDown, id, 0, 0, why);
  if (const Peer* peer = Find(id); peer != nullptr) LogLoss(*peer, why);
  Drop(id);
}

// Logs a caller that disconnects as information, and a caller that failed or did not answer as a warning.
void ServerEngine::LogLoss(const Peer& peer, const absl::Status& why) {
  if (!log_.listens()) return;
  const auto detail = base::DetailOf(why);
  const bool given_up =
      detail.has_value() && (detail->syndrome() != 0 || detail->operation() == "keepalive");
  log_.Say(given_up ? base::Severity::kWarning : base::Severity::kInfo, "caller lost", peer.address,
           absl::StrCat("caller lost: ", why.message()));
}

void ServerEngine::VisitPeers(absl::FunctionRef<bool(const PeerView&)> visit) const {
  for (uint32_t index = 0; index < peers_.size(); ++index) {
    const Peer* peer = peers_[index].get();
    if (peer == nullptr || peer->ending) continue;
    if (!visit({{index, peer->generation},
                peer->address,
                peer->tenant,
                peer->calls.size(),
                peer->backlog.size(),
                peer->backlog.size_bytes()})) {
      return;
    }
  }
}

void ServerEngine::VisitCalls(absl::FunctionRef<bool(const Incoming&)> visit) const {
  for (const ServerCall* call : under_way_) {
    if (!visit(call->incoming())) return;
  }
}

void ServerEngine::Break(endpoint::PeerId id, std::string_view what, std::string_view explanation) {
  Peer* peer = Find(id);
  if (peer == nullptr) return;
  log_.Say(base::Severity::kWarning, "peer disconnected", peer->address,
           absl::StrCat("disconnecting ", peer->address, ": ", std::string(what), ": ",
                        std::string(explanation)));
  peer->ending = true;
  ending_.push_back(id);
}

// Handlers and observers run here; they may break further peers.
void ServerEngine::EndPeers() {
  while (!ending_.empty()) {
    const endpoint::PeerId id = ending_.back();
    ending_.pop_back();
    if (FindAny(id) == nullptr) continue;  // the endpoint reported it down meanwhile
    Drop(id);
    endpoint_->Disconnect(id);
  }
}

// ---- Requests

void ServerEngine::OnProtocolError(endpoint::PeerId id, std::string_view what,
                                   std::string_view explanation) {
  if (Find(id) == nullptr) return;
  ++counters_.protocol_errors;
  Break(id, what, explanation);
}

// Serialises a reply of success without metadata and attachment into its send buffer. ReplyOk() sends replies that are too large, those
// behind a backlog, and those for which there is no memory or credit now.
[[gnu::always_inline]] inline void ServerEngine::ReplyPlain(
    endpoint::PeerId id, Peer* peer, uint64_t call_id, observe::MethodStats* stats,
    const MessageCodec& codec, const google::protobuf::MessageLite& reply) {
  const size_t size = codec.size(reply);
  if (size > peer->limit_bytes - frame::kHeaderBytes || !peer->backlog.empty()) [[unlikely]] {
    return ReplyOk(id, peer, call_id, stats, &reply, NothingBeside());
  }
  const endpoint::Room room = sessions_.TryReserve(id, static_cast<uint32_t>(size));
  if (room.data == nullptr) [[unlikely]]
    return ReplyOk(id, peer, call_id, stats, &reply, NothingBeside());
  CountReply(id, call_id, stats, size);
  codec.write(reply, size, room.data + frame::kHeaderBytes);
  sessions_.CommitPlain(id, room,
                        {.kind = frame::Kind::kReply,
                         .payload_bytes = static_cast<uint32_t>(size),
                         .call_id = call_id});
  ++counters_.replies_ok;
}

[[gnu::always_inline]] inline absl::Status ServerEngine::RunInline(endpoint::PeerId id, Peer* peer,
                                                                   const frame::Header& request,
                                                                   Entry* entry,
                                                                   Incoming& incoming) {
  MethodHandler* const handler = &entry->handler;
  handler->reply->Clear();
  ++counters_.requests;
  absl::Status status = RunHandler(*handler, incoming);
  if (status.ok() && reply_beside_.empty()) [[likely]] {
    ReplyPlain(id, peer, request.call_id, entry->stats, *handler->method->reply_codec,
               *handler->reply);
    NoteInline(id, entry->stats, absl::StatusCode::kOk);
  } else {
    ReplyUnplain(id, peer, request.call_id, *entry, status);
    NoteInline(id, entry->stats, status.code());
  }
  return status;
}

// Sends an error, or a reply with metadata or an attachment.
void ServerEngine::ReplyUnplain(endpoint::PeerId id, Peer* peer, uint64_t call_id,
                                const Entry& entry, const absl::Status& status) {
  if (status.ok()) {
    ReplyOk(id, peer, call_id, entry.stats, entry.handler.reply.get(), reply_beside_);
  } else {
    ReplyError(id, peer, call_id, entry.stats, status, reply_beside_.metadata);
  }
  if (!reply_beside_.attachment.empty()) reply_beside_.attachment = {};  // others need the memory
  reply_beside_.Clear();
}

inline void ServerEngine::Run(endpoint::PeerId id, Peer* peer, const frame::Header& request,
                              std::span<const std::byte> payload) {
  Entry* const entry = drain_.started() ? nullptr : Lookup(request.method_id);
  if (entry == nullptr) [[unlikely]]
    return RefuseUnknown(id, peer, request);
  RefreshNow();
  peer->used_ns = now_ns_;
  entry->stats->CountStart();
  entry->stats->CountRequestBytes(payload.size());
  // Most requests have nothing beside their message, and are answered before their handler returns.
  if (!entry->plain || request.flags != 0 || options_.gate != nullptr) [[unlikely]]
    return RunOther(id, peer, request, entry, payload);
  Incoming& incoming = entry->incoming;
  incoming.peer = &peer->address;
  incoming.tenant = &peer->tenant;
  incoming.deadline_ns =
      request.timeout_ns == 0 ? kNoDeadlineNs : now_ns_ + static_cast<int64_t>(request.timeout_ns);
  incoming.received_ns = now_ns_;
  incoming.from = id;
  if (!entry->handler.method->request_codec->read(payload, entry->handler.request.get()))
      [[unlikely]] {
    return RefuseMalformed(id, peer, request, *entry, incoming, payload.size());
  }
  (void)RunInline(id, peer, request, entry, incoming);
}

void ServerEngine::RunOther(endpoint::PeerId id, Peer* peer, const frame::Header& request,
                            Entry* entry, std::span<const std::byte> payload) {
  MethodHandler* handler = &entry->handler;
  const auto streams = static_cast<uint16_t>(
      request.flags & (frame::kFlagClientStreams | frame::kFlagServerStreams));
  if (streams != static_cast<uint16_t>(handler->method->streams)) {
    return Refuse(id, peer, request.call_id, entry->stats, OtherShape(*handler->method));
  }
  const frame::Parts parts = frame::Split(request, payload);
  Incoming incoming{
      .method = handler->method,
      .peer = &peer->address,
      .tenant = &peer->tenant,
      .deadline_ns = kNoDeadlineNs,
      .received_ns = now_ns_,
      .metadata = {reinterpret_cast<const char*>(parts.metadata.data()), parts.metadata.size()},
      .attachment = parts.attachment,
      .engine = this,
      .from = id};
  if (!incoming.metadata.empty()) incoming.span = spans_.Next64();
  if (request.timeout_ns != 0)
    incoming.deadline_ns = now_ns_ + static_cast<int64_t>(request.timeout_ns);
  if (options_.gate != nullptr) {
    if (const absl::Status status = options_.gate->OnCall(incoming); !status.ok()) {
      ++counters_.refused_at_gate;
      return Refuse(id, peer, request.call_id, entry->stats, status);
    }
  }
  if (handler->start) {
    Trace(observe::TraceEvent::kRequest, id, request.call_id, request.method_id);
    return StartCall(id, peer, request, entry, incoming, parts.message);
  }
  if (!handler->method->request_codec->read(parts.message, handler->request.get())) {
    return RefuseMalformed(id, peer, request, *entry, incoming, parts.message.size());
  }
  incoming.reply = &reply_beside_;
  const absl::Status status = RunInline(id, peer, request, entry, incoming);
  if (options_.gate != nullptr) EndAtGate(incoming, status);
}

void ServerEngine::OnMessage(endpoint::PeerId id, const frame::Header& header,
                             std::span<const std::byte> payload) {
  Peer* peer = Find(id);
  if (peer == nullptr) return;  // disconnected by this side
  if (header.kind == frame::Kind::kRequest) return Run(id, peer, header, payload);
  if (header.kind == frame::Kind::kDrain) return OnDrainAnswer(id, peer, header);
  const bool of_a_call =
      header.kind >= frame::Kind::kCancel && header.kind <= frame::Kind::kStreamEnd;
  if (of_a_call) return OnStream(id, peer, header, payload);
  OnProtocolError(id, "malformed message",
                  "a client may send only requests and messages of its calls");
}

void ServerEngine::EndAtGate(const Incoming& incoming, const absl::Status& status) {
  options_.gate->OnEnd(incoming, status, clock_->NowNs());
}

// ---- Replies

void ServerEngine::ReplyOk(endpoint::PeerId id, Peer* peer, uint64_t call_id,
                           observe::MethodStats* stats, const google::protobuf::MessageLite* reply,
                           const Beside& beside) {
  const size_t message_bytes = reply == nullptr ? 0 : reply->ByteSizeLong();
  const size_t payload_bytes = message_bytes + frame::MetadataBytes(beside.metadata.size()) +
                               frame::AttachmentBytes(beside.attachment.size());
  if (payload_bytes > peer->largest_bytes) {
    return ReplyError(
        id, peer, call_id, stats,
        base::Error(
            absl::StatusCode::kResourceExhausted,
            absl::StrCat("reply of ", stats->name(), " too large"),
            {.layer = "call",
             .operation = stats->name(),
             .cause = absl::StrCat("it takes ", payload_bytes, " bytes, the limit is ",
                                   peer->largest_bytes),
             .remedy = "send a smaller reply, or raise max_large_message_bytes on both sides"}),
        {});
  }
  const auto size = static_cast<uint32_t>(payload_bytes);
  Outgoing outgoing;
  if (size <= peer->limit_bytes - frame::kHeaderBytes) {
    outgoing = Reserve(id, peer, size);
  } else {
    const auto large = ReserveLarge(
        id, peer, size,
        beside.attachment.PlaceOf(frame::MetadataBytes(beside.metadata.size()), message_bytes));
    if (!large.ok()) return ReplyError(id, peer, call_id, stats, large.status(), {});
    outgoing = *large;
  }
  ReplyInto(outgoing, id, call_id, stats, kAnyMessage, reply, message_bytes, size, beside);
}

void ServerEngine::ReplyInto(const Outgoing& outgoing, endpoint::PeerId id, uint64_t call_id,
                             observe::MethodStats* stats, const MessageCodec& codec,
                             const google::protobuf::MessageLite* reply, size_t message_bytes,
                             uint32_t size, const Beside& beside) {
  CountReply(id, call_id, stats, size);
  if (outgoing.data == nullptr) return;
  frame::Header header;
  header.kind = frame::Kind::kReply;
  header.call_id = call_id;
  header.payload_bytes = size;
  std::byte* message = frame::PutMetadata(beside.metadata, header, outgoing.data);
  message = frame::PutAttachment(beside.attachment.bytes(), header, message);
  if (message_bytes > 0) {
    codec.write(*reply, message_bytes, message);
  }
  Commit(id, outgoing, header);
  ++counters_.replies_ok;
}

void ServerEngine::ReplyError(endpoint::PeerId id, Peer* peer, uint64_t call_id,
                              observe::MethodStats* stats, const absl::Status& status,
                              std::string_view metadata, uint16_t flags) {
  const uint32_t limit = peer->limit_bytes - frame::kHeaderBytes;
  // The error has precedence: metadata that leaves too little room for it is omitted.
  if (frame::MetadataBytes(metadata.size()) > limit / 2) metadata = {};
  const uint32_t metadata_bytes = frame::MetadataBytes(metadata.size());
  const std::string payload = frame::EncodeStatus(status, limit - metadata_bytes);
  const auto size = static_cast<uint32_t>(payload.size()) + metadata_bytes;
  if (stats != nullptr) {
    stats->CountEnd(status);
    stats->CountReplyBytes(size);
  }
  Trace(observe::TraceEvent::kReply, id, call_id, stats == nullptr ? 0 : stats->id(), status);
  const Outgoing outgoing = Reserve(id, peer, size);
  if (outgoing.data == nullptr) return;
  frame::Header header;
  header.kind = frame::Kind::kReply;
  header.call_id = call_id;
  header.payload_bytes = size;
  header.flags = flags;
  // A code outside the canonical set is an error of the handler. The wire carries canonical codes only.
  const int code = static_cast<int>(status.code());
  header.status_code = static_cast<uint16_t>(code > 0 && code <= frame::kMaxStatusCode
                                                 ? code
                                                 : static_cast<int>(absl::StatusCode::kUnknown));
  std::memcpy(frame::PutMetadata(metadata, header, outgoing.data), payload.data(), payload.size());
  Commit(id, outgoing, header);
  ++counters_.replies_error;
}

ServerEngine::Outgoing ServerEngine::Reserve(endpoint::PeerId id, Peer* peer,
                                             uint32_t payload_bytes) {
  // No message may overtake the backlog.
  if (!peer->backlog.empty()) {
    return ReserveWaiting(id, peer, payload_bytes, absl::ResourceExhaustedError(""));
  }
  const auto buffer = sessions_.Reserve(id, payload_bytes);
  if (!buffer.ok()) return ReserveWaiting(id, peer, payload_bytes, buffer.status());
  Outgoing outgoing;
  outgoing.buffer = *buffer;
  outgoing.data = buffer->data;
  return outgoing;
}

ServerEngine::Outgoing ServerEngine::ReserveWaiting(endpoint::PeerId id, Peer* peer,
                                                    uint32_t payload_bytes,
                                                    const absl::Status& refusal) {
  Outgoing outgoing;
  if (!absl::IsResourceExhausted(refusal)) {
    ++counters_.replies_lost;  // OnPeerDown() follows
    return outgoing;
  }
  std::byte* const waiting =
      peer->ending ? nullptr : peer->backlog.Push(frame::kHeaderBytes + payload_bytes);
  if (waiting == nullptr) {
    ++counters_.replies_lost;
    if (peer->ending) return outgoing;
    ++counters_.overflows;
    Break(id, "it does not read its replies",
          absl::StrCat(peer->backlog.size(), " replies of ", peer->backlog.size_bytes(),
                       " bytes wait for its credit already"));
    return outgoing;
  }
  outgoing.data = waiting + frame::kHeaderBytes;
  outgoing.waits = true;
  ++waiting_replies_;
  ++counters_.replies_waited;
  return outgoing;
}

void ServerEngine::Commit(endpoint::PeerId id, const Outgoing& outgoing, frame::Header& header) {
  if (outgoing.waits && outgoing.buffer.large != session::kNotLarge) {
    // The backlog stores the header and the description of the buffer. The message is in lent memory.
    Peer* peer = Find(id);
    std::byte* const place =
        peer == nullptr ? nullptr
                        : peer->backlog.Push(frame::kHeaderBytes + sizeof(outgoing.buffer));
    if (place == nullptr) {
      ++counters_.replies_lost;
      sessions_.Cancel(id, outgoing.buffer);
      if (peer == nullptr) return;
      ++counters_.overflows;
      return Break(id, "it does not read its replies", "its backlog is full");
    }
    header.flags |= frame::kFlagLarge;
    frame::Encode(header, place);
    std::memcpy(place + frame::kHeaderBytes, &outgoing.buffer, sizeof(outgoing.buffer));
    ++waiting_replies_;
    ++counters_.replies_waited;
  } else if (outgoing.waits) {
    frame::Encode(header, outgoing.data - frame::kHeaderBytes);
  } else {
    sessions_.Commit(id, outgoing.buffer, header);
  }
}

void ServerEngine::OnWritable(endpoint::PeerId id) {
  Peer* peer = Find(id);
  while (peer != nullptr && !peer->ending && !peer->backlog.empty()) {
    const std::span<const std::byte> message = peer->backlog.Front();
    frame::Header header;
    std::memcpy(&header, message.data(), sizeof(header));
    if (header.flags & frame::kFlagLarge) {
      endpoint::SendBuffer lent;
      std::memcpy(&lent, message.data() + frame::kHeaderBytes, sizeof(lent));
      if (!sessions_.Attach(id, &lent).ok()) return;
      header.flags &= static_cast<uint16_t>(~frame::kFlagLarge);
      PopWaiting(peer);
      sessions_.Commit(id, lent, header);  // may call OnLost(), which may need the place
    } else {
      const auto buffer = sessions_.Reserve(id, header.payload_bytes);
      if (!buffer.ok()) return;  // OnWritable() or OnPeerDown() follows
      std::memcpy(buffer->data, message.data() + frame::kHeaderBytes, header.payload_bytes);
      PopWaiting(peer);
      sessions_.Commit(id, *buffer, header);
    }
  }
  if (peer == nullptr || peer->ending || peer->blocked.empty()) return;
  const std::vector<ServerCall*> blocked = std::exchange(peer->blocked, {});
  for (ServerCall* call : blocked) {
    call->blocked_ = false;
    // A call before it may have ended this call, or the peer.
    if (under_way_.contains(call) && call->wants_to_write_) WriterMayGoOn(call);
  }
}

}  // namespace sluice::call
