// SPDX-License-Identifier: Apache-2.0
//
// Channel: makes calls to one server, or to one of several.
//
//   auto channel = sluice::Channel::Connect("127.0.0.1:7471");
//   if (!channel.ok()) …
//   EchoClient client(*channel);
//
// Purpose       Keeps a connection to each of its servers, over queues that they share. If a
//               connection is lost, the channel reconnects; calls in flight on it end with
//               UNAVAILABLE or are retried on another server (RetryOptions).
//               ChannelOptions::balancing selects the server for each call. Several channels of a
//               process share nothing, unless they are in one Runtime (runtime.h). There, channels to the same address
//               with the same options share their connections, too (ChannelOptions::share_connections).
// Ownership     References are shared. Do not destroy the last reference while a call is in
//               progress. Streams and coroutines hold no reference.
// Threads       Any thread may call, several at a time. A calling thread polls while it waits
//               (lease.h). A background thread polls when no thread waits, and sleeps when there is
//               no work; one more thread runs operations that may block in the kernel. With your
//               own loop (ChannelOptions::driving) only the loop polls: callbacks run there, and
//               calls of other threads wait for it. Channels of a Runtime share these threads, or the
//               loop. For them, the rules of this header about polling and about callbacks hold
//               for all channels of the runtime together.
// Errors        absl::Status with cause and remedy (docs/errors.md). IsRetrySafe() states whether a
//               retry is safe.
// End           The last reference is destroyed: calls in flight end with CANCELLED, and their
//               callbacks run on that thread. Inside a callback of the channel it is allowed: the
//               thread that runs the callback ends the channel after the callback, before Poll(),
//               Drive() or a call returns. If that is the background thread, no thread can wait for
//               the end. In a Runtime it is allowed inside callbacks of other channels too.
//               The background thread then ends the channel. With your own loop, the loop's thread
//               ends it before it returns from Poll() or another function. Streams and coroutines
//               may outlive the channel: their calls have ended with CANCELLED, and they keep the
//               channel's memory and device resources until they are destroyed.
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
#include "middleware/api/lease_seat.h"
#include "middleware/api/level_log.h"
#include "middleware/api/options.h"
#include "middleware/api/snapshot.h"
#include "middleware/call/client_engine.h"
#include "middleware/call/method.h"

namespace sluice {

using call::ConnectionState;  // connection_state.h defines the states
using call::Method;

class Lease;
class Stack;
class StateChange;
struct ChannelEngine;
namespace verbs {
class CapabilityReport;
}
namespace internal {
class ChannelKeep;
class StreamCore;
}  // namespace internal

// Runs once when an asynchronous call has ended, on the thread that drives the channel. Must not
// block. May start calls; a synchronous call on the same channel fails with FAILED_PRECONDITION. If
// it throws, the exception is logged and dropped.
using CallDone = void (*)(void* argument, const absl::Status& status);

class Channel : public std::enable_shared_from_this<Channel> {
 public:
  // Creates a channel. Blocks until a connection is up, or one attempt for each server has failed,
  // for at most options.connect_timeout. Returns at once if there are no servers so far, or with
  // options.connect_in_background.
  // `address`: "host:port"; several: "a:7471,b:7471"; or "file:/path" of a list that is watched
  // (resolver.h). Ignored if options.resolver is set.
  static absl::StatusOr<std::shared_ptr<Channel>> Connect(const std::string& address,
                                                          const ChannelOptions& options = {});
  // The same over `stack`. options.runtime has no effect.
  static absl::StatusOr<std::shared_ptr<Channel>> ConnectOn(std::unique_ptr<Stack> stack,
                                                            const std::string& address,
                                                            const ChannelOptions& options = {});
  // The same in `runtime`; Connect() with options.runtime calls it. Errors also:
  // - FAILED_PRECONDITION: inside a callback of the runtime without connect_in_background, or in a
  //   process that was forked after the runtime was created.
  static absl::StatusOr<std::shared_ptr<Channel>> ConnectIn(std::shared_ptr<Runtime> runtime,
                                                            const std::string& address,
                                                            const ChannelOptions& options = {});
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // Makes a call, and blocks until it has ended. Used by generated code. Errors: those of the
  // server, or
  // - DEADLINE_EXCEEDED: the deadline of the context has passed; the server may still run the call.
  // - UNAVAILABLE: not connected, or the connection was lost; ErrorDetail.retry_safe states whether
  //   the call can have run.
  // - RESOURCE_EXHAUSTED: too many calls in flight, or request or reply over the limit; the message
  //   has both sizes.
  // - UNIMPLEMENTED: the server has no such method.
  absl::Status Call(const Method& method, CallContext& context,
                    const google::protobuf::MessageLite& request,
                    google::protobuf::MessageLite* reply);

