// SPDX-License-Identifier: Apache-2.0
//
// Server: runs services for its clients.
//
//   EchoImpl echo;                                             // outlives the server
//   auto server = sluice::Server::Create();
//   if (!server.ok()) return server.status();
//   if (absl::Status status = (*server)->Register(&echo); !status.ok()) return status;
//   absl::StatusOr<uint16_t> port = (*server)->Listen("127.0.0.1:7471");
//   if (!port.ok()) return port.status();                      // the port is in use, for example
//   return (*server)->Wait();                                  // until SIGINT or SIGTERM, then drains
//
// Ownership     The user owns it. Services outlive the server.
// Threads       From Listen() on one thread polls and runs the handlers: it spins while there is
//               work, then sleeps. Alternatives: several such threads (ServerOptions::pollers), or
//               your own loop (ServerOptions::driving). Handlers of a service registered with an
//               executor run on the executor (service.h). One more thread runs operations that may
//               block in the kernel. Call Create, Register and Listen on one thread at a time.
//               After Listen() call Wait, Drain and Shutdown on any thread, at the same time. With
//               your own loop, call these functions on the loop's thread.
// End           Drain(), Shutdown(), or the destructor, which waits for running handlers. Not
//               inside a handler of this server: Drain() and Shutdown() fail with
//               FAILED_PRECONDITION; the destructor writes a message to standard error and ends the
//               process.
// Processes     After fork() a child cannot use the server: functions with a status fail with FAILED_PRECONDITION, the others have no
//               effect, and counters are zero. The destructor returns at once there. A handler must not return in a child. The parent's server
//               is not affected.
#ifndef SLUICE_MIDDLEWARE_API_SERVER_H_
#define SLUICE_MIDDLEWARE_API_SERVER_H_

#include <signal.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "middleware/api/fork_count.h"
#include "middleware/api/options.h"
#include "middleware/api/server_chain.h"
#include "middleware/api/service.h"
#include "middleware/api/snapshot.h"
#include "middleware/call/server_engine.h"
#include "transport/endpoint/endpoint.h"

