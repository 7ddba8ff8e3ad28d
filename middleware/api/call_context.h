// SPDX-License-Identifier: Apache-2.0
//
// CallContext: deadline, readiness, cancellation, metadata and attachment of a call.
//
//   sluice::CallContext context(absl::Milliseconds(100));
//   absl::StatusOr<SayReply> reply = client.Say(context, request);
//
// To end a call from another thread, give the context a std::stop_token:
//
//   std::stop_source stop;
//   context.set_stop_token(stop.get_token());
//   …
//   stop.request_stop();   // the call ends with CANCELLED, and so do the calls that its handler makes
//
// Ownership     The user owns it. It outlives each call that was started with it, and holds
//               metadata and attachment of the last reply. It may be used for many calls, one after
//               another: each has the whole timeout, from its own start.
// Threads       One at a time. Any thread may request a stop.
#ifndef SLUICE_MIDDLEWARE_API_CALL_CONTEXT_H_
#define SLUICE_MIDDLEWARE_API_CALL_CONTEXT_H_

#include <concepts>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "middleware/api/metadata.h"
#include "middleware/api/server_context.h"
#include "middleware/call/method.h"

namespace sluice {

class CallContext {
 public:
  // `timeout`: time after which the call ends with DEADLINE_EXCEEDED. Zero or less: the deadline
  // has passed. There is no default; for a call without a deadline use NoDeadline().
  explicit CallContext(absl::Duration timeout)
      : timeout_ns_(timeout == absl::InfiniteDuration() ? call::kNoDeadlineNs
                                                        : absl::ToInt64Nanoseconds(timeout)) {}

  // A call without a deadline. It ends with UNAVAILABLE if the server disconnects.
  static CallContext NoDeadline() { return CallContext(absl::InfiniteDuration()); }

  // Returns a context for a call that a handler makes. The call has the deadline of the handler's
  // call at the latest, is stopped when that call is cancelled, and belongs to the same trace.
  // `timeout` may shorten the deadline. For a call that outlives the handler's call, use a separate context.
  static CallContext FromServer(ServerContext& server,
                                absl::Duration timeout = absl::InfiniteDuration()) {
    CallContext context(timeout);
    context.deadline_ns_ = server.deadline_ns();
    context.stop_token_ = server.stop_token();
    if (const auto trace = server.trace(); trace.has_value()) {
      context.set_trace(*trace);
      const Metadata& sent = server.metadata();
      const auto state = sent.Find(kTraceState);
      if (state.has_value() && state->size() <= kMaxTraceStateBytes) {
        (void)context.AddMetadata(kTraceState, *state);  // omitted if it does not fit
      }
    }
    return context;
  }

  // True: if not connected, wait for a connection until the deadline. False (default): fail with
  // UNAVAILABLE.
  void set_wait_for_ready(bool wait) { wait_for_ready_ = wait; }
  // Ends the call with CANCELLED when a stop is requested. If it was requested before, the call
  // does not start.
  void set_stop_token(std::stop_token token) { stop_token_ = std::move(token); }
  // Adds metadata to the request. Errors: as Metadata::Add().
  absl::Status AddMetadata(std::string_view key, std::string_view value) {
    return metadata_.Add(key, value);
  }

  // Sets the trace of the call, which the request carries as metadata. Call once.
  void set_trace(const TraceContext& trace) { (void)AddMetadata(kTraceParent, trace.ToString()); }

  // Sets bytes that the request carries beside its message. They are not copied, and must stay
  // valid and unchanged until the call has ended. Message and attachment together must not exceed
  // the limit of a message. Empty: no attachment.
  void set_attachment(std::span<const std::byte> bytes) {
    attachment_ = bytes;
    buffer_ = nullptr;
  }
  // The same in memory of Channel::MakeBuffer(). The server's device reads a large attachment from
  // it without a copy. The context keeps it until another is set, and copies of the context share
  // it. Do not write into it afterwards. (A template, so that {} selects the other overload.)
  void set_attachment(std::same_as<Buffer> auto&& buffer) {
    buffer_ = std::make_shared<const Buffer>(std::move(buffer));
    attachment_ = buffer_->bytes();
  }

  // Metadata of the last call's reply or error. The reference is valid as long as the context; its
  // content changes with the next call.
  const Metadata& reply_metadata() const& { return reply_.ReadMetadata(); }
  const Metadata& reply_metadata() const&& = delete;
  // Attachment of the last reply (ServerContext::set_reply_attachment()). Valid until the next call
  // starts.
  std::string_view reply_attachment() const& { return reply_.beside.attachment.text(); }
  std::string_view reply_attachment() const&& = delete;
  // The same, to keep it longer. A large attachment stays in the memory that this side's device
  // wrote (limits: buffer.h).
  Buffer TakeReplyAttachment() { return std::move(reply_.beside.attachment); }

  int64_t timeout_ns() const { return timeout_ns_; }
  int64_t deadline_ns() const {
    return deadline_ns_;
  }  // CLOCK_MONOTONIC; call::kNoDeadlineNs: none
  bool wait_for_ready() const { return wait_for_ready_; }
  const std::stop_token& stop_token() const { return stop_token_; }
  const Metadata& metadata() const& { return metadata_; }
  const Metadata& metadata() const&& = delete;
  std::span<const std::byte> attachment() const { return attachment_; }
  // The attachment's buffer; nullptr: the attachment is not in a Buffer.
  const Buffer* buffer() const { return buffer_.get(); }

  // Clears the metadata and the attachment of the last reply, and returns the place for the next.
  // Used by the functions that start calls.
  call::Beside* ReplyBeside() {
    reply_.beside.Clear();
    return &reply_.beside;
  }

 private:
  // The reply as received. It belongs to the context of the call: a copy of the context has no
  // reply.
  struct Reply {
    Reply() = default;
    Reply(const Reply&) {}
    Reply(Reply&&) = default;
    Reply& operator=(const Reply&) {
      beside.Clear();
      return *this;
    }
    // Keeps `read`: users may hold references to it.
    Reply& operator=(Reply&& other) noexcept {
      beside = std::move(other.beside);
      return *this;
    }

    // The result has a fixed address as long as *this exists.
    const Metadata& ReadMetadata() const {
      if (read == nullptr) read = std::make_unique<Read>();
      if (read->wire != beside.metadata) {
        read->metadata = Metadata::FromWire(beside.metadata);
        read->wire = beside.metadata;
      }
      return read->metadata;
    }

    call::Beside beside;
    struct Read {
      std::string wire;
      Metadata metadata;
    };
    mutable std::unique_ptr<Read> read;  // set when first used
  };

  int64_t timeout_ns_;
  int64_t deadline_ns_ = call::kNoDeadlineNs;
  bool wait_for_ready_ = false;
  std::stop_token stop_token_;
  Metadata metadata_;
  std::span<const std::byte> attachment_;
  std::shared_ptr<const Buffer> buffer_;  // buffer of the attachment, if any
  Reply reply_;
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_CALL_CONTEXT_H_
