// SPDX-License-Identifier: Apache-2.0
//
// ClientEngine's part in streaming calls.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "middleware/call/client_engine.h"
#include "transport/base/error.h"

namespace sluice::call {

// False: no credit, or nobody there.
bool ClientEngine::SendControl(frame::Kind kind, uint64_t call_id, uint32_t window) {
  if (state_ != ConnectionState::kUp && state_ != ConnectionState::kDraining) return false;
  const auto buffer = sessions_.Reserve(peer_, 0);
  if (!buffer.ok()) return false;
  frame::Header header;
  header.kind = kind;
  header.call_id = call_id;
  header.flow_window = window;
  sessions_.Commit(peer_, *buffer, header);
  return true;
}

// OnWritable() comes after a refusal: the first that is refused again ends the round.
void ClientEngine::SendOwed() {
  while (!cancels_owed_.empty()) {
    if (!SendControl(frame::Kind::kCancel, cancels_owed_.back(), 0)) return;
    cancels_owed_.pop_back();
  }
  const std::vector<uint64_t> blocked = std::exchange(blocked_, {});
  for (const uint64_t id : blocked) {
    Call* call = table_.FindSent(id);
    if (call == nullptr) continue;  // over
    ClientStream* stream = call->spec.stream;
    stream->blocked = false;
    if (stream->window_owed) {
      if (!SendControl(frame::Kind::kStreamWindow, id, stream->end.SayWindow())) {
        Block(stream);
        continue;
      }
      stream->window_owed = false;
    }
    if (stream->end_owed) {
      if (!SendControl(frame::Kind::kStreamEnd, id, 0)) {
        Block(stream);
        continue;
      }
      stream->end_owed = false;
    }
    if (std::exchange(stream->wants_to_write, false) && stream->observer != nullptr) {
      stream->observer->OnWritable();
    }
  }
}

void ClientEngine::Block(ClientStream* stream) {
  if (!std::exchange(stream->blocked, true)) blocked_.push_back(stream->call_id);
}

ReadResult ClientEngine::Read(ClientStream* stream, google::protobuf::MessageLite* message) {
  const ReadResult result = stream->end.Read(message);
  stream->wants_to_read = result == ReadResult::kNothing;
  if (stream->call_id != 0 && !stream->window_owed && stream->end.WindowIsDue() &&
      !SendControl(frame::Kind::kStreamWindow, stream->call_id, stream->end.SayWindow())) {
    stream->window_owed = true;
    Block(stream);
  }
  return result;
}

absl::Status ClientEngine::Write(ClientStream* stream,
                                 const google::protobuf::MessageLite& message) {
  Call* call = stream->call_id == 0 ? nullptr : table_.Find(stream->call_id);
  if (call == nullptr || stream->writes_ended) {
    return base::Error(absl::StatusCode::kFailedPrecondition, "message of a stream not sent",
                       {.layer = "call",
                        .peer = server_,
                        .operation = "write",
                        .cause = call == nullptr ? "the call is over" : "its end was said before",
                        .remedy = "ask Finish() why, and write nothing after WritesDone()"});
  }
  const size_t bytes = message.ByteSizeLong();
  if (bytes > limit_bytes_ - frame::kHeaderBytes) return TooLarge(call->spec, bytes);
  const absl::Status later =
      absl::ResourceExhaustedError("no room in the stream's window, or no credit");
  if (call->state != CallState::kSent || !stream->end.HasRoom()) {
    stream->wants_to_write = true;
    return later;
  }
  const auto buffer = sessions_.Reserve(peer_, static_cast<uint32_t>(bytes));
  if (!buffer.ok()) {
    if (!absl::IsResourceExhausted(buffer.status())) return buffer.status();
    stream->wants_to_write = true;
    Block(stream);
    return later;
  }
  frame::Header header;
  header.kind = frame::Kind::kStreamData;
  header.call_id = stream->call_id;
  header.flow_window = stream->end.SayWindow();
  header.payload_bytes = static_cast<uint32_t>(bytes);
  message.SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(buffer->data));
  sessions_.Commit(peer_, *buffer, header);
  stream->end.CountSent();
  return absl::OkStatus();
}

void ClientEngine::EndWrites(ClientStream* stream) {
  if (std::exchange(stream->writes_ended, true) || stream->call_id == 0) return;
  const Call* call = table_.Find(stream->call_id);
  if (call == nullptr || !call->spec.method->client_streams()) return;  // there is nothing to end
  call = table_.FindSent(stream->call_id);
  if (call != nullptr && SendControl(frame::Kind::kStreamEnd, stream->call_id, 0)) return;
  stream->end_owed = true;
  if (call != nullptr) Block(stream);  // else when the request is sent
}

void ClientEngine::OnStream(const frame::Header& header, std::span<const std::byte> payload) {
  Call* call = table_.FindSent(header.call_id);
  if (call == nullptr) {
    ++counters_.late_replies;
    return;
  }
  ClientStream* stream = call->spec.stream;
  if (stream == nullptr)
    return Break("unexpected message", "it belongs to a stream, the call has none");
  if (!stream->end.Grant(header.flow_window)) {
    return Break("malformed message", "a window of a stream that can't be");
  }
  if (header.kind == frame::Kind::kStreamData) {
    if (!stream->end.Receive(payload)) {
      return Break("malformed message", "more messages of a stream than its window");
    }
    if (std::exchange(stream->wants_to_read, false) && stream->observer != nullptr) {
      stream->observer->OnReadable();
    }
    // The observer may have ended the call.
    if (table_.FindSent(header.call_id) != call || call->spec.stream != stream) return;
  }
  if (stream->wants_to_write && !stream->blocked && stream->end.HasRoom()) {
    stream->wants_to_write = false;
    if (stream->observer != nullptr) stream->observer->OnWritable();
  }
}

}  // namespace sluice::call
