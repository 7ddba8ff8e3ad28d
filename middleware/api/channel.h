// SPDX-License-Identifier: Apache-2.0
//
// Channel: calls to a server, or to one of several.
//
//   auto channel = sluice::Channel::Connect("127.0.0.1:7471");
//   if (!channel.ok()) …
//   EchoClient client(*channel);
//
// What it is    A connection to each of its servers, over queues that they share, kept up by itself: when one is lost, calls
//               under way there end with UNAVAILABLE or are tried elsewhere (RetryOptions), and it is made again
//               (options.h). ChannelOptions::balancing says who gets which call. Several channels of a process share
//               nothing so far.
// Thread-safety Any thread may call, several at a time. Nobody may be in a call when the last reference goes.
// Threads       A calling thread does the work itself while it waits (lease.h). One thread in the background takes
//               over when nobody waits, and sleeps when nothing happens; one more runs what may block in the kernel.
//               Or the user's own loop polls (ChannelOptions::driving): callbacks run there only, and calls of other threads
//               wait for it.
// What ends it  The last reference: calls that have not ended end with CANCELLED, their callbacks run there. It may go inside
//               a callback of the channel: then the thread that runs it ends the channel when the callback has returned, in
//               Poll(), Drive() or a call before that returns. Nobody can wait for the background thread to have done so.
//               Streams and coroutines hold no reference. They may outlive the channel: then their call has ended with
//               CANCELLED, and they keep the channel's memory and device resources until they go.
#ifndef SLUICE_MIDDLEWARE_API_CHANNEL_H_
#define SLUICE_MIDDLEWARE_API_CHANNEL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "google/protobuf/message_lite.h"
#include "middleware/api/call_context.h"
#include "middleware/api/client_chain.h"
#include "middleware/api/level_log.h"
#include "middleware/api/options.h"
#include "middleware/api/snapshot.h"
#include "middleware/call/client_engine.h"
#include "middleware/call/method.h"

namespace sluice {

using call::ConnectionState;  // connection_state.h says what each means for a call
using call::Method;

class Lease;
class Stack;
class StateChange;
namespace endpoint {
class Endpoint;
}
namespace verbs {
class CapabilityReport;
}
namespace internal {
class ChannelKeep;
class StreamCore;
}  // namespace internal

// Runs once when an asynchronous call has ended, on whichever thread drives the channel. It must
// not block. It may start calls; a synchronous call on the same channel answers FAILED_PRECONDITION
// there. An exception that leaves it is logged, and goes no further.
using CallDone = void (*)(void* argument, const absl::Status& status);

class Channel : public std::enable_shared_from_this<Channel> {
 public:
  // `address`: "host:port"; several, "a:7471,b:7471"; or "file:/path" of a list that is watched (resolver.h).
  // With options.resolver it says nothing, and may be empty. Returns when a connection is up, or all have failed:
  // one attempt each, options.connect_timeout at most; at once if there are no servers so far, or with
  // options.connect_in_background.
  static absl::StatusOr<std::shared_ptr<Channel>> Connect(const std::string& address,
                                                          const ChannelOptions& options = {});
  // The same over a given stack.
  static absl::StatusOr<std::shared_ptr<Channel>> ConnectOn(std::unique_ptr<Stack> stack,
                                                            const std::string& address,
                                                            const ChannelOptions& options = {});
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // Calls and waits. What generated code uses. Errors: the server's, or
  //   DEADLINE_EXCEEDED   the context's time is over; the server may still run it
  //   UNAVAILABLE         no connection, or it was lost; ErrorDetail.retry_safe says if it can't have run
  //   RESOURCE_EXHAUSTED  too many calls under way, or request or reply are over the limit: both sizes are named
  //   UNIMPLEMENTED       the server has no such method
  absl::Status Call(const Method& method, CallContext& context,
                    const google::protobuf::MessageLite& request,
                    google::protobuf::MessageLite* reply);

  // Starts a call. OK: `done(argument, status)` will run exactly once; request, reply and argument
  // stay until then. Anything else: it never will. Calls of one thread are sent in the order of
  // their start.
  // `control`, if given, outlives the call: when it has the call's number, Cancel() ends it. `reply_beside` the same: it is
  // filled with what Metadata::FromWire() reads, and the attachment.
  absl::Status StartCall(const Method& method, const CallContext& context,
                         const google::protobuf::MessageLite& request,
                         google::protobuf::MessageLite* reply, CallDone done, void* argument,
                         call::CallControl* control = nullptr,
                         call::Beside* reply_beside = nullptr);
  // The same with a callback that holds what it needs, moved from when the call has been started, and only then.
  // CallContext::set_stop_token() has no effect, and channels with interceptors take none: client_call.h's StartCall() has
  // both.
  absl::Status StartCallback(const Method& method, CallContext& context,
                             const google::protobuf::MessageLite& request,
                             google::protobuf::MessageLite* reply, call::Callback* done);
  bool intercepted() const { return !interceptors_.empty(); }

  // Memory for an attachment of this size that is sent without a copy (CallContext::set_attachment()): the server's for which
  // the next call would be, which a call with it prefers. Any thread. UNAVAILABLE: no server is up. RESOURCE_EXHAUSTED:
  // limits.large_memory_bytes is used up for now. INVALID_ARGUMENT: over the limit of a message.
  absl::StatusOr<Buffer> MakeBuffer(size_t bytes);

