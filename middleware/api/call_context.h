// SPDX-License-Identifier: Apache-2.0
//
// CallContext: how long a call may take, what it waits for, who may stop it, and what goes with it.
//
//   sluice::CallContext context(absl::Milliseconds(100));
//   absl::StatusOr<SayReply> reply = client.Say(context, request);
//
// One context may serve many calls, one after another: each has the whole timeout, counted from its
// own start. It outlives each call that was started with it, and has what came beside the reply of the last one. Thread-safety:
// none; to end a call from another thread give it a std::stop_token, whose source may be asked by any:
//
//   std::stop_source stop;
//   context.set_stop_token(stop.get_token());
//   …
//   stop.request_stop();   // the call ends with CANCELLED, the server hears of it, and so do those whom it calls
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
  // Zero or less has passed already. There is no default: a call without an end is written
  // NoDeadline().
  explicit CallContext(absl::Duration timeout)
      : timeout_ns_(timeout == absl::InfiniteDuration() ? call::kNoDeadlineNs
                                                        : absl::ToInt64Nanoseconds(timeout)) {}

  // The call may take for ever. It still ends when the server goes away.
  static CallContext NoDeadline() { return CallContext(absl::InfiniteDuration()); }

  // For a call made by a handler: no later than the call it serves, stopped when nobody waits for that any more, and part
  // of the same trace, if there is one.
  // `timeout` may shorten it further. (A call that is to outlive it has a context of its own instead.)
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
        (void)context.AddMetadata(kTraceState, *state);  // what does not fit may be left out
      }
    }
    return context;
  }

  // Not connected: wait for a connection until the deadline, instead of failing with UNAVAILABLE.
  void set_wait_for_ready(bool wait) { wait_for_ready_ = wait; }
  // Ends the call with CANCELLED when a stop is requested; before its start it does not start.
  void set_stop_token(std::stop_token token) { stop_token_ = std::move(token); }
  // Goes with the request: metadata.h says which errors there are.
  absl::Status AddMetadata(std::string_view key, std::string_view value) {
    return metadata_.Add(key, value);
  }

  // Which trace it is part of; goes with the request as metadata. Once.
  void set_trace(const TraceContext& trace) { (void)AddMetadata(kTraceParent, trace.ToString()); }

  // Bytes that go beside the request, without a field of its message. They are not copied before they are sent: they stay
  // as they are until the call has ended. The limit of a message holds for both together. Empty: none.
  void set_attachment(std::span<const std::byte> bytes) {
    attachment_ = bytes;
    buffer_ = nullptr;
  }
  // The same in memory of the channel's (Channel::MakeBuffer()), where the server's device reads them if they are many: they
  // are not copied. The context keeps it until another one is set, and copies of the context share it; nobody writes into it
  // from now on. (A template so that {} means the other one.)
  void set_attachment(std::same_as<Buffer> auto&& buffer) {
    buffer_ = std::make_shared<const Buffer>(std::move(buffer));
    attachment_ = buffer_->bytes();
  }

  // What the server sent with the reply, or with the error, of the last call. The reference is valid as long as the context;
  // what it refers to changes with the next call.
  const Metadata& reply_metadata() const& { return reply_.ReadMetadata(); }
  const Metadata& reply_metadata() const&& = delete;
  // And beside the reply (ServerContext::set_reply_attachment()), until the next call is started.
  std::string_view reply_attachment() const& { return reply_.beside.attachment.text(); }
  std::string_view reply_attachment() const&& = delete;
  // The same, to be kept for longer: where this side's device has put it, if it is large (buffer.h says what bounds that).
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
  // nullptr: it is none.
  const Buffer* buffer() const { return buffer_.get(); }

  // Where the next call's goes; for those who start it.
  call::Beside* ReplyBeside() {
    reply_.beside.Clear();
    return &reply_.beside;
  }

 private:
  // As it came. It stays with the context that was called with: a copy has none.
  struct Reply {
    Reply() = default;
    Reply(const Reply&) {}
    Reply(Reply&&) = default;
    Reply& operator=(const Reply&) {
      beside.Clear();
      return *this;
    }
    // `read` stays: users may hold references to it.
    Reply& operator=(Reply&& other) noexcept {
      beside = std::move(other.beside);
      return *this;
    }

    // Stays where it is, as long as this does.
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
    mutable std::unique_ptr<Read> read;  // once it was asked for
  };

  int64_t timeout_ns_;
  int64_t deadline_ns_ = call::kNoDeadlineNs;
  bool wait_for_ready_ = false;
  std::stop_token stop_token_;
  Metadata metadata_;
  std::span<const std::byte> attachment_;
  std::shared_ptr<const Buffer> buffer_;  // in which that stands
  Reply reply_;
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_CALL_CONTEXT_H_
