// SPDX-License-Identifier: Apache-2.0
//
// ExecutorQueue: admission to an executor: the number of calls that may wait for one of its threads, and the maximum wait.
//
// Purpose       A count and two limits. A call above the first limit is refused when it arrives. A call that has waited too long, or
//               whose caller no longer waits, is refused at its turn: its handler does not run. So a server with slow handlers refuses
//               excess calls at once, and serves the other calls in time.
// Ownership     The handlers of a service that was registered with an executor share it.
// Threads       Enter() and Leave(): polling threads. Begin(): threads of the executor.
#ifndef SLUICE_MIDDLEWARE_API_EXECUTOR_QUEUE_H_
#define SLUICE_MIDDLEWARE_API_EXECUTOR_QUEUE_H_

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "middleware/api/executor.h"
#include "middleware/call/method.h"

namespace sluice {
namespace internal {

// Engine of the call whose handler this thread runs for an executor; nullptr: none.
inline constinit thread_local const call::ServerEngine* executing_for = nullptr;

}  // namespace internal

class ExecutorQueue {
 public:
  ExecutorQueue(Executor* executor, uint32_t max_waiting, int64_t max_wait_ns)
      : executor_(executor), max_waiting_(max_waiting), max_wait_ns_(max_wait_ns) {}
  Executor* executor() const { return executor_; }

  // Admits a call; OK: Begin() or Leave() follows. RESOURCE_EXHAUSTED: `max_waiting` calls wait.
  absl::Status Enter(const call::Incoming& incoming);
  // Ends the wait of a call. OK: its handler may run. RESOURCE_EXHAUSTED: it waited for more than `max_wait_ns`. DEADLINE_EXCEEDED:
  // its deadline has passed.
  absl::Status Begin(const call::Incoming& incoming, int64_t now_ns);
  // Ends the wait of a call that does not run. Called instead of Begin().
  void Leave() { waiting_.fetch_sub(1, std::memory_order_relaxed); }

 private:
  Executor* const executor_;
  const uint32_t max_waiting_;
  const int64_t max_wait_ns_;
  std::atomic<uint32_t> waiting_{0};
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_EXECUTOR_QUEUE_H_