namespace sluice {

class ServerPoller;
class SignalWatch;
class Stack;
namespace verbs {
class CapabilityReport;
}

struct RegisterOptions {
  // Executor that runs the service's plain functions, several at a time. nullptr (default): they
  // run on the polling thread, one after another. Coroutines start on the polling thread, and move
  // to an executor with RunOn() (run_on.h). The executor outlives the server.
  Executor* executor = nullptr;
  // As in ExecutorOptions. Default: the values in ServerOptions.
  std::optional<uint32_t> max_waiting_calls;
  std::optional<absl::Duration> max_wait;
};

struct WaitOptions {
  // Signals that end Server::Wait(). Empty: no signal ends it. SIGKILL and SIGSTOP are not allowed.
  std::vector<int> signals = {SIGINT, SIGTERM};
  // Timeout of the Drain() that follows. Zero: calls in progress are cancelled at once.
  absl::Duration drain_timeout = absl::Seconds(10);
};

class Server {
 public:
  static absl::StatusOr<std::unique_ptr<Server>> Create(const ServerOptions& options = {});
  // The same over `stack`, with one poller.
  static absl::StatusOr<std::unique_ptr<Server>> CreateOn(std::unique_ptr<Stack> stack,
                                                          const ServerOptions& options = {});
  // The same with one stack for each poller. The first stack listens, and the stacks distribute new
  // clients.
  static absl::StatusOr<std::unique_ptr<Server>> CreateOn(
      std::vector<std::unique_ptr<Stack>> stacks, const ServerOptions& options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Registers a service. Call before Listen(). ALREADY_EXISTS: one of its methods is registered.
  absl::Status Register(Service* service, const RegisterOptions& options = {});

  // Names of the registered services, in order of registration. Does not change after Listen().
  const std::vector<std::string>& services() const { return services_; }
  // Listens on "host:port"; port 0: any free port. Returns the port. Call once.
  absl::StatusOr<uint16_t> Listen(const std::string& address);

  // For your own loop (Driving::kCaller), from Listen() on. docs/threads.md has the loop.
  // Runs one pass, handlers included, and returns the number of events handled. Does not block.
  int Poll();
  // True: sleep until fd() is readable, then call Poll(). False: call Poll() again.
  bool PrepareToSleep();
  // Descriptor for poll() or epoll, level-triggered. It becomes readable when there is work or a
  // timer has expired. The server owns it; it does not change. -1: Driving::kThreads.
  int fd() const;
  // Makes fd() readable. Any thread.
  void Wake();

  // Blocks until one of `options.signals` arrives, then drains (Drain()) and returns its status.
  // Returns OK when the server has ended otherwise: after Drain(), BeginDrain() or Shutdown(). Do
  // not destroy the server while a thread waits.
  //
  // Handles the signals while it blocks, and restores their previous actions afterwards: a second
  // SIGINT ends a process that does not handle it. A signal that arrives before Wait() is lost,
  // unless the program has blocked it (end_signals.h). Up to 16 threads of a process may wait; each
  // wakes on a signal.
  // Errors, in addition to those of Drain():
  // - FAILED_PRECONDITION: before Listen(); inside a handler; with your own loop, which polls
  //   instead.
  // - INVALID_ARGUMENT: a signal that cannot be handled.
  // - RESOURCE_EXHAUSTED: 16 threads wait.
  absl::Status Wait(const WaitOptions& options = {});

  // Shuts down without failing calls that can be retried, in phases (call/drain.h):
  // - Services get OnDrain(), so that health reports NOT_SERVING. The server notifies its peers.
  //   New calls end with UNAVAILABLE and IsRetrySafe().
  // - Calls in progress have three quarters of `timeout` to end. Then they are cancelled
  //   (UNAVAILABLE at their callers), and have the remaining quarter.
  // - The server disconnects.
  // Blocks until the end. If a drain has begun before, waits for it; its timeout does not change.
  // With your own loop this function polls until the end, the server and nothing else.
  // Errors: DEADLINE_EXCEEDED (a call or a handler did not end, as with Shutdown()),
  // FAILED_PRECONDITION (inside a handler: call BeginDrain() there).
  absl::Status Drain(absl::Duration timeout);
  // The same without waiting, for your own loop: continue polling until drain_phase() is kDrained
  // or kOverdue, then call Shutdown().
  void BeginDrain(absl::Duration timeout);
  // Any thread. With several pollers: the earliest phase of any poller; when all have ended,
  // kOverdue if one of them is.
  call::DrainPhase drain_phase() const;

  // Shuts down at once: sends the replies that wait for credit, disconnects all peers, and ends the
  // polling thread. Coroutines and handlers on an executor may end during that time; the others are
  // then asked to stop (ServerContext::stop_token()). Unanswered calls end with UNAVAILABLE at
  // their callers.
  // `timeout`: limit for sending replies and waiting for handlers; the function may take up to a
  // tenth of a second longer.
  // Errors: DEADLINE_EXCEEDED (a handler is still running: the destructor, or another Shutdown(),
  // waits for it), FAILED_PRECONDITION (inside a handler).
  absl::Status Shutdown(absl::Duration timeout);

  // Current time of the server's clock, in nanoseconds.
  int64_t now_ns() const;
  const std::string& device_choice() const;
  const verbs::CapabilityReport& capabilities() const;
  // Returns all counters. Any thread, handlers included. Waits for the polling threads for at most
  // `patience` (in a handler: for the other polling threads, at most 20 ms).
  // `details`: maximum number of peers listed per tenant, with queues and slow calls; 0 (default):
  // no details.
  // `only_tenant`: only peers and calls of this tenant.
  ServerSnapshot Snapshot(size_t details = 0, absl::Duration patience = absl::Milliseconds(200),
                          std::optional<std::string_view> only_tenant = std::nullopt) const;
  // Most recent events, oldest first; observe/trace_events.h defines them. Any thread.
  std::vector<base::TraceRecord> Trace() const;
  // Counters as of the last time the server was idle, or of its end.
  call::ServerCounters counters() const;
  // Likewise, for the transport.
  endpoint::Counters endpoint_counters() const;
  // Likewise: results of the handshakes of clients.
  endpoint::HandshakeCounts handshakes() const;

 private:
  explicit Server(const ServerOptions& options);

  absl::Status WaitForEnd(std::string_view operation, int64_t timeout_ns);
  bool Ended() const;
  void OnPollerEnd();
  bool InHandler() const;
  ServerSnapshot Published() const;

  std::vector<std::string> services_;
  std::vector<Service*> registered_;
  const internal::Creator creator_;
  const ExecutorOptions executor_;
  ServerChain chain_;
  std::atomic<bool> over_{false};         // Shutdown() was called
  std::atomic<bool> drain_begun_{false};  // BeginDrain() was called
  std::mutex waits_mutex_;
  std::vector<SignalWatch*> waits_;                     // waits_mutex_; threads in Wait()
  std::vector<std::unique_ptr<ServerPoller>> pollers_;  // the first one listens
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_SERVER_H_
