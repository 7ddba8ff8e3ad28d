// SPDX-License-Identifier: Apache-2.0
//
// Messenger: flows to and from other processes (middleware/flow/flow.h says what a flow is, and what its handler hears).
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
// What it is    One endpoint with its own queues, and any number of flows over one connection for each address. The
//               first Open() to an address connects; the connection stays until a process ends or is not heard of any
//               more. Then its flows end with an error; the next Open() connects again.
// Thread-safety None: one thread makes all calls but Wake(), and runs all handlers, inside Poll(), Drive() and Close().
// Threads       None polls by itself: either Drive(), or a loop of the user's over Poll(), PrepareToSleep() and fd(). One
//               in the background runs what may block in the kernel.
// What ends it  Close() or the destructor: flows that are left end with CANCELLED here, UNAVAILABLE there. Inside a handler
//               Close() takes effect when the handler has returned; the destructor refuses: it says so and ends the process.
//               Poll() and Drive() do nothing there.
#ifndef SLUICE_MIDDLEWARE_API_MESSENGER_H_
#define SLUICE_MIDDLEWARE_API_MESSENGER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
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
  // The same over a given stack.
  static absl::StatusOr<std::unique_ptr<Messenger>> CreateOn(std::unique_ptr<Stack> stack,
                                                             const MessengerOptions& options = {});
  ~Messenger();
  Messenger(const Messenger&) = delete;
  Messenger& operator=(const Messenger&) = delete;

  // "host:port"; port 0 takes a free one. Returns the port.
  absl::StatusOr<uint16_t> Listen(const std::string& address);
  // Whoever opens a flow to `end` of this process is the acceptor's. ALREADY_EXISTS: it has one; INVALID_ARGUMENT.
  absl::Status Accept(const std::string& end, const FlowOptions& options, Acceptor acceptor);
  // Never waits: the handler hears OnOpen(), or OnClosed() with the reason. It outlives the flow.
  // INVALID_ARGUMENT: the address, the name (1 to 255 bytes) or an option; RESOURCE_EXHAUSTED: max_flows.
  absl::StatusOr<Flow> Open(const std::string& address, const std::string& end,
                            const FlowOptions& options, FlowHandler* handler);

  // One pass; never blocks. The number of things done. What was sent outside of it goes out in it.
  int Poll();
  // Polls, and sleeps where there is nothing to do, until `until` (asked after each pass) says true or the time is
  // over; returns what it says last.
  bool Drive(absl::FunctionRef<bool()> until, absl::Duration timeout);

  // For a loop of one's own. True: sleep until fd() is readable, SleepLimit() at most, then Poll(). False: poll again.
  bool PrepareToSleep();
  int fd() const { return endpoint_->fd(); }
  absl::Duration SleepLimit() const;
  // Ends a sleep. Any thread.
  void Wake() { endpoint_->Wake(); }

  void Close();

  const std::string& device_choice() const;
  const verbs::CapabilityReport& capabilities() const;
  const flow::FlowCounters& counters() const { return engine_.counters(); }
  endpoint::Counters endpoint_counters() const { return endpoint_->Counts(); }
  uint32_t flows() const { return engine_.flows(); }

 private:
  Messenger(std::unique_ptr<Stack> stack, const MessengerOptions& options);
  const int64_t spin_ns_;
  const std::unique_ptr<Stack> stack_;
  LevelLog log_;
  flow::FlowEngine engine_;
  std::unique_ptr<endpoint::Endpoint> endpoint_;
  bool in_handler_ = false;    // handlers run
  bool close_wanted_ = false;  // by one of them
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_MESSENGER_H_
