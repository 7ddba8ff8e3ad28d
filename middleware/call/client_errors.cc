// SPDX-License-Identifier: Apache-2.0
//
// What ClientEngine says when a call can't be made, or did not end well.
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

absl::Status ClientEngine::NotConnected(std::string_view operation) const {
  for (const auto& connection : connections_) {
    if (connection->state != ConnectionState::kDraining) continue;
    return base::Error(
        absl::StatusCode::kUnavailable, "server is draining",
        {.layer = "call",
         .peer = server_,
         .operation = operation,
         .cause = "it ends, and takes no new calls",
         .remedy = "call another server; set wait_for_ready to wait for its successor",
         .retry_safe = true});
  }
  const std::string cause =
      connections_.empty() ? "it has no servers so far" : CauseOf(last_error_);
  return base::Error(absl::StatusCode::kUnavailable, "not connected",
                     {.layer = "call",
                      .peer = server_,
                      .operation = operation,
                      .cause = cause,
                      .remedy = "it is tried again by itself; set wait_for_ready to wait for that",
                      .retry_safe = true});
}

absl::Status ClientEngine::DeadlineExceeded(const CallSpec& spec, CallState state,
                                            uint32_t attempt) const {
  std::string cause = "the reply did not come in time";
  std::string remedy = "give it more time, or look for what keeps the server busy";
  if (state == CallState::kFree) cause = "the deadline had passed when the call was started";
  if (state == CallState::kWaiting) {
    cause = this->state() == ConnectionState::kUp
                ? "the server gave no credit to send it in time"
                : absl::StrCat("there was no connection (", Name(this->state()), ")");
    if (this->state() != ConnectionState::kUp && !last_error_.ok()) {
      absl::StrAppend(&cause, ": ", CauseOf(last_error_));
      remedy = "look at the server; the channel goes on trying";
    }
    const size_t bytes = frame::kHeaderBytes + PayloadBytes(spec);
    if (this->state() == ConnectionState::kUp && bytes > options_.max_message_bytes) {
      cause = "the server gave no credit, or there was no memory for a large request, in time";
      remedy = "give it more time; let go of buffers, or raise large_memory_bytes";
    }
  }
  if (state == CallState::kSent && spec.stream != nullptr && !spec.stream->end.empty()) {
    const StreamEnd& end = spec.stream->end;
    absl::StrAppend(&cause, "; ", end.unread(), " messages of the stream are unread here");
    if (end.full()) {
      absl::StrAppend(&cause, ", which is the whole window: the server can't send more");
      if (spec.stream->wants_to_write) {
        absl::StrAppend(&cause, ", and a Write() here waits for the server to read");
      }
      remedy =
          "read while writing: on another thread, with StartRead() or with co_await; or raise "
          "stream_window of the channel";
    }
  }
  if (state == CallState::kPausing) cause = "it came before another attempt";
  if (attempt > 1) absl::StrAppend(&cause, "; attempt ", attempt, ", those before had failed");
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
