// SPDX-License-Identifier: Apache-2.0
//
// Server: runs services for whoever connects.
//
//   EchoImpl echo;                                             // outlives the server
//   auto server = sluice::Server::Create();
//   if (!server.ok()) return server.status();
//   if (absl::Status status = (*server)->Register(&echo); !status.ok()) return status;
//   absl::StatusOr<uint16_t> port = (*server)->Listen("127.0.0.1:7471");
//   if (!port.ok()) return port.status();                      // the port is in use, for example
//   return (*server)->Wait();                                  // until SIGINT or SIGTERM, then drains
//
// Threads       One polls and runs the handlers, from Listen() on: it spins while there is work, then sleeps; or several do
//               (ServerOptions::pollers), or the user's own loop (ServerOptions::driving). Those of a service that was registered with an executor run there
//               (service.h). One more runs what may block in the kernel.
// Thread-safety Create, Register and Listen from one thread, or one at a time. After Listen(): Wait, Drain and Shutdown from any,
//               at the same time. With a loop of the user's all of them from that. Services outlive the server.
// What ends it  Drain(), Shutdown(), or the destructor, which waits for handlers that run. None of them inside a handler of
//               this server: the first two refuse it with FAILED_PRECONDITION, the destructor says so and ends the process.
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
  // Runs the service's plain functions, several at a time; nullptr: they run on the polling thread, one after another.
  // Coroutines begin there, and go to an executor by themselves (run_on.h). Outlives the server.
  Executor* executor = nullptr;
  // As in ExecutorOptions; not set: the server's.
  std::optional<uint32_t> max_waiting_calls;
  std::optional<absl::Duration> max_wait;
};

struct WaitOptions {
  // Signals that end Server::Wait(). May be empty: none does. SIGKILL and SIGSTOP can't be given.
  std::vector<int> signals = {SIGINT, SIGTERM};
  // Timeout of the Drain() that follows. Zero: calls under way are cancelled at once.
  absl::Duration drain_timeout = absl::Seconds(10);
};

class Server {
 public:
  static absl::StatusOr<std::unique_ptr<Server>> Create(const ServerOptions& options = {});
  // The same over a given stack, for one poller.
  static absl::StatusOr<std::unique_ptr<Server>> CreateOn(std::unique_ptr<Stack> stack,
                                                          const ServerOptions& options = {});
  // One for each poller; who connects to the first one is spread over all by the stacks.
  static absl::StatusOr<std::unique_ptr<Server>> CreateOn(
      std::vector<std::unique_ptr<Stack>> stacks, const ServerOptions& options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Before Listen(). ALREADY_EXISTS: a method of it is registered.
  absl::Status Register(Service* service, const RegisterOptions& options = {});

  // The names of those that are registered, in order. Does not change after Listen().
  const std::vector<std::string>& services() const { return services_; }
  // "host:port"; port 0 takes a free one. Returns the port. Once.
  absl::StatusOr<uint16_t> Listen(const std::string& address);

  // The user's own loop: Driving::kCaller, from Listen() on. docs/threads.md has the loop.
  // One pass; never blocks; handlers run in it. The number of things done.
  int Poll();
  // True: sleep until fd() is readable, then Poll(). False: Poll() again.
  bool PrepareToSleep();
  // For poll() or epoll, level-triggered; becomes readable when there is something to do, and when a time is over. The
  // server's; the same always. -1: no loop of the user's.
  int fd() const;
  // Makes fd() readable. Any thread.
  void Wake();

  // Blocks until one of `options.signals` comes, then drains (Drain()) and returns its status. Also returns, with OK, when the
  // server has ended otherwise: after Drain(), BeginDrain() or Shutdown(). Do not destroy the server while a thread waits.
  //
  // Handles the signals while it blocks; they then do what they did before, so a second SIGINT ends a process that does not
  // handle it. A signal that comes before Wait() is not kept, unless the program has blocked it (end_signals.h). Up to 16
  // threads of a process may wait; each hears of a signal.
  // Errors, beside Drain()'s:
  // - FAILED_PRECONDITION: before Listen(); inside a handler; with a loop of the user's, which polls instead.
  // - INVALID_ARGUMENT: a signal that can't be handled.
  // - RESOURCE_EXHAUSTED: 16 threads wait.
  absl::Status Wait(const WaitOptions& options = {});

  // The end that costs callers nothing, in phases (call/drain.h): services hear OnDrain(), so that health says
  // NOT_SERVING; peers are told, and new calls end UNAVAILABLE, known not to have run; those under way have three
  // quarters of `timeout` to end by themselves, then are cancelled (UNAVAILABLE at their callers), and have the rest.
  // Then the server says goodbye. DEADLINE_EXCEEDED: something did not end, as with Shutdown(). A drain
  // that has begun already goes on with its own times, and this waits for it.
  // With a loop of the user's this polls to the end itself, the server and nothing else. FAILED_PRECONDITION inside a
  // handler: BeginDrain() may be called there.
  absl::Status Drain(absl::Duration timeout);
  // The same, and does not wait for it: for a loop of the user's, which goes on polling until drain_phase() is kDrained or
  // kOverdue, and then calls Shutdown().
  void BeginDrain(absl::Duration timeout);
  // Any thread. Of several pollers the one that is least far; when all have ended, kOverdue if one of them is.
  call::DrainPhase drain_phase() const;

  // At once, for those who have no time to drain: sends the replies that wait for credit, says goodbye to all peers and ends the polling thread.
  // Coroutines and handlers on an executor may end before, and are told to stop (ServerContext::stop_token()) after that.
  // `timeout` bounds the sending and the waiting for handlers: DEADLINE_EXCEEDED if
  // one goes on (then only the destructor waits for it, or another Shutdown()); a tenth of
  // a second may come on top. Calls that have not been answered end with UNAVAILABLE at their
  // callers. FAILED_PRECONDITION inside a handler.
  absl::Status Shutdown(absl::Duration timeout);

  // Of the clock by which the server goes.
  int64_t now_ns() const;
  const std::string& device_choice() const;
  const verbs::CapabilityReport& capabilities() const;
  // Everything that is counted, from any thread, handlers included. Polling threads are asked for their part, and waited
  // for `patience` at most (in a handler a fiftieth of a second for those of other pollers). `details`: peers (so many of each tenant at most, 0: no details at all), queues, slow calls.
  // `only_tenant`: peers and calls of this tenant only.
  ServerSnapshot Snapshot(size_t details = 0, absl::Duration patience = absl::Milliseconds(200),
                          std::optional<std::string_view> only_tenant = std::nullopt) const;
  // What happened last, the oldest first; observe/trace_events.h says what it means. Any thread.
  std::vector<base::TraceRecord> Trace() const;
  // As of the last time the server had nothing to do, or of its end.
  call::ServerCounters counters() const;
  // Likewise.
  endpoint::Counters endpoint_counters() const;
  // How the handshakes of clients ended; likewise.
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
  const ExecutorOptions executor_;
  ServerChain chain_;
  std::atomic<bool> over_{false};         // Shutdown() was said
  std::atomic<bool> drain_begun_{false};  // BeginDrain() was said
  std::mutex waits_mutex_;
  std::vector<SignalWatch*> waits_;                     // waits_mutex_; of threads in Wait()
  std::vector<std::unique_ptr<ServerPoller>> pollers_;  // the first one listens
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_SERVER_H_
