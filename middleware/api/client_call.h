// SPDX-License-Identifier: Apache-2.0
//
// Asynchronous calls with a callback, and with co_await. Used by generated code.
//
// Threads       Any. The call ends on the thread that drives the channel.
#ifndef SLUICE_MIDDLEWARE_API_CLIENT_CALL_H_
#define SLUICE_MIDDLEWARE_API_CLIENT_CALL_H_

#include <atomic>
#include <coroutine>
#include <memory>
#include <optional>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/message_lite.h"
#include "middleware/api/call_context.h"
#include "middleware/api/channel.h"
#include "middleware/api/channel_keep.h"
#include "middleware/api/own_copy.h"
#include "middleware/api/stop_call.h"
#include "middleware/api/task.h"

namespace sluice {

// Runs once when the call has ended, on the thread that drives the channel. Must not block
// (channel.h). If it throws, the exception is logged and dropped.
using CallCallback = call::Callback;

// Starts a call. OK: `done` runs once; request, reply and context must stay valid until then. Other
// status: `done` does not run. If another thread drives, that thread starts the call, and `done` gets
// the error if it cannot be started (UNAVAILABLE, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, CANCELLED).
// This function waits for that thread only if max_outstanding_calls or 1,024 handed-over calls are
// reached. If a stop is requested before the call is started, it ends with CANCELLED.
absl::Status StartCall(Channel* channel, const Method& method, CallContext& context,
                       const google::protobuf::MessageLite& request,
                       google::protobuf::MessageLite* reply, CallCallback&& done);

// co_await it once, at once: context and request must stay valid until the call has ended. The
// co_await starts the call as StartCall() does.
// Destroying the waiting coroutine, on the thread that it runs on (task.h), cancels the call, and
// waits for one pass of the thread that drives the channel.
template <typename Reply>
class [[nodiscard]] CallAwaiter {
 public:
  CallAwaiter(Channel* channel, const Method& method, CallContext& context,
              const google::protobuf::MessageLite& request)
      : channel_(channel), method_(method), context_(context), request_(request) {}
  CallAwaiter(const CallAwaiter&) = delete;
  CallAwaiter& operator=(const CallAwaiter&) = delete;
  ~CallAwaiter() {
    if (!waits_) return;
    given_up_.store(true);
    // When it returns, OnDone() is not running and will not run. The call may have ended before.
    channel_->CancelAndWait(&control_);
  }

  bool await_ready() { return false; }
  template <typename Promise>
  bool await_suspend(std::coroutine_handle<Promise> handle) {
    resumption_.Set(handle);
    stop_.Set(context_.stop_token(), channel_.get(), &control_);
    waits_ = true;
    // The call may have ended, and *this may be destroyed, before StartCall() returns.
    absl::Status started = channel_->StartCall(method_, context_, request_, &*reply_, &OnDone, this,
                                               &control_, context_.ReplyBeside());
    if (started.ok()) return true;
    waits_ = false;
    status_ = std::move(started);
    return false;
  }
  absl::StatusOr<Reply> await_resume() {
    waits_ = false;
    if (!status_.ok()) return std::move(status_);
    return std::move(reply_);
  }

 private:
  static void OnDone(void* argument, const absl::Status& status) {
    auto* self = static_cast<CallAwaiter*>(argument);
    self->status_ = OwnCopy(status);
    if (!self->given_up_.load()) self->resumption_.Resume();
  }

  const internal::ChannelKeep channel_;
  const Method& method_;
  CallContext& context_;
  const google::protobuf::MessageLite& request_;
  absl::StatusOr<Reply> reply_{absl::in_place};
  absl::Status status_;
  call::CallControl control_;
  Resumption resumption_;
  bool waits_ = false;                 // the coroutine waits; used by its thread only
  std::atomic<bool> given_up_{false};  // the coroutine is being destroyed
  internal::StopCall stop_;
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_CLIENT_CALL_H_
