// SPDX-License-Identifier: Apache-2.0
//
// ServerEngine: runs the methods of registered services for the peers of one endpoint.
//
// Purpose       Checks each message, finds the method, parses the request, runs the handler inline, sends the reply. A handler that has not
//               ended when it returns gets a ServerCall, and replies later.
// Ownership     Server (middleware/api), or a test. Services outlive it.
// Threads       The polling thread; register services before the first Poll(). Post(): any.
// Exceptions    An exception that leaves a handler ends its call with UNKNOWN and is logged (exceptions.h). Poll() continues.
// Limits        Replies without a credit wait in the backlog of the peer. A peer whose backlog is full requests more than it grants, and is
//               disconnected (counted, logged). Above max_concurrent_calls calls in flight, requests are refused with
//               RESOURCE_EXHAUSTED.
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
  uint32_t max_message_bytes = 16384;  // with the header; a client may allow less
  uint32_t max_waiting_replies_per_peer = 4096;
  uint64_t max_waiting_bytes_per_peer = 16u << 20;
  uint32_t max_concurrent_calls = 65536;        // that have a ServerCall
  uint32_t stream_window = StreamEnd::kWindow;  // of what a client sends (StreamEnd)
  Gate* gate = nullptr;                         // nobody looks
  int64_t slow_call_ns = 100'000'000;  // calls that take longer are kept for people (SlowCalls)
  uint32_t trace_records = 4096;       // kept of what happened last; 32 bytes each
  uint64_t span_seed = 0;              // random: what Incoming::span is made from
  uint32_t timed_every = 16;           // one of how many passes is timed while they are busy
};

struct ServerCounters {
  uint64_t requests = 0;  // that reached a handler
  uint64_t replies_ok = 0;
  uint64_t replies_error = 0;   // a handler's, or the engine's own (unknown method, …)
  uint64_t replies_lost = 0;    // the caller went away before
  uint64_t replies_waited = 0;  // for credit
  uint64_t unknown_methods = 0;
  uint64_t refused = 0;  // too many calls were under way
  uint64_t refused_draining = 0;
  uint64_t refused_at_gate = 0;
  uint64_t cancelled = 0;  // while they were under way: by the caller, its death or the deadline
  uint64_t calls_under_way = 0;  // now: those that have a ServerCall
  uint64_t protocol_errors = 0;  // peers disconnected because of what they sent
  uint64_t overflows = 0;        // peers disconnected because their backlog was full
  uint64_t peers_up = 0;
  uint64_t peers_down = 0;
};

class ServerEngine final : public session::User {
 public:
  // `log` may be nullptr.
  ServerEngine(const ServerEngineOptions& options, base::Clock* clock, base::LogSink* log);
  ~ServerEngine() override;

  // What the endpoint is made with.
  endpoint::Handler* handler() { return &sessions_; }
  void Attach(endpoint::Endpoint* endpoint) {
    endpoint_ = endpoint;
    sessions_.Attach(endpoint);
  }

  // ALREADY_EXISTS: a method of this name, or of the same number, is there.
  absl::Status Register(MethodHandler handler);

  // One pass; never blocks. The number of things done.
  int Poll();

  // Replies that have not been handed to the endpoint yet, or that stand here until their callers have read them.
  bool HasWaitingReplies() const { return UnreadReplies() != 0; }
  // Calls whose handlers have not said Finish().
  size_t calls_under_way() const { return under_way_.size(); }
  // There are such calls, or another thread is in Post(): after Close() the engine and its endpoint stay until this is false.
  bool in_use() const {
    return !under_way_.empty() || posting_.load(std::memory_order_acquire) != 0;
  }
  // See endpoint.h; with this engine's timers and mail.
  bool PrepareToSleep();
  int64_t SleepLimitNs();
  // Goodbye to all peers. No handler is started afterwards; those under way are told that nobody waits for them.
  void Close();
  // Runs what has been posted and the timers that are due, and nothing else: for those who are still under way after Close().
  int RunMail() { return mail_.Run() + wheel_.Advance(clock_->NowNs()); }

  // Takes no new calls from now on, and tells the peers; cancels what is under way at `cancel_at_ns`. Then poll until
  // drain().over(). Once.
  void StartDrain(int64_t cancel_at_ns, int64_t end_by_ns);
  const Drain& drain() const { return drain_; }

