// SPDX-License-Identifier: Apache-2.0
//
// ServerPoller: the part of a server that one thread polls: an endpoint, its engine, and their counters.
//
// Ownership     Server. Chain and services outlive it.
// Threads       Register(), Listen(), Start(), Drain(): one at a time, as the server's. The poller has a thread of its own, or the user's
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

  // Before Start().
  absl::Status Register(call::MethodHandler handler) {
    return engine_.Register(std::move(handler));
  }
  absl::StatusOr<uint16_t> Listen(const std::string& host, uint16_t port) {
    return endpoint_->Listen(host, port);
  }

  // Serves from now on. Once. `on_end` is called on the polling thread when it has ended.
  void Start(absl::AnyInvocable<void()> on_end);
  bool started() const { return started_; }

  // The user's own loop: server.h says how. Without one: 0, false, -1.
  int Poll();
  bool PrepareToSleep();
  int fd() const { return loop_ == nullptr ? -1 : loop_->fd(); }
  void Wake() { endpoint_->Wake(); }
  // This thread runs a handler, or whatever else the poller calls.
  bool InHandler() const;

  // Begin its end; times are the stack's clock's.
  void Shutdown(int64_t stop_by_ns);
  void Drain(int64_t cancel_at_ns, int64_t stop_by_ns);
  // After one of these. False: a handler is still running at `give_up_ns`. In the user's own loop it polls to the end here.
  bool WaitForEnd(int64_t give_up_ns);
  call::DrainPhase drain_phase() const { return drain_phase_.load(); }
  // Any thread. Returns whether it was started and has ended.
  bool ended() const {
    std::lock_guard lock(mutex_);
    return ended_;
  }

  Stack& stack() const { return *stack_; }
  const call::ServerEngine& engine() const { return engine_; }  // stats() and trace()
  // As of the last time there was nothing to do, or of the last answer.
  ServerSnapshot Published() const;
  // Asks the polling thread, and waits for `patience` at most; without methods. On that thread itself: at once, and without what is
  // of other tenants than `only_tenant`, if it is given.
  ServerSnapshot Ask(size_t details, absl::Duration patience,
                     std::optional<std::string_view> only_tenant) const;
  // This is the polling thread.
  bool PolledHere() const { return engine_.PolledHere(); }

 private:
  ServerPoller(std::unique_ptr<Stack> stack, const ServerOptions& options, ServerChain* chain);

  // Polls until it is told to end, then disconnects its peers.
  void Serve();
  void StepDrain();
  // Waits for handlers whose callers no longer wait. Returns false if a handler is still running at `give_up_ns`.
  bool RunOut(int64_t give_up_ns);
  void ServeUntil(absl::FunctionRef<bool()> until);
  // Nothing happened for a while: sleeps until something does.
  void Sleep(absl::FunctionRef<bool()> until);
  void Publish();
  // Has the polling thread publish, with details.
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
  mutable call::ServerEngine engine_;  // the polling thread's, once that runs
  std::unique_ptr<endpoint::Endpoint> endpoint_;
  std::unique_ptr<LoopDescriptor> loop_;  // nullptr: a thread of its own
  bool started_ = false;
  bool in_poll_ = false;  // the user's loop's: it runs handlers
  bool closed_ = false;   // the polling thread's: goodbye has been said

  std::atomic<bool> stopping_{false};
  std::atomic<int64_t> stop_by_ns_{0};
  std::atomic<bool> draining_{false};
  int64_t cancel_at_ns_ = 0;  // written before draining_
  std::atomic<call::DrainPhase> drain_phase_{call::DrainPhase::kServing};
  mutable std::mutex mutex_;
  std::condition_variable ended_changed_;
  bool ended_ = false;  // mutex_
  mutable SnapshotRequest snapshot_request_;
  mutable bool snapshot_requested_ = false;  // mutex_; snapshot_request_ is with the polling thread
  mutable size_t details_ = 0;               // mutex_; that it is asked for
  uint64_t answers_ = 0;                     // mutex_
  mutable std::condition_variable answered_;
  ServerSnapshot published_;  // mutex_; without methods
  absl::AnyInvocable<void()> on_end_;
  std::mutex join_mutex_;
  std::thread thread_;  // join_mutex_: joining it
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_SERVER_POLLER_H_
