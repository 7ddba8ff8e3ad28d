// SPDX-License-Identifier: Apache-2.0
//
// ClientEngine: errors of calls that can't be started, or that fail.
#include <string>

#include "absl/strings/str_cat.h"
#include "middleware/call/client_engine.h"
#include "transport/base/error.h"

namespace sluice::call {

std::string ClientEngine::CauseOf(const absl::Status& status) {
  const auto detail = base::DetailOf(status);
  if (detail.has_value() && !detail->cause().empty()) return detail->cause();
  return std::string(status.message());
}

absl::Status ClientEngine::NoMemory(const CallSpec& spec, const absl::Status& why) const {
  const std::string cause(why.message());
  return base::Error(absl::StatusCode::kResourceExhausted,
                     absl::StrCat("request of ", spec.method->full_name, " not sent"),
                     {.layer = "call",
                      .peer = server_,
                      .operation = spec.method->full_name,
                      .cause = cause,
                      .retry_safe = true});
}

absl::Status ClientEngine::TooLarge(const CallSpec& spec, const char* what, uint64_t payload_bytes,
                                    uint32_t limit_bytes, absl::StatusCode code) const {
  return base::Error(code, absl::StrCat(what, " of ", spec.method->full_name, " too large"),
                     {.layer = "call",
                      .peer = server_,
                      .operation = spec.method->full_name,
                      .cause = absl::StrCat("it takes ", payload_bytes, " bytes, the limit is ",
                                            limit_bytes - frame::kHeaderBytes),
                      .remedy = "send less, or raise max_large_message_bytes on both sides",
                      .retry_safe = true});
}

absl::Status ClientEngine::ChannelClosed() const {
  return base::Error(absl::StatusCode::kCancelled, "channel closed",
                     {.layer = "call", .peer = server_, .operation = "close"});
}

absl::Status ClientEngine::NotConnected(std::string_view operation) const {
  for (const auto& connection : connections_) {
    if (connection->state != ConnectionState::kDraining) continue;
    return base::Error(
        absl::StatusCode::kUnavailable, "server is draining",
        {.layer = "call",
         .peer = server_,
         .operation = operation,
         .cause = "the server is shutting down and accepts no new calls",
         .remedy =
             "call another server, or set wait_for_ready to wait until a server accepts calls",
         .retry_safe = true});
  }
  const std::string cause =
      connections_.empty() ? "the channel has no servers yet" : CauseOf(last_error_);
  return base::Error(
      absl::StatusCode::kUnavailable, "not connected",
      {.layer = "call",
       .peer = server_,
       .operation = operation,
       .cause = cause,
       .remedy = "the channel reconnects by itself; set wait_for_ready to wait for the connection",
       .retry_safe = true});
}

absl::Status ClientEngine::CancelledByCaller(const Method& method, bool retry_safe) const {
  return base::Error(absl::StatusCode::kCancelled, absl::StrCat(method.full_name, " cancelled"),
                     {.layer = "call",
                      .peer = server_,
                      .operation = method.full_name,
                      .cause = "the caller cancelled the call",
                      .retry_safe = retry_safe});
}

absl::Status ClientEngine::StartedTooLate(const Method& method) const {
  return base::Error(absl::StatusCode::kDeadlineExceeded,
                     absl::StrCat("deadline of ", method.full_name, " exceeded"),
                     {.layer = "call",
                      .peer = server_,
                      .operation = method.full_name,
                      .cause = "the thread that drives the channel did not start it in time",
                      .remedy = "look for a callback that blocks, or give it more time",
                      .retry_safe = true});
}

absl::Status ClientEngine::DeadlineExceeded(const CallSpec& spec, CallState state,
                                            uint32_t attempt) const {
  std::string cause = "the reply did not arrive in time";
  std::string remedy = "allow more time, or find out what delays the server";
  if (state == CallState::kFree) cause = "the deadline had passed when the call was started";
  if (state == CallState::kWaiting) {
    cause = this->state() == ConnectionState::kUp
                ? "the server granted no credit for the request in time"
                : absl::StrCat("the channel was not connected (", Name(this->state()), ")");
    if (this->state() != ConnectionState::kUp && !last_error_.ok()) {
      absl::StrAppend(&cause, ": ", CauseOf(last_error_));
      remedy = "check the server; the channel continues to reconnect";
    }
    const size_t bytes = frame::kHeaderBytes + PayloadBytes(spec);
    if (this->state() == ConnectionState::kUp && bytes > options_.max_message_bytes) {
      cause = "in time, the server granted no credit, or no memory for a large request was free";
      remedy = "allow more time, release buffers, or raise large_memory_bytes";
    }
  }
  if (state == CallState::kSent && spec.stream != nullptr && !spec.stream->end.empty()) {
    const StreamEnd& end = spec.stream->end;
    absl::StrAppend(&cause, "; ", end.unread(), " messages of the stream are unread here");
    if (end.full()) {
      absl::StrAppend(&cause, ", which is the whole window: the server cannot send more");
      if (spec.stream->wants_to_write) {
        absl::StrAppend(&cause, ", and a Write() here waits for the server to read");
      }
      remedy =
          "read while writing: on another thread, with StartRead() or with co_await; or raise "
          "stream_window of the channel";
    }
  }
  if (state == CallState::kPausing) cause = "the deadline passed before the next attempt";
  if (attempt > 1) absl::StrAppend(&cause, "; attempt ", attempt, "; the earlier attempts failed");
  return base::Error(absl::StatusCode::kDeadlineExceeded,
                     absl::StrCat("deadline of ", spec.method->full_name, " exceeded"),
                     {.layer = "call",
                      .peer = server_,
                      .operation = spec.method->full_name,
                      .cause = cause,
                      .remedy = remedy,
                      .retry_safe = state != CallState::kSent && attempt == 1});
}

absl::Status ClientEngine::NotParsed(const Call& call, const Connection& connection,
                                     size_t bytes) const {
  return base::Error(
      absl::StatusCode::kInternal,
      absl::StrCat("reply of ", call.spec.method->full_name, " can't be parsed"),
      {.layer = "call",
       .peer = connection.server,
       .operation = call.spec.method->full_name,
       .cause = absl::StrCat(bytes, " bytes are not a ", call.spec.reply->GetTypeName()),
       .remedy = "build client and server from the same .proto"});
}

}  // namespace sluice::call
