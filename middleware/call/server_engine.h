// SPDX-License-Identifier: Apache-2.0
//
// ServerEngine: runs the methods of registered services for the peers of one endpoint.
//
// Purpose       Checks each message, finds the method, parses the request, runs the handler inline, sends the reply. A handler that
//               replies after its return gets a ServerCall.
// Ownership     Server (middleware/api), or a test. Services outlive it.
// Threads       The polling thread; register services before the first Poll(). Post(): any.
// Exceptions    An exception that leaves a handler ends its call with UNKNOWN and is logged (exceptions.h). Poll() continues.
// Limits        Replies without a credit wait in the backlog of the peer. A peer whose backlog is full sends more requests than it grants
//               credits for replies, and is disconnected (counted, logged). With max_concurrent_calls calls in flight, requests are
//               refused with RESOURCE_EXHAUSTED.
// Places        If the endpoint has no place for another peer, the client that was longest unused is asked to leave.
// Draining      StartDrain() (drain.h). New calls are refused with UNAVAILABLE; they have not run.
// End           Close() cancels the calls in flight. The engine outlives their Finish(), and in_use().
#ifndef SLUICE_MIDDLEWARE_CALL_SERVER_ENGINE_H_
#define SLUICE_MIDDLEWARE_CALL_SERVER_ENGINE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "middleware/call/drain.h"
#include "middleware/call/exceptions.h"
#include "middleware/call/gate.h"
#include "middleware/call/method.h"
#include "middleware/call/server_call.h"
#include "middleware/frame/frame.h"
#include "middleware/observe/call_stats.h"
#include "middleware/observe/overload.h"
#include "middleware/observe/slow_calls.h"
#include "middleware/observe/trace_events.h"
#include "middleware/session/backlog.h"
#include "middleware/session/sessions.h"
#include "transport/base/clock.h"
#include "transport/base/event_log.h"
#include "transport/base/log.h"
#include "transport/base/mailbox.h"
#include "transport/base/random.h"
#include "transport/base/sampler.h"
#include "transport/base/timer_wheel.h"
#include "transport/base/trace_ring.h"
#include "transport/endpoint/endpoint.h"

namespace sluice::call {

struct ServerEngineOptions {
  uint32_t max_message_bytes = 16384;  // header included; a client may allow less
  uint32_t max_waiting_replies_per_peer = 4096;
  uint64_t max_waiting_bytes_per_peer = 16u << 20;
  uint32_t max_concurrent_calls = 65536;        // calls in flight with a ServerCall
  uint32_t stream_window = StreamEnd::kWindow;  // of streams from a client (StreamEnd)
  Gate* gate = nullptr;                         // nullptr: no gate
  int64_t slow_call_ns = 100'000'000;  // calls that take this long are recorded (SlowCalls)
  uint32_t trace_records = 4096;       // number of latest events kept; 32 bytes each
  uint64_t span_seed = 0;              // random seed of Incoming::span
  uint32_t timed_every = 16;           // under load, one of this many passes is timed
};

struct ServerCounters {
  uint64_t requests = 0;  // that reached a handler
  uint64_t replies_ok = 0;
  uint64_t replies_error = 0;   // of handlers, or of the engine (unknown method, …)
  uint64_t replies_lost = 0;    // the caller disconnected, or its backlog was full
  uint64_t replies_waited = 0;  // for credit
  uint64_t unknown_methods = 0;
  uint64_t refused = 0;  // max_concurrent_calls were in flight
  uint64_t refused_draining = 0;
  uint64_t refused_at_gate = 0;
  uint64_t cancelled = 0;        // by the caller, its disconnect, the deadline, a drain or Close()
  uint64_t calls_under_way = 0;  // now: calls with a ServerCall
  uint64_t protocol_errors = 0;  // peers disconnected because of invalid messages
  uint64_t overflows = 0;        // peers disconnected because their backlog was full
  uint64_t peers_up = 0;
  uint64_t peers_down = 0;
  uint64_t rests_asked = 0;  // idle peers asked to leave, because the endpoint had no place
};

class ServerEngine final : public session::User {
 public:
  // `log` may be nullptr.
  ServerEngine(const ServerEngineOptions& options, base::Clock* clock, base::LogSink* log);
  ~ServerEngine() override;

  // Returns the handler to create the endpoint with.
  endpoint::Handler* handler() { return &sessions_; }
  void Attach(endpoint::Endpoint* endpoint) {
    endpoint_ = endpoint;
    sessions_.Attach(endpoint);
  }