  // Memory for the attachment of a reply to this peer. CANCELLED: it is gone. RESOURCE_EXHAUSTED: there is none now.
  // INVALID_ARGUMENT: over the limit.
  absl::StatusOr<Buffer> MakeBuffer(endpoint::PeerId peer, size_t bytes);

  // In a catch block, on any thread while the call is under way: logs the exception, which left `who` ("handler"), and
  // returns the status with which the call is to end.
  absl::Status Thrown(std::string_view who, const Incoming& incoming);

  // Any thread. `node` is run by the polling thread, in its next pass.
  void Post(base::MailNode* node);
  // The polling thread. `node` does not run, if it has not yet.
  void Withdraw(base::MailNode* node) { mail_.Remove(node); }
  // This thread is the polling thread from now on; and whether it is. Any thread may ask.
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
  // These two may be read by any thread meanwhile.
  const observe::CallStats& stats() const { return stats_; }
  const base::TraceRing& trace() const { return trace_; }
  const observe::SlowCalls& slow_calls() const { return slow_calls_; }
  // For people: each peer that is up, and each call that has a ServerCall, until `visit` says false.
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
  void OnMessage(endpoint::PeerId peer, const frame::Header& header,
                 std::span<const std::byte> payload) override;
  void OnWritable(endpoint::PeerId peer) override;
  void OnLost(endpoint::PeerId peer, const frame::Header& header, const absl::Status& why) override;
  void OnProtocolError(endpoint::PeerId peer, std::string_view what,
                       std::string_view explanation) override;

 private:
  friend class ServerCall;

  // A method and the ServerCalls that were made for it and are free.
  struct Entry {
    MethodHandler handler;
    observe::MethodStats* stats = nullptr;
    bool plain = false;  // one message each way, and answered before its handler returns
    Incoming
        incoming{};  // of such a call without metadata and attachment: the fields of the method stand here already
    std::vector<std::unique_ptr<ServerCall>> free;
  };
  struct Peer {
    Peer(const ServerEngineOptions& options, uint32_t the_generation,
         const endpoint::PeerInfo& info);

    const uint32_t generation;
    const std::string address;
    const std::string tenant;
    const uint32_t limit_bytes;    // of a message, header included
    const uint32_t largest_bytes;  // of one that may be lent, without the header
    session::Backlog backlog;
    absl::flat_hash_map<uint64_t, ServerCall*> calls;  // by the caller's number
    std::vector<ServerCall*> blocked;                  // their Write() was refused
    bool untold = false;  // it has not answered that it knows of the drain
    bool ending = false;  // it is in ending_
  };

  // nullptr: it is down, or about to be disconnected.
  Peer* Find(endpoint::PeerId id) {
    Peer* peer = FindAny(id);
    return peer != nullptr && !peer->ending ? peer : nullptr;
  }
  // Finds one that is about to be disconnected, too.
  Peer* FindAny(endpoint::PeerId id) {
    if (id.index >= peers_.size()) return nullptr;
    Peer* peer = peers_[id.index].get();
    return peer != nullptr && peer->generation == id.generation ? peer : nullptr;
  }
  void LogLoss(const Peer& peer, const absl::Status& why);
  void Drop(endpoint::PeerId id);
  // Disconnects the peer at the end of the pass: callers, and theirs, still use its record.
  void Break(endpoint::PeerId id, std::string_view what, std::string_view explanation);
  void EndPeers();
  int Pass();