  // Ends it with CANCELLED, soon; any thread, inside callbacks too.
  void Cancel(uint64_t call_id);
  // The same; when it returns the call's callback has run.
  void CancelAndWait(uint64_t call_id);

  // Works for the channel on this thread, callbacks included, until `until` (asked after each pass)
  // says true or the time is over; returns what `until` says last. For one thread with many
  // asynchronous calls. One thread drives at a time; while another one waits in a call, this one
  // waits for it first. `until` and callbacks never run at the same time; if the time is over before
  // this thread's turn, `until` is not asked, and the answer is false. Inside a callback of the channel nothing is driven:
  // `until` is asked once, and the log says what is wrong. An exception that leaves `until` leaves Drive().
  bool Drive(absl::FunctionRef<bool()> until, absl::Duration timeout);

  // The user's own loop: Driving::kCaller. docs/threads.md has the loop. All of these, Drive() and the last reference's end
  // belong to one thread at a time, the loop's; until the first Poll() that is who called Connect(). Its synchronous
  // calls poll until they end.
  // One pass; never blocks; callbacks run in it. The number of things done.
  int Poll();
  // True: sleep until fd() is readable, then Poll(). False: Poll() again.
  bool PrepareToSleep();
  // For poll() or epoll, level-triggered; becomes readable when there is something to do, when a time is over, and when
  // other threads want something. The channel's; the same always. -1: no loop of the user's.
  int fd() const;
  // Makes fd() readable. Any thread.
  void Wake();

  // The servers from now on: calls under way at others end there, and are not cancelled. Any thread; what resolvers call.
  // INVALID_ARGUMENT: one of them is no address; then nothing changes.
  absl::Status SetServers(const std::vector<std::string>& addresses);

  // As given to Connect().
  const std::string& server() const { return address_; }
  // "softdc0, because …".
  const std::string& device_choice() const;
  const verbs::CapabilityReport& capabilities() const;
  // Everything that is counted. Waits until the thread that drives looks up, one pass; not inside a callback of another
  // channel that this one waits for.
  ChannelSnapshot Snapshot();
  // What happened last, the oldest first; observe/trace_events.h says what it means. Any thread.
  std::vector<base::TraceRecord> Trace() const { return engine_.trace().Copy(); }
  call::ClientCounters counters();
  endpoint::Counters endpoint_counters();
  // The state of the connection to the server that is nearest to being up. Any thread. Waits until the thread that drives looks
  // up, one pass.
  ConnectionState connection_state();
  // Waits until that state is another one than `seen`, and returns the first other state; `seen` if `timeout` is over. Any
  // thread, several at a time; works for the channel meanwhile if nobody else does. Inside a callback of the channel it
  // returns the state at once. After max_reconnect_attempts the state stays idle until a call or WaitUntilConnected().
  ConnectionState WaitForStateChange(ConnectionState seen, absl::Duration timeout);
  // The same with a callback, which runs once: as CallDone does, or before this returns if the state is another one already.
  // If the channel ends first, it runs with kClosed. (For co_await: state_change.h.)
  void StartStateChange(ConnectionState seen, absl::Duration timeout,
                        absl::AnyInvocable<void(ConnectionState now) &&> done);
  // Waits until a server is up, and has the channel connect if it is idle. Any thread. Errors:
  //   DEADLINE_EXCEEDED    `timeout` is over; the message has the reason of the last failed attempt. The channel goes on trying
  //   FAILED_PRECONDITION  inside a callback of the channel
  absl::Status WaitUntilConnected(absl::Duration timeout);

 private:
  Channel(std::unique_ptr<Stack> stack, std::string address, const ChannelOptions& options,
          const call::ClientEngineOptions& engine_options);

  friend class internal::ChannelKeep;
  friend class internal::StreamCore;
  friend class StateChange;
  class Visit;

  // Ends the channel after its last reference was dropped: here, or where this thread leaves the channel.
  static void Release(Channel* channel);
  // Ends all calls. Its callbacks run on this thread.
  void End();

  static absl::Status Validate(const std::string& address, const ChannelOptions& options);
  absl::Status Resolve(std::shared_ptr<Resolver> resolver);

  absl::Status UseServers(const std::vector<std::string>& addresses);
  ChannelSnapshot TakeSnapshot();

  absl::Status Start(const call::CallSpec& spec);
  static call::CallSpec Spec(const Method& method, const CallContext& context,
                             const google::protobuf::MessageLite* request,
                             google::protobuf::MessageLite* reply);

  std::atomic<uint32_t> keeps_{1};  // ChannelKeep's; all references together are one
  const std::unique_ptr<Stack> stack_;
  const std::string address_;
  LevelLog log_;
  ClientChain interceptors_;
  call::ClientEngine engine_;
  std::unique_ptr<endpoint::Endpoint> endpoint_;
  std::unique_ptr<Lease> lease_;
  std::shared_ptr<Resolver> resolver_;  // nullptr: the servers are those that were given
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_CHANNEL_H_