  // Registers a method. Returns ALREADY_EXISTS if a method of the same name or number is registered.
  absl::Status Register(MethodHandler handler);

  // Runs one pass, and returns the number of events handled. Does not block.
  int Poll();

  // Returns true if replies wait in a backlog, or callers have not read all large replies.
  bool HasWaitingReplies() const { return UnreadReplies() != 0; }
  // Returns the number of calls whose handlers have not called Finish().
  size_t calls_under_way() const { return under_way_.size(); }
  // Returns true if there are such calls, or another thread is in Post(). After Close(), keep engine and endpoint until it returns false.
  bool in_use() const {
    return !under_way_.empty() || posting_.load(std::memory_order_acquire) != 0;
  }
  // See endpoint.h. PrepareToSleep() also checks for posted nodes; SleepLimitNs() includes this engine's timers.
  bool PrepareToSleep();
  int64_t SleepLimitNs();
  // Disconnects all peers, and cancels the calls in flight. No handler starts afterwards.
  void Close();
  // Runs posted nodes and due timers only: for the calls in flight after Close().
  int RunMail() { return mail_.Run() + wheel_.Advance(clock_->NowNs()); }

  // Starts the drain: refuses new calls, and announces the drain to the peers. Cancels the calls in flight at `cancel_at_ns`; the drain
  // ends at `end_by_ns` at the latest. Call once, then Poll() until drain().over().
  void StartDrain(int64_t cancel_at_ns, int64_t end_by_ns);
  const Drain& drain() const { return drain_; }

  // Returns memory for the attachment of a reply to this peer.
  // Errors: CANCELLED (the peer disconnected), RESOURCE_EXHAUSTED (no memory now), INVALID_ARGUMENT (over the limit).
  absl::StatusOr<Buffer> MakeBuffer(endpoint::PeerId peer, size_t bytes);

  // Logs an exception that `who` ("handler") has thrown, and returns the status that ends the call. Call in a catch block, on any thread,
  // while the call is in flight.
  absl::Status Thrown(std::string_view who, const Incoming& incoming);

  // Runs `node` on the polling thread, in its next pass. Any thread.
  void Post(base::MailNode* node);
  // Withdraws a posted node that has not run. On the polling thread.
  void Withdraw(base::MailNode* node) { mail_.Remove(node); }
  // BePolledHere() makes the calling thread the polling thread, until BePolledByNobody(). PolledHere() returns whether the calling thread
  // is the polling thread; any thread may call it.
  void BePolledHere() { polls_.store(std::this_thread::get_id(), std::memory_order_relaxed); }
  void BePolledByNobody() { polls_.store({}, std::memory_order_relaxed); }
  bool PolledHere() const {
    return polls_.load(std::memory_order_relaxed) == std::this_thread::get_id();
  }
  // Any thread. Returns whether another thread is the polling thread.
  bool PolledElsewhere() const {
    const std::thread::id polls = polls_.load(std::memory_order_relaxed);
    return polls != std::thread::id() && polls != std::this_thread::get_id();
  }

  const ServerCounters& counters() const { return counters_; }
  const session::SessionCounters& session_counters() const { return sessions_.counters(); }
  // Sessions::large_steps().
  uint64_t large_steps() const { return sessions_.large_steps(); }
  // Any thread may read stats() and trace() at any time.
  const observe::CallStats& stats() const { return stats_; }
  const base::TraceRing& trace() const { return trace_; }
  const observe::SlowCalls& slow_calls() const { return slow_calls_; }
  // For status pages: VisitPeers() visits each peer that is up, VisitCalls() each call with a ServerCall, until `visit` returns false.
  struct PeerView {
    endpoint::PeerId id;
    const std::string& address;
    const std::string& tenant;
    size_t calls_under_way;
    size_t waiting_replies;
    size_t waiting_bytes;
  };
  void VisitPeers(absl::FunctionRef<bool(const PeerView&)> visit) const;
  void VisitCalls(absl::FunctionRef<bool(const Incoming&)> visit) const;

