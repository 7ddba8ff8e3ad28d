// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/executor_queue.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "transport/base/error.h"

namespace sluice {
namespace {

absl::Status Refused(absl::StatusCode code, const call::Incoming& incoming, absl::string_view cause,
                     absl::string_view remedy) {
  return base::Error(code, absl::StrCat(incoming.method->full_name, " refused"),
                     {.layer = "api",
                      .operation = incoming.method->full_name,
                      .cause = {cause.data(), cause.size()},
                      .remedy = {remedy.data(), remedy.size()},
                      .retry_safe = true});
}

}  // namespace

absl::Status ExecutorQueue::Enter(const call::Incoming& incoming) {
  const uint32_t waiting = waiting_.fetch_add(1, std::memory_order_relaxed);
  if (waiting < max_waiting_) return absl::OkStatus();
  waiting_.fetch_sub(1, std::memory_order_relaxed);
  return Refused(
      absl::StatusCode::kResourceExhausted, incoming,
      absl::StrCat(waiting, " calls wait for the server's executor, the limit is ", max_waiting_),
      "call less often, or raise executor.max_waiting_calls of the server");
}

absl::Status ExecutorQueue::Begin(const call::Incoming& incoming, int64_t now_ns) {
  waiting_.fetch_sub(1, std::memory_order_relaxed);
  if (now_ns >= incoming.deadline_ns) {
    return Refused(absl::StatusCode::kDeadlineExceeded, incoming,
                   "its deadline had passed when its turn came", "give it more time");
  }
  const int64_t waited_ns = now_ns - incoming.received_ns;
  if (waited_ns <= max_wait_ns_) return absl::OkStatus();
  return Refused(absl::StatusCode::kResourceExhausted, incoming,
                 absl::StrCat("it had waited ", absl::FormatDuration(absl::Nanoseconds(waited_ns)),
                              " for the server's executor, the limit is ",
                              absl::FormatDuration(absl::Nanoseconds(max_wait_ns_))),
                 "call less often, or raise executor.max_wait of the server");
}

}  // namespace sluice
