// SPDX-License-Identifier: Apache-2.0
//
// Messenger: flows to and from other processes. middleware/flow/flow.h defines flows and their
// handlers.
//
//   auto messenger = sluice::Messenger::Create();                                      // check each status
//   absl::Status status =
//       (*messenger)->Accept("prices", {}, [&](sluice::Flow flow, const sluice::Offer&) { return &handler; });
//   absl::StatusOr<uint16_t> port = (*messenger)->Listen("127.0.0.1:7480");            // in one process
//
//   absl::StatusOr<sluice::Flow> flow =
//       (*messenger)->Open("127.0.0.1:7480", "prices", {.priority = sluice::Priority::kHigh}, &handler);
//   (*messenger)->Drive([&] { return handler.done; }, absl::Seconds(10));              // in another
//
// Purpose       One endpoint with its own queues, and any number of flows over one connection per
//               address. The first Open() to an address connects. The connection stays until a
//               process ends or the peer does not respond. Then its flows end with an error, and
//               the next Open() connects again.
// Ownership     The user owns it. Handlers outlive their flows.
// Threads       One thread makes all calls except Wake(), and runs all handlers, inside Poll(),
//               Drive() and Close(). No thread of the object polls: use Drive(), or your own loop
//               with Poll(), PrepareToSleep() and fd(). One background thread runs operations that
//               may block in the kernel.
// End           Close() or the destructor. Open flows end with CANCELLED here and with UNAVAILABLE
//               at the peer. Inside a handler Close() takes effect when the handler has returned;
//               Poll() and Drive() do nothing; the destructor writes a message to standard error
//               and ends the process.
// Processes     After fork() a child cannot use the messenger: functions with a status fail with FAILED_PRECONDITION, and the others have
//               no effect. The destructor returns at once there, and the handlers of the flows are not called. Flows that are open must
//               not be used in the child, and a handler must not return there. The parent's messenger is not affected.
#ifndef SLUICE_MIDDLEWARE_API_MESSENGER_H_
#define SLUICE_MIDDLEWARE_API_MESSENGER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "middleware/api/fork_count.h"
#include "middleware/api/level_log.h"
#include "middleware/api/options.h"
#include "middleware/flow/flow.h"
#include "middleware/flow/flow_engine.h"
#include "transport/endpoint/endpoint.h"

namespace sluice {

using flow::Acceptor;
using flow::Flow;
using flow::FlowBuffer;
using flow::FlowHandler;
using flow::FlowOptions;
using flow::FlowTotals;
using flow::Offer;
using flow::Priority;

class Stack;
namespace verbs {
class CapabilityReport;
}

class Messenger {
 public:
  static absl::StatusOr<std::unique_ptr<Messenger>> Create(const MessengerOptions& options = {});
  // The same over `stack`.
  static absl::StatusOr<std::unique_ptr<Messenger>> CreateOn(std::unique_ptr<Stack> stack,
                                                             const MessengerOptions& options = {});
  ~Messenger();
  Messenger(const Messenger&) = delete;
  Messenger& operator=(const Messenger&) = delete;

  // Listens on "host:port"; port 0: any free port. Returns the port.
  absl::StatusOr<uint16_t> Listen(const std::string& address);
  // Sets the acceptor of flows to `end` of this process. Errors: ALREADY_EXISTS (`end` has an
  // acceptor), INVALID_ARGUMENT.
  absl::Status Accept(const std::string& end, const FlowOptions& options, Acceptor acceptor);
  // Opens a flow. Does not block: `handler` gets OnOpen(), or OnClosed() with the reason. `handler`
  // outlives the flow.
  // Errors: INVALID_ARGUMENT (the address, the name (1 to 255 bytes) or an option),
  // RESOURCE_EXHAUSTED (max_flows).
  absl::StatusOr<Flow> Open(const std::string& address, const std::string& end,
                            const FlowOptions& options, FlowHandler* handler);

  // Runs one pass, and returns the number of events handled. Does not block. Transmits messages
  // that were sent since the last pass.
  int Poll();
  // Polls, and sleeps while there is nothing to do, until `until` returns true or `timeout` has
  // passed. Evaluates `until` after each pass; returns its last result.
  bool Drive(absl::FunctionRef<bool()> until, absl::Duration timeout);

  // For your own loop. True: sleep until fd() is readable, for at most SleepLimit(), then call
  // Poll(). False: call Poll() again.
  bool PrepareToSleep();
  int fd() const { return endpoint_->fd(); }
  absl::Duration SleepLimit() const;
  // Makes fd() readable. Any thread.
  void Wake();

  void Close();

  const std::string& device_choice() const;
  const verbs::CapabilityReport& capabilities() const;
  const flow::FlowCounters& counters() const { return engine_->counters(); }
  endpoint::Counters endpoint_counters() const;
  uint32_t flows() const { return engine_->flows(); }

 private:
  Messenger(std::unique_ptr<Stack> stack, const MessengerOptions& options);
  const int64_t spin_ns_;
  const internal::Creator creator_;
  std::unique_ptr<Stack> stack_;
  LevelLog log_;
  std::unique_ptr<flow::FlowEngine> engine_;
  std::unique_ptr<endpoint::Endpoint> endpoint_;
  bool in_handler_ = false;    // a handler runs
  bool close_wanted_ = false;  // a handler called Close()
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_MESSENGER_H_