  void OnPeerUp(endpoint::PeerId peer, const endpoint::PeerInfo& info) override;
  void OnPeerDown(endpoint::PeerId peer, const absl::Status& why) override;
  // Asks the client that was longest unused to leave (server_rest.cc).
  void OnNoPlace(bool refused) override;
  void OnMessage(endpoint::PeerId peer, const frame::Header& header,
                 std::span<const std::byte> payload) override;
  void OnWritable(endpoint::PeerId peer) override;
  void OnLost(endpoint::PeerId peer, const frame::Header& header, const absl::Status& why) override;
  void OnProtocolError(endpoint::PeerId peer, std::string_view what,
                       std::string_view explanation) override;

 private:
  friend class ServerCall;

  // A registered method, and its free ServerCalls.
  struct Entry {
    MethodHandler handler;
    observe::MethodStats* stats = nullptr;
    bool plain = false;  // one message each way, and the reply is complete when the handler returns
    // For a plain call without metadata and attachment. The fields that depend on the method only are set.
    Incoming incoming{};
    std::vector<std::unique_ptr<ServerCall>> free;
  };
  struct Peer {
    Peer(const ServerEngineOptions& options, uint32_t the_generation,
         const endpoint::PeerInfo& info);

    const uint32_t generation;
    const std::string address;
    const std::string tenant;
    const uint32_t limit_bytes;    // maximum size of a message, header included
    const uint32_t largest_bytes;  // maximum payload, large messages included
    int64_t used_ns = 0;           // time of its last request, or of the end of its last call
    session::Backlog backlog;
    absl::flat_hash_map<uint64_t, ServerCall*> calls;  // by the number that the caller gave
    std::vector<ServerCall*> blocked;                  // calls whose Write() was refused
    int64_t rest_asked_ns = 0;  // it was asked to leave (OnNoPlace); 0: never
    bool untold = false;        // it has not acknowledged the drain
    bool ending = false;        // it is in ending_
  };

  // Returns nullptr if the peer is down, or will be disconnected at the end of the pass.
  Peer* Find(endpoint::PeerId id) {
    Peer* peer = FindAny(id);
    return peer != nullptr && !peer->ending ? peer : nullptr;
  }
  // As Find(), but also finds a peer that will be disconnected at the end of the pass.
  Peer* FindAny(endpoint::PeerId id) {
    if (id.index >= peers_.size()) return nullptr;
    Peer* peer = peers_[id.index].get();
    return peer != nullptr && peer->generation == id.generation ? peer : nullptr;
  }
  void LogLoss(const Peer& peer, const absl::Status& why);
  void Drop(endpoint::PeerId id);
  // Disconnects the peer at the end of the pass, because functions on the call stack still use its record.
  void Break(endpoint::PeerId id, std::string_view what, std::string_view explanation);
  void EndPeers();
  int Pass();

