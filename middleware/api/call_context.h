// SPDX-License-Identifier: Apache-2.0
//
// CallContext: how long a call may take, and what it waits for.
//
//   sluice::CallContext context(absl::Milliseconds(100));
//   absl::StatusOr<SayReply> reply = client.Say(context, request);
//
// One context may serve many calls, one after another: each has the whole timeout, counted from its
// own start. Thread-safety: none; one thread, or const use.
#ifndef SLUICE_MIDDLEWARE_API_CALL_CONTEXT_H_
#define SLUICE_MIDDLEWARE_API_CALL_CONTEXT_H_

#include <cstdint>

#include "absl/time/time.h"
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

  // For a call made by a handler: no later than the call it serves. `timeout` may shorten it
  // further.
  static CallContext FromServer(const ServerContext& server,
                                absl::Duration timeout = absl::InfiniteDuration()) {
    CallContext context(timeout);
    context.deadline_ns_ = server.deadline_ns();
    return context;
  }

  // Not connected: wait for a connection until the deadline, instead of failing with UNAVAILABLE.
  void set_wait_for_ready(bool wait) { wait_for_ready_ = wait; }

  int64_t timeout_ns() const { return timeout_ns_; }
  int64_t deadline_ns() const {
    return deadline_ns_;
  }  // CLOCK_MONOTONIC; call::kNoDeadlineNs: none
  bool wait_for_ready() const { return wait_for_ready_; }

 private:
  int64_t timeout_ns_;
  int64_t deadline_ns_ = call::kNoDeadlineNs;
  bool wait_for_ready_ = false;
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_CALL_CONTEXT_H_
