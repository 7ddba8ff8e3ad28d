// SPDX-License-Identifier: Apache-2.0
//
// ServerContext: the call that a handler serves: caller, deadline, cancellation, metadata and
// attachments.
//
// Ownership     The server owns it. Valid while the handler runs; for a coroutine until it has
//               ended.
// Threads       The thread that runs the handler; for a coroutine on an executor (run_on.h) the
//               executor's. Any thread may use a stop_token taken from it.
#ifndef SLUICE_MIDDLEWARE_API_SERVER_CONTEXT_H_
#define SLUICE_MIDDLEWARE_API_SERVER_CONTEXT_H_

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "middleware/api/metadata.h"
#include "middleware/api/trace_context.h"
#include "middleware/call/buffer.h"
#include "middleware/call/method.h"

namespace sluice {

using call::Buffer;

class ServerContext {
 public:
  explicit ServerContext(const call::Incoming& incoming) : incoming_(incoming) {}
  ServerContext(const ServerContext&) = delete;
  ServerContext& operator=(const ServerContext&) = delete;

  // Address of the caller.
  const std::string& peer() const { return *incoming_.peer; }
  // Tenant whose secret the caller has proved; empty without ServerOptions::tenants.
  const std::string& tenant() const { return *incoming_.tenant; }
  // "/package.Service/Method".
  const char* method() const { return incoming_.method->full_name; }
  // Deadline of the call in nanoseconds of this host's CLOCK_MONOTONIC, without the time that the
  // request needed to arrive; call::kNoDeadlineNs: none.
  int64_t deadline_ns() const { return incoming_.deadline_ns; }
  // Time that was left until the deadline when the request arrived.
  absl::Duration time_left_on_arrival() const {
    return incoming_.deadline_ns == call::kNoDeadlineNs
               ? absl::InfiniteDuration()
               : absl::Nanoseconds(incoming_.deadline_ns - incoming_.received_ns);
  }

  // Returns a token. A stop is requested when the caller no longer waits for the reply: the caller
  // cancelled or disconnected, or the deadline has passed. Never for a handler that runs inline on
  // the polling thread, which receives no messages meanwhile.
  std::stop_token stop_token() {
    if (deferred_ == nullptr) return {};
    LockStop();
    if (!stop_.has_value()) {
      stop_.emplace();
      // No token exists yet. After this one exists, only RequestStop() requests the stop, on the polling thread.
      if (cancelled()) stop_->request_stop();
    }
    std::stop_token token = stop_->get_token();
    UnlockStop();
    return token;
  }
  bool cancelled() const { return stopped_.load(std::memory_order_relaxed); }

  // Number of this attempt: 1, or more if the caller's channel retries the call (RetryOptions).
  uint32_t attempt() const;

  // Metadata of the request. The reference is valid as long as the context.
  const Metadata& metadata() const {
    if (metadata_ == nullptr) {
      metadata_ = std::make_unique<const Metadata>(Metadata::FromWire(incoming_.metadata));
    }
    return *metadata_;
  }
  // Trace of the call, with this call as the span: calls that the handler makes carry it
  // (CallContext::FromServer()). nullopt: none.
  std::optional<TraceContext> trace() const {
    if (incoming_.metadata.empty()) return std::nullopt;
    const auto value = metadata().Find(kTraceParent);
    const auto parent = value.has_value() ? TraceContext::Parse(*value) : std::nullopt;
    return parent.has_value() ? std::optional(parent->Child(incoming_.span)) : std::nullopt;
  }
  // Adds metadata to the reply or the error. Errors: as Metadata::Add().
  absl::Status AddReplyMetadata(std::string_view key, std::string_view value) {
    if (!reply_metadata_.has_value()) reply_metadata_.emplace();
    absl::Status added = reply_metadata_->Add(key, value);
    if (added.ok()) incoming_.reply->metadata = reply_metadata_->wire();
    return added;
  }

  // Sends `metadata` now, before the handler ends. The caller reads it with ReadInitialMetadata() (stream.h). Call once, before the
  // first message, in a handler of a method that streams. Empty metadata is sent too: it shows the caller that the handler has
  // begun. Does not wait for the caller. On an executor it waits for one pass of the polling thread. Errors:
  // FAILED_PRECONDITION: the method does not stream, or initial metadata or a message was sent before. RESOURCE_EXHAUSTED: over the
  // limit of a message. CANCELLED, DEADLINE_EXCEEDED: the caller no longer waits.
  absl::Status SendInitialMetadata(const Metadata& metadata);

  // Attachment of the request (CallContext::set_attachment()). A large attachment stays in the memory that this side's device wrote.
  std::span<const std::byte> attachment() const { return incoming_.attachment; }
  // Sets the attachment of the reply. Message and attachment together must not exceed the limit of
  // a message. Not sent with an error.
  void set_reply_attachment(std::string bytes) {
    incoming_.reply->attachment = Buffer::Ordinary(std::move(bytes));
  }
  // The same; a large attachment is not copied. Do not write into the memory afterwards.
  void set_reply_attachment(std::same_as<Buffer> auto&& buffer) {
    incoming_.reply->attachment = std::move(buffer);
  }
  // Allocates memory for a reply attachment. On an executor it waits for one pass of the polling thread. Errors:
  // CANCELLED (the caller has disconnected), RESOURCE_EXHAUSTED (no memory now), INVALID_ARGUMENT
  // (over the limit of a message).
  absl::StatusOr<Buffer> MakeBuffer(size_t bytes);

 protected:
  // For a handler that can receive a stop request. `elsewhere`: it runs on another thread than the thread that calls RequestStop().
  ServerContext(call::ServerCall* call, const call::Incoming& incoming, bool elsewhere)
      : incoming_(incoming), deferred_(call) {
    if (elsewhere) stop_.emplace();
  }
  void RequestStop() {
    stopped_.store(true, std::memory_order_relaxed);
    LockStop();
    std::optional<std::stop_source> stop = stop_;
    UnlockStop();
    if (stop.has_value()) stop->request_stop();
  }

 private:
  // A coroutine may call stop_token() on an executor (run_on.h) while the polling thread requests
  // the stop.
  void LockStop() {
    while (stop_locked_.exchange(true, std::memory_order_acquire)) {
    }
  }
  void UnlockStop() { stop_locked_.store(false, std::memory_order_release); }

  const call::Incoming& incoming_;
  call::ServerCall* const deferred_ = nullptr;  // nullptr: the handler runs inline
  std::atomic<bool> stopped_{false};
  std::atomic<bool> stop_locked_{false};
  std::optional<std::stop_source> stop_;              // guarded by LockStop()
  std::optional<Metadata> reply_metadata_;            // most calls have none
  mutable std::unique_ptr<const Metadata> metadata_;  // set when first used
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_SERVER_CONTEXT_H_