  void RefreshNow() {
    if (now_is_stale_) ReadClock();
  }
  void ReadClock();
  void StepDrain();
  void OnDrainAnswer(endpoint::PeerId id, Peer* peer, const frame::Header& header);
  void TellDrain(endpoint::PeerId id, Peer* peer);
  void CancelUnderWay(const absl::Status& why);
  Entry* Lookup(uint64_t method_id) {
    if (last_called_id_ == method_id) return last_called_;
    const auto found = methods_.find(method_id);
    if (found == methods_.end()) return nullptr;
    last_called_id_ = method_id;
    return last_called_ = found->second.get();
  }
  void Run(endpoint::PeerId id, Peer* peer, const frame::Header& request,
           std::span<const std::byte> payload);
  absl::Status RunHandler(const MethodHandler& handler, const Incoming& incoming) {
    try {
      return handler.run(handler.service, incoming, *handler.request, handler.reply.get());
    } catch (...) {
      return Thrown("handler", incoming);
    }
  }
  // Runs a request that is not plain: because of its method, its flags (metadata, attachment, streams), or the gate.
  void RunOther(endpoint::PeerId id, Peer* peer, const frame::Header& request, Entry* entry,
                std::span<const std::byte> payload);
  void ReplyUnplain(endpoint::PeerId id, Peer* peer, uint64_t call_id, const Entry& entry,
                    const absl::Status& status);
  // Refuses a request for an unknown method, or any request during the drain.
  void RefuseUnknown(endpoint::PeerId id, Peer* peer, const frame::Header& request);
  void RefuseMalformed(endpoint::PeerId id, Peer* peer, const frame::Header& request,
                       const Entry& entry, const Incoming& incoming, size_t bytes);
  absl::Status RunInline(endpoint::PeerId id, Peer* peer, const frame::Header& request,
                         Entry* entry, Incoming& incoming);
  // ReplyOk(), ReplyPlain() and ReplyError() count the end of the call in `stats`. ReplyError() accepts nullptr: unknown method.
  void ReplyOk(endpoint::PeerId id, Peer* peer, uint64_t call_id, observe::MethodStats* stats,
               const google::protobuf::MessageLite* reply, const Beside& beside);
  void ReplyPlain(endpoint::PeerId id, Peer* peer, uint64_t call_id, observe::MethodStats* stats,
                  const MessageCodec& codec, const google::protobuf::MessageLite& reply);
  // `flags`: kFlagNotRun if no handler has seen the request.
  void ReplyError(endpoint::PeerId id, Peer* peer, uint64_t call_id, observe::MethodStats* stats,
                  const absl::Status& status, std::string_view metadata, uint16_t flags = 0);
  void Refuse(endpoint::PeerId id, Peer* peer, uint64_t call_id, observe::MethodStats* stats,
              const absl::Status& status) {
    ReplyError(id, peer, call_id, stats, status, {}, frame::kFlagNotRun);
  }
  // Refuses a request that the gate has accepted.
  void RefuseLetIn(endpoint::PeerId id, Peer* peer, uint64_t call_id, observe::MethodStats* stats,
                   const Incoming& incoming, const absl::Status& status) {
    Refuse(id, peer, call_id, stats, status);
    if (options_.gate != nullptr) EndAtGate(incoming, status);
  }
  void EndAtGate(const Incoming& incoming, const absl::Status& status);
  // Notes a call that was answered inline. The engine reads the clock once for all such calls of a pass, after the doorbell; under load,
  // only in sampled passes. In other passes, the next reading of the clock gives approximate durations, which suffice to detect slow
  // calls.
  void NoteInline(endpoint::PeerId id, observe::MethodStats* stats, absl::StatusCode code) {
    if (ran_count_ == kMaxRan) ReadClock();
    ran_[ran_count_++] = {id, stats, code};
  }
  bool TimeIsDue() {
    if (now_is_stale_) {  // the calls are of an earlier pass
      return quiet_passes_ % kIdlePassesPerClockRead == kIdlePassesPerClockRead - 1;
    }
    return quiet_passes_ >= kQuietPasses || sampler_.Hit();
  }
  void TimeInline();
  void SettleInline(uint32_t times);
  void SayHeld();
  void CheckSlow(endpoint::PeerId id, const observe::MethodStats& stats, int64_t received_ns,
                 absl::StatusCode code);
  void Trace(observe::TraceEvent event, endpoint::PeerId peer, uint64_t call_id, uint64_t detail,
             const absl::Status& status = absl::OkStatus()) {
    trace_.Add({now_ns_, call_id, detail, peer.index, static_cast<uint16_t>(event),
                static_cast<uint16_t>(status.ok() ? absl::StatusCode::kOk : status.code())});
  }
  absl::Status UnknownMethod(uint64_t method_id) const;
  absl::Status OtherShape(const Method& method) const;
  absl::Status Malformed(const Method& method, size_t bytes,
                         const google::protobuf::MessageLite& message) const;

  // Calls with a ServerCall (server_call.cc).
  void StartCall(endpoint::PeerId id, Peer* peer, const frame::Header& request, Entry* entry,
                 const Incoming& incoming, std::span<const std::byte> message);
  void OnStream(endpoint::PeerId id, Peer* peer, const frame::Header& header,
                std::span<const std::byte> payload);
  void CancelCall(ServerCall* call, const absl::Status& why);
  void CancelAll(Peer* peer, const absl::Status& why);
  void SayWindow(ServerCall* call);
  static void WriterMayGoOn(ServerCall* call);
  absl::Status SendInitialMetadata(ServerCall* call, std::string_view metadata);
  absl::Status Write(ServerCall* call, const google::protobuf::MessageLite& message);
  void Finish(ServerCall* call, const absl::Status& status);
  static void OnCallDeadline(base::Timer* timer, void* context);