  // Starts a call. OK: `done(argument, status)` runs exactly once; context, request, reply and
  // argument must stay valid until then. Other status: `done` does not run. If another thread drives,
  // that thread starts the call; if it cannot, it runs `done` with the error. This function waits for
  // that thread only if max_outstanding_calls or 1,024 handed-over calls are reached. Calls of one
  // thread are sent in the order of their start.
  // `control`: optional; outlives the call. Once it has the call's number, Cancel() can end the
  // call. CallControl::Cancel() also cancels a call that was not started yet.
  // `reply_beside`: optional; outlives the call. Gets the reply's metadata, for
  // Metadata::FromWire(), and the attachment.
  absl::Status StartCall(const Method& method, const CallContext& context,
                         const google::protobuf::MessageLite& request,
                         google::protobuf::MessageLite* reply, CallDone done, void* argument,
                         call::CallControl* control = nullptr,
                         call::Beside* reply_beside = nullptr);
  // The same with a callback object. `*done` is moved from only if the result is OK.
  // CallContext::set_stop_token() has no effect, and a channel with interceptors cannot use it:
  // StartCall() in client_call.h supports both.
  absl::Status StartCallback(const Method& method, CallContext& context,
                             const google::protobuf::MessageLite& request,
                             google::protobuf::MessageLite* reply, call::Callback* done);
  bool intercepted() const { return !interceptors_.empty(); }

  // Allocates memory for an attachment of `bytes` that is sent without a copy
  // (CallContext::set_attachment()). The memory is for the server that the next call would select;
  // a call with the buffer prefers that server. Any thread.
  // Errors: UNAVAILABLE (no server is connected), RESOURCE_EXHAUSTED (limits.large_memory_bytes is
  // used up), INVALID_ARGUMENT (over the limit of a message).
  absl::StatusOr<Buffer> MakeBuffer(size_t bytes);

  // Cancels a call. Does not block. Any thread, callbacks included.
  void Cancel(uint64_t call_id);
  // The same for the call that was started with `control`, also if it was not started yet. Blocks
  // until the call's callback has run. Do not use `control` for another call.
  void CancelAndWait(call::CallControl* control);

  // Polls on this thread, callbacks included, until `until` returns true or `timeout` has passed.
  // Evaluates `until` after each pass; returns its last result. For one thread with many
  // asynchronous calls. One thread drives at a time; if another thread waits in a call, this thread
  // waits for it first. `until` and callbacks never run at the same time. If the timeout passes
  // before this thread may drive, `until` is not evaluated, and the result is false. Inside a
  // callback of the channel it does not poll: it evaluates `until` once, and the log has `drive
  // refused`. If `until` throws, the exception leaves Drive().
  bool Drive(absl::FunctionRef<bool()> until, absl::Duration timeout);

  // For your own loop (Driving::kCaller); docs/threads.md has the loop. Call these functions and
  // Drive(), and destroy the last reference, on the loop's thread. This is the thread that called
  // Poll() last, or before the first Poll() the thread that called Connect(). Synchronous calls of
  // that thread poll until they end.
  // Runs one pass, callbacks included, and returns the number of events handled. Does not block.
  int Poll();
  // True: sleep until fd() is readable, then call Poll(). False: call Poll() again.
  bool PrepareToSleep();
  // Descriptor for poll() or epoll, level-triggered. It becomes readable when there is work, a
  // timer has expired, or another thread needs the loop. The channel owns it; it does not change.
  // -1: Driving::kThreads.
  int fd() const;
  // Makes fd() readable. Any thread.
  void Wake();

  // Replaces the list of servers. Calls in flight on removed servers continue. Any thread;
  // resolvers call it. Errors; the list does not change:
  // - INVALID_ARGUMENT: an entry is not an address.
  // - FAILED_PRECONDITION: the list may belong to other channels, too (ChannelOptions::share_connections).
  absl::Status SetServers(const std::vector<std::string>& addresses);

