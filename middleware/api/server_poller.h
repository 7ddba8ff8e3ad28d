// SPDX-License-Identifier: Apache-2.0
//
// ServerPoller: the part of a server that one thread polls: an endpoint, its engine, and their counters.
//
// Ownership     Server. Chain and services outlive it.
// Threads       Register(), Listen(), Start(), Drain(): one at a time, as for the server. The poller has its own thread, or the user's
//               loop calls Poll(), and then also Shutdown() and WaitForEnd(). Other functions: any.
// End           Shutdown() or Drain(), then WaitForEnd(); or the destructor, which waits for running handlers.
#ifndef SLUICE_MIDDLEWARE_API_SERVER_POLLER_H_
#define SLUICE_MIDDLEWARE_API_SERVER_POLLER_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "middleware/api/level_log.h"
#include "middleware/api/loop_descriptor.h"
#include "middleware/api/options.h"
#include "middleware/api/server_chain.h"
#include "middleware/api/snapshot.h"
#include "middleware/api/stack.h"
#include "middleware/call/server_engine.h"
#include "transport/base/mailbox.h"
#include "transport/endpoint/endpoint.h"

namespace sluice {

class ServerPoller {
 public:
  static absl::StatusOr<std::unique_ptr<ServerPoller>> Create(std::unique_ptr<Stack> stack,
                                                              const ServerOptions& options,
                                                              ServerChain* chain);
  ~ServerPoller();
  ServerPoller(const ServerPoller&) = delete;
  ServerPoller& operator=(const ServerPoller&) = delete;

  // Call these two before Start().
  absl::Status Register(call::MethodHandler handler) {
    return engine_.Register(std::move(handler));
  }
  absl::StatusOr<uint16_t> Listen(const std::string& host, uint16_t port) {
    return endpoint_->Listen(host, port);
  }

  // Starts to serve. Call once. `on_end` runs on the polling thread when the poller has ended.
  void Start(absl::AnyInvocable<void()> on_end);
  // Any thread.
  bool started() const { return started_.load(std::memory_order_acquire); }

  // For the user's own loop, as in server.h. Without a loop the results are 0, false and -1.
  int Poll();
  bool PrepareToSleep();
  int fd() const { return loop_ == nullptr ? -1 : loop_->fd(); }
  void Wake() { endpoint_->Wake(); }
  // Returns whether this thread is inside a handler, or inside other code that the poller calls.
  bool InHandler() const;

  // These two start the end of the poller. Times are times of the stack's clock.
  void Shutdown(int64_t stop_by_ns);
  void Drain(int64_t cancel_at_ns, int64_t stop_by_ns);
  // Blocks until the poller has ended. Call after Shutdown() or Drain(). Returns false if a handler is still running at `give_up_ns`.
  // With the user's own loop, this function polls until the end.
  bool WaitForEnd(int64_t give_up_ns);
  call::DrainPhase drain_phase() const { return drain_phase_.load(); }
  // Any thread. Returns whether it was started and has ended.
  bool ended() const {
    std::lock_guard lock(mutex_);
    return ended_;
  }

  Stack& stack() const { return *stack_; }
  const call::ServerEngine& engine() const { return engine_; }  // stats() and trace()
  // Returns the counters as of the last time the poller was idle, or of the last answer to Ask().
  ServerSnapshot Published() const;
  // Requests the counters from the polling thread, and waits for at most `patience`. On the polling thread, it returns them at once,
  // and if `only_tenant` is set, lists peers and calls of that tenant only. `methods` is not set.
  ServerSnapshot Ask(size_t details, absl::Duration patience,
                     std::optional<std::string_view> only_tenant) const;
  // Returns whether this thread is the polling thread.
  bool PolledHere() const { return engine_.PolledHere(); }

 private:
  ServerPoller(std::unique_ptr<Stack> stack, const ServerOptions& options, ServerChain* chain);

  // Polls until a shutdown or a drain is requested and has ended, then disconnects the peers.
  void Serve();
  void StepDrain();
  // Waits for handlers whose callers no longer wait. Returns false if a handler is still running at `give_up_ns`.
  bool RunOut(int64_t give_up_ns);
  void ServeUntil(absl::FunctionRef<bool()> until);
  // Publishes the counters, and sleeps until there is work. Returns at once if `until` returns true.
  void Sleep(absl::FunctionRef<bool()> until);
  void Publish();
  // Mail to the polling thread, which then publishes its counters with details.
  struct SnapshotRequest : base::MailNode {
    ServerPoller* poller = nullptr;
  };
  static void OnSnapshotRequest(base::MailNode* node);
  void Look(size_t details, std::optional<std::string_view> only_tenant,
            ServerSnapshot* snapshot) const;
  void LookAtPeers(size_t details, std::optional<std::string_view> only_tenant,
                   ServerSnapshot* snapshot) const;
  void LookAtCalls(std::optional<std::string_view> only_tenant, ServerSnapshot* snapshot) const;

  const int64_t spin_ns_;
  const std::unique_ptr<Stack> stack_;
  LevelLog log_;
  mutable call::ServerEngine engine_;  // used by the polling thread once that runs
  std::unique_ptr<endpoint::Endpoint> endpoint_;
  std::unique_ptr<LoopDescriptor> loop_;  // nullptr: the poller has its own thread
  // Released after all that the polling thread and the functions of any thread use is set.
  std::atomic<bool> started_{false};
  bool in_poll_ = false;  // used by the user's loop: handlers may run
  bool closed_ = false;   // used by the polling thread: the engine is closed

  std::atomic<bool> stopping_{false};
  std::atomic<int64_t> stop_by_ns_{0};
  std::atomic<bool> draining_{false};
  int64_t cancel_at_ns_ = 0;  // written before draining_
  std::atomic<call::DrainPhase> drain_phase_{call::DrainPhase::kServing};
  mutable std::mutex mutex_;
  std::condition_variable ended_changed_;
  bool ended_ = false;  // mutex_
  mutable SnapshotRequest snapshot_request_;
  mutable bool snapshot_requested_ = false;  // mutex_; snapshot_request_ is posted
  mutable size_t details_ = 0;               // mutex_; number of details that are requested
  uint64_t answers_ = 0;                     // mutex_
  mutable std::condition_variable answered_;
  ServerSnapshot published_;  // mutex_; without methods
  absl::AnyInvocable<void()> on_end_;
  std::mutex join_mutex_;
  std::thread thread_;  // join_mutex_ guards its creation and its join()
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_SERVER_POLLER_H_