  // Memory for the payload of a reply: registered, or in the backlog. `data` is nullptr if the peer is down or will be disconnected.
  struct Outgoing {
    std::byte* data = nullptr;
    bool waits = false;
    endpoint::SendBuffer buffer;
  };
  // Reserves memory for a reply that must be lent, even if other replies wait. Returns RESOURCE_EXHAUSTED if there is no memory now.
  absl::StatusOr<Outgoing> ReserveLarge(endpoint::PeerId id, Peer* peer, uint32_t payload_bytes,
                                        const session::InPlace& place);
  Outgoing Reserve(endpoint::PeerId id, Peer* peer, uint32_t payload_bytes);
  // Reserves memory in the backlog. Reserve() calls it if there is no send buffer.
  Outgoing ReserveWaiting(endpoint::PeerId id, Peer* peer, uint32_t payload_bytes,
                          const absl::Status& refusal);
  // Writes a reply of success, and counts it. `size`: size of the payload, metadata and attachment included.
  void ReplyInto(const Outgoing& outgoing, endpoint::PeerId id, uint64_t call_id,
                 observe::MethodStats* stats, const MessageCodec& codec,
                 const google::protobuf::MessageLite* reply, size_t message_bytes, uint32_t size,
                 const Beside& beside);
  [[gnu::always_inline]] void CountReply(endpoint::PeerId id, uint64_t call_id,
                                         observe::MethodStats* stats, size_t payload_bytes) {
    stats->CountOk();
    stats->CountReplyBytes(payload_bytes);
    if (quiet_passes_ >= kQuietPasses || traced_.Hit()) [[unlikely]]
      TraceReply(id, call_id, *stats);
  }
  [[gnu::cold, gnu::noinline]] void TraceReply(endpoint::PeerId id, uint64_t call_id,
                                               const observe::MethodStats& stats) {
    Trace(observe::TraceEvent::kReply, id, call_id, stats.id());
  }
  void Commit(endpoint::PeerId id, const Outgoing& outgoing, frame::Header& header);
  void PopWaiting(Peer* peer) {
    peer->backlog.Pop();
    --waiting_replies_;
  }

  const ServerEngineOptions options_;
  base::Clock* const clock_;
  base::EventLog log_;
  Exceptions exceptions_;
  observe::Overload overload_{"calls are refused"};
  endpoint::Endpoint* endpoint_ = nullptr;
  session::Sessions sessions_{this};
  bool closed_ = false;
  int64_t refused_ns_ = 0;  // a client was last refused for want of a place (OnNoPlace); 0: never
  Drain drain_;
  uint64_t untold_ = 0;  // peers that have not acknowledged the drain

  base::TimerWheel wheel_;
  base::Mailbox mail_;
  std::atomic<bool> asleep_{false};   // Post() must wake the polling thread
  std::atomic<uint32_t> posting_{0};  // threads in Post()
  std::atomic<std::thread::id> polls_{};
  absl::flat_hash_map<uint64_t, std::unique_ptr<Entry>> methods_;
  uint64_t last_called_id_ = 0;  // with last_called_: the last method that Lookup() found; 0: none
  Entry* last_called_ = nullptr;
  std::vector<std::unique_ptr<Peer>> peers_;  // by PeerId::index; the endpoint bounds it
  std::vector<endpoint::PeerId> ending_;      // to be disconnected at the end of the pass
  uint64_t UnreadReplies() const { return waiting_replies_ + sessions_.counters().lent; }
  uint64_t waiting_replies_ = 0;  // in all backlogs
  absl::flat_hash_set<ServerCall*> under_way_;
  uint64_t next_serial_ = 1;
  base::SeededRandom spans_;
  Beside reply_beside_;  // of the running inline handler; empty between handlers
  uint32_t idle_passes_ = 0;

  int64_t now_ns_ = 0;
  bool now_is_stale_ = true;
  ServerCounters counters_;
  observe::CallStats stats_;
  observe::SlowCalls slow_calls_;
  base::Sampler sampler_;
  base::Sampler traced_;
  base::TraceRing trace_;
  struct Ran {
    endpoint::PeerId peer;
    observe::MethodStats* stats;
    absl::StatusCode code;
  };
  static constexpr uint32_t kMaxRan = 32;
  static constexpr uint32_t kIdlePassesPerClockRead = 16;
  static constexpr uint32_t kQuietPasses = 64;  // as in client_engine.h
  std::array<Ran, kMaxRan> ran_;                // [0, ran_count_): answered inline, not settled yet
  uint32_t ran_count_ = 0;
  int64_t ran_since_ns_ = 0;   // last reading of the clock before the first of these calls
  uint32_t quiet_passes_ = 0;  // in a row
};

}  // namespace sluice::call

#endif  // SLUICE_MIDDLEWARE_CALL_SERVER_ENGINE_H_
