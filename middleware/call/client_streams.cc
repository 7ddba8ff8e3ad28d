// SPDX-License-Identifier: Apache-2.0
//
// ClientEngine: streaming calls.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "middleware/call/client_engine.h"
#include "middleware/call/message_bytes.h"
#include "transport/base/error.h"

namespace sluice::call {

// Sends a control message. Returns false if there is no credit or no connection.
bool ClientEngine::SendControl(Connection* connection, frame::Kind kind, uint64_t call_id,
                               uint32_t window) {
  if (connection->state != ConnectionState::kUp &&
      connection->state != ConnectionState::kDraining) {
    return false;
  }
  const auto buffer = sessions_.Reserve(connection->peer, 0);
  if (!buffer.ok()) return false;
  frame::Header header;
  header.kind = kind;
  header.call_id = call_id;
  header.flow_window = window;
  sessions_.Commit(connection->peer, *buffer, header);
  return true;
}

// Sends the control messages that are due. The first refusal ends the function, because OnWritable() follows.
void ClientEngine::SendOwed(Connection* connection) {
  if (connection->drain_owed) {
    if (!SendControl(connection, frame::Kind::kDrain, 0, 0)) return;
    connection->drain_owed = false;
  }
  while (!connection->cancels_owed.empty()) {
    if (!SendControl(connection, frame::Kind::kCancel, connection->cancels_owed.back(), 0)) return;
    connection->cancels_owed.pop_back();
  }
  const std::vector<uint64_t> blocked = std::exchange(connection->blocked, {});
  for (const uint64_t id : blocked) {
    Call* call = table_.FindSent(id);
    if (call == nullptr) continue;  // it has ended
    ClientStream* stream = call->spec.stream;
    stream->blocked = false;
    if (stream->window_owed) {
      if (!SendControl(connection, frame::Kind::kStreamWindow, id, stream->end.SayWindow())) {
        Block(call);
        continue;
      }
      stream->window_owed = false;
    }
    if (stream->end_owed) {
      if (!SendControl(connection, frame::Kind::kStreamEnd, id, 0)) {
        Block(call);
        continue;
      }
      stream->end_owed = false;
    }
    if (std::exchange(stream->wants_to_write, false) && stream->observer != nullptr) {
      stream->observer->OnWritable();
    }
  }
}

// Lets the stream of a sent call wait for credit.
void ClientEngine::Block(Call* call) {
  ClientStream* const stream = call->spec.stream;
  if (!std::exchange(stream->blocked, true)) {
    call->connection->blocked.push_back(CallTable::WireId(*call));
  }
}

ReadResult ClientEngine::Read(ClientStream* stream, google::protobuf::MessageLite* message) {
  const ReadResult result = stream->end.Read(message);
  stream->wants_to_read = result == ReadResult::kNothing;
  if (stream->call_id == 0 || stream->window_owed || !stream->end.WindowIsDue()) return result;
  Call* const call = table_.FindSent(stream->call_id);
  if (call != nullptr && !SendControl(call->connection, frame::Kind::kStreamWindow, stream->call_id,
                                      stream->end.SayWindow())) {
    stream->window_owed = true;
    Block(call);
  }
  return result;
}

absl::Status ClientEngine::Write(ClientStream* stream,
                                 const google::protobuf::MessageLite& message) {
  Call* call = stream->call_id == 0 ? nullptr : table_.Find(stream->call_id);
  if (call == nullptr || stream->writes_ended) {
    return base::Error(
        absl::StatusCode::kFailedPrecondition, "message of a stream not sent",
        {.layer = "call",
         .peer = server_,
         .operation = "write",
         .cause = call == nullptr ? "the call has ended" : "WritesDone() was called before",
         .remedy = "call Finish() for the status; do not write after WritesDone()"});
  }
  const size_t bytes = message.ByteSizeLong();
  const uint32_t limit_bytes =
      call->connection == nullptr ? limit_bytes_ : call->connection->limit_bytes;
  if (bytes > limit_bytes - frame::kHeaderBytes) {
    return TooLarge(call->spec, "message", bytes, limit_bytes, absl::StatusCode::kInvalidArgument);
  }
  const absl::Status later =
      absl::ResourceExhaustedError("no room in the stream's window, or no credit");
  if (call->state != CallState::kSent || !stream->end.HasRoom(bytes)) {
    stream->wants_to_write = true;
    return later;
  }
  const auto buffer = sessions_.Reserve(call->connection->peer, static_cast<uint32_t>(bytes));
  if (!buffer.ok()) {
    if (!absl::IsResourceExhausted(buffer.status())) return buffer.status();
    stream->wants_to_write = true;
    Block(call);
    return later;
  }
  frame::Header header;
  header.kind = frame::Kind::kStreamData;
  header.call_id = stream->call_id;
  header.flow_window = stream->end.SayWindow();
  header.payload_bytes = static_cast<uint32_t>(bytes);
  WriteMessage(message, bytes, buffer->data);
  sessions_.Commit(call->connection->peer, *buffer, header);
  stream->end.CountSent(bytes);
  call->stats->CountStreamSent();
  return absl::OkStatus();
}

void ClientEngine::EndWrites(ClientStream* stream) {
  if (std::exchange(stream->writes_ended, true) || stream->call_id == 0) return;
  Call* call = table_.Find(stream->call_id);
  if (call == nullptr || !call->spec.method->client_streams()) return;  // there is nothing to end
  call = table_.FindSent(stream->call_id);
  if (call != nullptr &&
      SendControl(call->connection, frame::Kind::kStreamEnd, stream->call_id, 0)) {
    return;
  }
  stream->end_owed = true;
  if (call != nullptr) Block(call);  // otherwise SendWaiting() does
}

void ClientEngine::Open(ClientStream* stream) {
  stream->opened = true;
  if (std::exchange(stream->wants_opened, false) && stream->observer != nullptr) {
    stream->observer->OnOpened();
  }
}

void ClientEngine::OnStream(Connection* connection, const frame::Header& header,
                            std::span<const std::byte> payload) {
  Call* call = table_.FindSent(header.call_id);
  if (call == nullptr || call->connection != connection) {
    ++counters_.late_replies;
    return;
  }
  ClientStream* stream = call->spec.stream;
  if (stream == nullptr)
    return Break(connection, "unexpected message", "it belongs to a stream, the call has none");
  if (header.kind == frame::Kind::kStreamMetadata) {
    if (stream->opened)
      return Break(connection, "malformed message", "initial metadata of a stream that has begun");
    const std::span<const std::byte> metadata = frame::Split(header, payload).metadata;
    stream->has_initial_metadata = true;
    stream->initial_metadata.assign(reinterpret_cast<const char*>(metadata.data()),
                                    metadata.size());
    return Open(stream);
  }
  if (!stream->end.Grant(header.flow_window)) {
    return Break(connection, "malformed message", "invalid window of a stream");
  }
  if (header.kind == frame::Kind::kStreamData) {
    if (!stream->end.Receive(payload)) {
      return Break(connection, "malformed message", "more messages of a stream than its window");
    }
    call->stats->CountStreamReceived();
    if (!stream->opened) [[unlikely]] {
      Open(stream);
      if (table_.FindSent(header.call_id) != call || call->spec.stream != stream) return;
    }
    if (std::exchange(stream->wants_to_read, false) && stream->observer != nullptr) {
      stream->observer->OnReadable();
    }
    // The observer may have ended the call.
    if (table_.FindSent(header.call_id) != call || call->spec.stream != stream) return;
  }
  if (stream->wants_to_write && !stream->blocked && stream->end.HasRoom(1)) {
    stream->wants_to_write = false;
    if (stream->observer != nullptr) stream->observer->OnWritable();
  }
}

}  // namespace sluice::call