  // The address given to Connect().
  const std::string& server() const { return address_; }
  // The selected device and the reason: "softdc0, because …".
  const std::string& device_choice() const;
  const verbs::CapabilityReport& capabilities() const;
  // Returns all counters. Waits for one pass of the thread that drives, at most `patience`: if a
  // callback blocks that thread for longer, the snapshot is not `fresh`. Do not call it without a
  // limit inside a callback of another channel that this channel waits for. Channels that share
  // connections have common counters and events: Snapshot(), Trace() and counters() return the
  // values of all these channels.
  ChannelSnapshot Snapshot(absl::Duration patience = absl::InfiniteDuration());
  // Most recent events, oldest first; observe/trace_events.h defines them. Any thread.
  std::vector<base::TraceRecord> Trace() const { return engine_.trace().Copy(); }
  call::ClientCounters counters();
  endpoint::Counters endpoint_counters();
  // State of the connection that is nearest to being up. Any thread. Waits for one pass of the
  // thread that drives.
  ConnectionState connection_state();
  // Blocks until that state differs from `seen`, and returns the new state; returns `seen` when
  // `timeout` has passed. Any thread, several at a time; polls meanwhile if no other thread does.
  // Inside a callback of the channel it returns the current state at once. After
  // max_reconnect_attempts the state stays idle until a call or WaitUntilConnected().
  ConnectionState WaitForStateChange(ConnectionState seen, absl::Duration timeout);
  // The same with a callback, which runs once: as CallDone, or before this returns if the state
  // differs already. If the channel ends first, it runs with kClosed. For co_await: state_change.h.
  void StartStateChange(ConnectionState seen, absl::Duration timeout,
                        absl::AnyInvocable<void(ConnectionState now) &&> done);
  // Blocks until a server is connected. An idle channel starts to connect. Any thread. Errors:
  // - DEADLINE_EXCEEDED: `timeout` has passed; the message has the reason of the last attempt. The
  //   channel continues to reconnect.
  // - FAILED_PRECONDITION: inside a callback of the channel.
  absl::Status WaitUntilConnected(absl::Duration timeout);

 private:
  // `stack`: `own_stack`, or the stack of `runtime`. Either `own_stack` or `runtime` is nullptr.
  Channel(std::shared_ptr<Runtime> runtime, std::unique_ptr<Stack> own_stack, Stack* stack,
          std::string address, const ChannelOptions& options,
          std::shared_ptr<ChannelEngine> engine);

  friend class internal::ChannelKeep;
  friend class internal::StreamCore;
  friend class StateChange;
  class Visit;

  // Ends the channel after its last reference was destroyed: at once, or when this thread leaves
  // the channel.
  static void Release(Channel* channel);
  // Stops the resolver and the background thread, and ends all calls. Their callbacks run on this
  // thread. In a runtime it calls LeaveRuntime().
  void End();
  // End() for a channel of a runtime, which continues. If no other channel uses the engine, blocks
  // until the engine has no peers.
  void LeaveRuntime();
  void StopResolver();
  // Sets the list of servers, and starts to connect. `channels`: number of channels that use the engine now. Returns the number of
  // connections that the engine had made before. Errors: of the resolver, or of the list.
  absl::StatusOr<uint64_t> Begin(const ChannelOptions& options, uint32_t channels);
  // Returns the result of the first attempt to connect. `decided`: whether the attempt has ended. If it has not, returns the last
  // error of the engine, or DEADLINE_EXCEEDED. `connections_before`: result of Begin().
  absl::Status FirstAttempt(bool decided, uint64_t connections_before);

  static absl::Status Validate(const std::string& address, const ChannelOptions& options);
  absl::Status Resolve(std::shared_ptr<Resolver> resolver);

  absl::Status UseServers(const std::vector<std::string>& addresses);
  ChannelSnapshot TakeSnapshot(absl::Duration patience);

  absl::Status Start(const call::CallSpec& spec);
  call::CallSpec Spec(const Method& method, const CallContext& context,
                      const google::protobuf::MessageLite* request,
                      google::protobuf::MessageLite* reply) const;

  std::atomic<uint32_t> keeps_{1};          // number of ChannelKeeps, plus 1 for all references
  const std::shared_ptr<Runtime> runtime_;  // nullptr: the channel is in no runtime
  const std::unique_ptr<Stack> own_stack_;  // nullptr: stack_ is the runtime's
  Stack* const stack_;
  const std::string address_;
  LevelLog log_;
  ClientChain interceptors_;
  const std::shared_ptr<ChannelEngine> core_;
  call::ClientEngine& engine_;  // engine of core_
  const bool shares_;           // other channels may use core_
  std::unique_ptr<Lease> own_lease_;
  Lease* lease_ = nullptr;
  Seat seat_;
  std::shared_ptr<Resolver> resolver_;  // nullptr: the list of servers is fixed
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_CHANNEL_H_