  void RefreshNow() {
    if (now_is_stale_) ReadClock();
  }
  void ReadClock();
  void StepDrain();
  void OnDrainAnswer(endpoint::PeerId id, Peer* peer);
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
  // One that is not plain, by its method or by what comes with it.
  void RunOther(endpoint::PeerId id, Peer* peer, const frame::Header& request, Entry* entry,
                std::span<const std::byte> payload);
  void ReplyUnplain(endpoint::PeerId id, Peer* peer, uint64_t call_id, const Entry& entry,
                    const absl::Status& status);
  // There is no such method, or the server takes no new calls.
  void RefuseUnknown(endpoint::PeerId id, Peer* peer, const frame::Header& request);
  void RefuseMalformed(endpoint::PeerId id, Peer* peer, const frame::Header& request,
                       const Entry& entry, const Incoming& incoming, size_t bytes);
  absl::Status RunInline(endpoint::PeerId id, Peer* peer, const frame::Header& request,
                         Entry* entry, Incoming& incoming);
  // Both count the call's end in `stats`, if there is such a method.
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
  // After the gate has let it in.
  void RefuseLetIn(endpoint::PeerId id, Peer* peer, uint64_t call_id, observe::MethodStats* stats,
                   const Incoming& incoming, const absl::Status& status) {
    Refuse(id, peer, call_id, stats, status);
    if (options_.gate != nullptr) EndAtGate(incoming, status);
  }
  void EndAtGate(const Incoming& incoming, const absl::Status& status);
  // Calls that were answered before their handler returned: how long they took is looked up once for all of a pass, after
  // its doorbell, and in a busy pass only if it is in the sample. Those of the others are known when the clock is read
  // next, about: well enough to tell slow ones.
  void NoteInline(endpoint::PeerId id, observe::MethodStats* stats, const absl::Status& status) {
    if (ran_count_ == kMaxRan) ReadClock();
    ran_[ran_count_++] = {id, stats, status.ok() ? absl::StatusCode::kOk : status.code()};
  }
  bool TimeIsDue() {
    if (now_is_stale_) {  // of an earlier pass
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

  // Memory for the payload of a reply, registered or the backlog's; nullptr: the peer is gone.
  struct Outgoing {
    std::byte* data = nullptr;
    bool waits = false;
    endpoint::SendBuffer buffer;
  };
  // For a reply that has to be lent: memory now, whatever waits. An error: there is none.
  absl::StatusOr<Outgoing> ReserveLarge(endpoint::PeerId id, Peer* peer, uint32_t payload_bytes,
                                        const session::InPlace& place);
  Outgoing Reserve(endpoint::PeerId id, Peer* peer, uint32_t payload_bytes);
  // What Reserve() answers when there is no memory to send from.
  Outgoing ReserveWaiting(endpoint::PeerId id, Peer* peer, uint32_t payload_bytes,
                          const absl::Status& refusal);
  // Writes a reply of success, and counts it. `size`: with what is beside the message.
  void ReplyInto(const Outgoing& outgoing, endpoint::PeerId id, uint64_t call_id,
                 observe::MethodStats* stats, const MessageCodec& codec,
                 const google::protobuf::MessageLite* reply, size_t message_bytes, uint32_t size,
                 const Beside& beside);
  void CountReply(endpoint::PeerId id, uint64_t call_id, observe::MethodStats* stats,
                  size_t payload_bytes) {
    stats->CountOk();
    stats->CountReplyBytes(payload_bytes);
    if (quiet_passes_ >= kQuietPasses || traced_.Hit()) [[unlikely]]
      Trace(observe::TraceEvent::kReply, id, call_id, stats->id());
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
  Drain drain_;
  uint64_t untold_ = 0;  // peers

  base::TimerWheel wheel_;
  base::Mailbox mail_;
  std::atomic<bool> asleep_{false};   // Post() has to wake the polling thread
  std::atomic<uint32_t> posting_{0};  // threads in Post()
  std::atomic<std::thread::id> polls_{};
  absl::flat_hash_map<uint64_t, std::unique_ptr<Entry>> methods_;
  uint64_t last_called_id_ = 0;  // of these two: no method has number 0
  Entry* last_called_ = nullptr;
  std::vector<std::unique_ptr<Peer>> peers_;  // by PeerId::index; the endpoint bounds it
  std::vector<endpoint::PeerId> ending_;      // to be disconnected at the end of the pass
  uint64_t UnreadReplies() const { return waiting_replies_ + sessions_.counters().lent; }
  uint64_t waiting_replies_ = 0;  // in all backlogs
  absl::flat_hash_set<ServerCall*> under_way_;
  uint64_t next_serial_ = 1;
  base::SeededRandom spans_;
  Beside reply_beside_;  // of the inline handler that runs
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
  int64_t ran_since_ns_ = 0;   // when the clock was read last before the first of them
  uint32_t quiet_passes_ = 0;  // in a row
};

}  // namespace sluice::call

#endif  // SLUICE_MIDDLEWARE_CALL_SERVER_ENGINE_H_
