// SPDX-License-Identifier: Apache-2.0
//
// ClientEngine: makes the calls of one channel, over one endpoint, on one thread at a time.
//
// Purpose       Starts calls, sends each to one of its servers when the server is connected and has granted a credit, matches replies, and
//               ends each call exactly once (call_state.h), after one attempt or several (retry.h). It keeps the connections to all
//               servers up (connection_state.h), with jitter and bounded back-off. All servers share the queues of the endpoint: each
//               costs as much as a peer.
// Ownership     Channel (middleware/api), or a test. The constructor takes options, clock and random source. The endpoint follows with
//               Attach(), because it takes handler().
// Threads       Any, one at a time, with a happens-before edge between two; the lease in middleware/api provides it. Callbacks run only
//               inside Poll() (of the engine or its group), AfterSleep(), Dial(), Cancel(), EndCallsOf() and Close().
// End           Close() ends remaining calls with CANCELLED. The endpoint outlives the engine's last use of it.
#ifndef SLUICE_MIDDLEWARE_CALL_CLIENT_ENGINE_H_
#define SLUICE_MIDDLEWARE_CALL_CLIENT_ENGINE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "middleware/call/buffer.h"
#include "middleware/call/call_table.h"
#include "middleware/call/connection.h"
#include "middleware/call/connection_state.h"
#include "middleware/call/exceptions.h"
#include "middleware/call/retry.h"
#include "middleware/call/state_watch.h"
#include "middleware/frame/frame.h"
#include "middleware/observe/call_stats.h"
#include "middleware/observe/overload.h"
#include "middleware/observe/trace_events.h"
#include "middleware/session/sessions.h"
#include "transport/base/clock.h"
#include "transport/base/event_log.h"
#include "transport/base/log.h"
#include "transport/base/random.h"
#include "transport/base/sampler.h"
#include "transport/base/timer_wheel.h"
#include "transport/base/trace_ring.h"
#include "transport/endpoint/endpoint.h"

namespace sluice::call {

// Selects the server for the next call among the servers that are up.
enum class Balancing : uint8_t {
  kPickFirst,         // the first in the list; the others only while it is not up
  kRoundRobin,        // one after another; a server without credit is skipped
  kLeastOutstanding,  // the server with the fewest calls of this engine in flight
};

struct ClientEngineOptions {
  std::string host;  // of the first server; empty: no server until SetServers()
  uint16_t port = 0;
  Balancing balancing = Balancing::kPickFirst;
  RetryPolicy retry;
  // Maximum number of calls in flight, for each owner. Further calls fail with RESOURCE_EXHAUSTED. Range: 1 to CallTable::kMaxCapacity.
  uint32_t max_outstanding_calls = 1024;
  uint64_t max_large_bytes = 0;        // maximum size of a large message; the server may allow less
  uint32_t max_message_bytes = 16384;  // of others, header included; the server may allow less
  uint32_t stream_window = StreamEnd::kWindow;  // of streams from the server (StreamEnd)
  int64_t connect_timeout_ns = 5'000'000'000;
  int64_t backoff_min_ns = 20'000'000;  // pause before the first reconnect
  // Maximum pause before a reconnect. The pause doubles with each failure in a row, and varies at random by up to a quarter.
  int64_t backoff_max_ns = 2'000'000'000;
  // Period of the health checks of each server, varied at random by up to a quarter; also the timeout of a check. A server that does not
  // serve gets calls only while no connected server serves. 0: no health checks.
  int64_t health_period_ns = 0;
  std::string health_service;  // "package.Service"; empty: the server as a whole
  // Maximum number of reconnects in a row that fail. After them: none until the next call. With several servers, a call that another
  // server takes starts one attempt each time that about backoff_max_ns has passed.
  uint32_t max_reconnect_attempts = 20;
  // The owner learns why the first connection to a single server failed, so this failure is not logged as a warning.
  bool first_failure_is_told = true;
  uint32_t trace_records = 4096;  // number of latest events kept; 32 bytes each
  uint32_t timed_every = 16;      // under load, one of this many calls is timed

  bool operator==(const ClientEngineOptions&) const = default;
};

struct ClientCounters {
  uint64_t calls_started = 0;
  uint64_t calls_ok = 0;
  uint64_t calls_failed = 0;      // ended with another status
  uint64_t late_replies = 0;      // to calls that had ended
  uint64_t protocol_errors = 0;   // connections closed because of invalid messages
  uint64_t connections = 0;       // came up
  uint64_t connections_lost = 0;  // went down after having been up
  uint64_t dials = 0;             // attempts to connect
  uint64_t retries = 0;           // attempts of calls beyond their first
  uint64_t retries_denied = 0;    // refused by the retry budget
};

class ClientEngine final : public session::User {
 public:
  // `log` may be nullptr.
  ClientEngine(const ClientEngineOptions& options, base::Clock* clock, base::Random* random,
               base::LogSink* log = nullptr);
  ~ClientEngine() override;

  // Returns the handler to create the endpoint with.
  endpoint::Handler* handler() { return &sessions_; }
  void Attach(endpoint::Endpoint* endpoint) {
    endpoint_ = endpoint;
    sessions_.Attach(endpoint);
  }

  // Replaces the list of servers. Order is preference. The next Poll() connects to new servers. Calls that were sent to a removed server
  // continue; the engine disconnects the server when they have ended.
  void SetServers(const std::vector<ServerAddress>& servers);

  // Starts to connect to each server that is idle or in back-off. Does not block.
  void Dial();
  // Lets the next Poll() connect to the servers that are idle.
  void DialSoon() { dial_wanted_ = true; }

  // Waits until state() differs from `watch->seen`. Does not block. Returns true if `watch->done` will run, once. Returns false if it
  // will not run: `watch->now` differs already, or the engine is closed, or EndCallsOf() is running for the owner.
  bool Watch(StateWatch* watch);
  // Removes the watch: `done` is not called afterwards. No effect on a watch that does not wait.
  void Unwatch(StateWatch* watch);

  // Starts a call. Does not block. If the result is OK, `spec.done` runs exactly once, after Start(); otherwise it never runs. Nothing
  // reaches the wire before Flush() or the end of Poll(). `call_id`, if not nullptr, receives a number for Cancel().
  absl::Status Start(const CallSpec& spec, uint64_t* call_id = nullptr);

  // Ends the call with CANCELLED; its callback runs before Cancel() returns. If the request was sent, the engine also sends kCancel to
  // the server, as soon as there is credit. Returns false if the call has ended before.
  bool Cancel(uint64_t call_id);
  // These two are for a call that a thread handed over to the thread that drives. StartLate(): `spec` has its deadline, and no timeout;
  // `now_ns` is the time by the clock. EndUnstarted(): runs the callback, or `spec.done`, of a call that was not started.
  absl::Status StartLate(const CallSpec& spec, int64_t now_ns) {
    return spec.deadline_ns <= now_ns ? StartedTooLate(*spec.method) : Start(spec);
  }
  // Returns the error of a call that the thread that drives did not start before its deadline.
  absl::Status StartedTooLate(const Method& method) const;
  // Returns the error of a call that its caller cancelled. `retry_safe`: it was not sent.
  absl::Status CancelledByCaller(const Method& method, bool retry_safe) const;
  void EndUnstarted(const CallSpec& spec, const absl::Status& why);

  // Ends the call with `why` in the next Poll(), if it has not ended by then. If `why` is OK: with CANCELLED, as Cancel() does.
  void EndSoon(uint64_t call_id, absl::Status why) {
    end_soon_.push_back({call_id, std::move(why)});
  }

  // Returns memory for an attachment, for the server that would get a call now.
  // Errors: UNAVAILABLE (no server is up), RESOURCE_EXHAUSTED (no memory now), INVALID_ARGUMENT (over the limit of a message).
  absl::StatusOr<Buffer> MakeBuffer(size_t bytes);

  // Reads the next received message of a streaming call. Does not block.
  ReadResult Read(ClientStream* stream, google::protobuf::MessageLite* message);
  // Sends a message of a streaming call. Does not block.
  // Errors: RESOURCE_EXHAUSTED (no room now; OnWritable() or the end of the call follows), FAILED_PRECONDITION (the call has ended, or
  // after EndWrites()), INVALID_ARGUMENT (over the limit).
  absl::Status Write(ClientStream* stream, const google::protobuf::MessageLite& message);
  // Ends the request stream.
  void EndWrites(ClientStream* stream);

  void Flush() { endpoint_->Flush(); }
  // For a ClientGroup, which polls the endpoint: begins a pass. Call before any other function in that pass. `after_quiet`: many passes
  // of the group before this pass had no events.
  void BeginPass(bool after_quiet) {
    now_is_stale_ = true;
    quiet_passes_ = after_quiet ? kQuietPasses : 0;
  }
  // Returns true if the next Poll() has work that no event announces.
  bool HasWork() const;
  // Runs one pass, and returns the number of events handled. Does not block.
  int Poll();
  // See endpoint.h. PrepareToSleep() returns false also if HasWork().
  // SleepLimitNs() includes this engine's timers.
  bool PrepareToSleep() { return !HasWork() && endpoint_->PrepareToSleep(); }
  int64_t SleepLimitNs();
  // Fires the timers that are due after a sleep, and returns their number.
  int AfterSleep();

  // Allows max_outstanding_calls for each of `owners` owners, at most CallTable::MaxOwners(). The limit never decreases.
  void AllowOwners(uint32_t owners) { table_.AllowOwners(owners); }
  // Ends the calls and watches of `owner`, as Close() does, and cancels the calls at the servers. The owner must not start calls or
  // watches afterwards, nor in their callbacks.
  void EndCallsOf(const void* owner);
  // Returns the status of calls that Close() and EndCallsOf() end.
  absl::Status ChannelClosed() const;

  // Disconnects all servers, and ends all calls with CANCELLED and all watches. No callback runs afterwards.
  void Close();

  // Returns the time of the last reading of the clock: at most one reading per pass with work, and one per 16 passes without.
  int64_t now_ns() const { return now_ns_; }
  // Returns the first of these states that a connection has: up, connecting, draining, backoff; else idle. After Close(): closed.
  ConnectionState state() const;
  const std::vector<std::unique_ptr<Connection>>& connections() const { return connections_; }
  // Returns the reason of the last lost connection; OK if none was lost.
  const absl::Status& last_error() const { return last_error_; }
  const std::string& server() const { return server_; }
  uint32_t outstanding() const { return table_.active(); }
  // Returns whether `calls` more calls than now are in flight can be started. Any thread; the result may be out of date at once.
  bool HasRoomFor(size_t calls) const { return table_.active() + calls <= table_.limit(); }
  base::Clock* clock() const { return clock_; }
  const ClientCounters& counters() const { return counters_; }
  const session::SessionCounters& session_counters() const { return sessions_.counters(); }
  // Sessions::large_steps().
  uint64_t large_steps() const { return sessions_.large_steps(); }
  // Any thread may read these two objects at any time.
  const observe::CallStats& stats() const { return stats_; }
  const base::TraceRing& trace() const { return trace_; }
  // Any thread.
  Exceptions* exceptions() { return &exceptions_; }

  void OnPeerUp(endpoint::PeerId peer, const endpoint::PeerInfo& info) override;
  void OnPeerDown(endpoint::PeerId peer, const absl::Status& why) override;
  void OnMessage(endpoint::PeerId peer, const frame::Header& header,
                 std::span<const std::byte> payload) override;
  void OnWritable(endpoint::PeerId peer) override;
  void OnLost(endpoint::PeerId peer, const frame::Header& header, const absl::Status& why) override;
  void OnProtocolError(endpoint::PeerId peer, std::string_view what,
                       std::string_view explanation) override;

 private:
  static constexpr uint32_t kIdlePassesPerClockRead = 16;
  static constexpr uint32_t kBusyPassesPerClockRead = 64;
  // Number of passes without an event after which the cost of reading the clock does not matter.
  static constexpr uint32_t kQuietPasses = 64;

  static void OnDeadline(void* owner, Call* call);
  static void OnThrown(void* owner, const Method& method);
  void EndTheseSoon();
  static void OnBackoffOver(base::Timer* timer, void* context);
  static void OnPauseOver(base::Timer* timer, void* context);

  void RefreshNow();
  void LookAtOverload();
  static void Move(Connection* connection, ConnectionEvent event);
  // Schedules the watches that differ from state(). Call after each change of state() (client_watch.cc).
  void NoteState();
  static void OnWatch(base::Timer* timer, void* context);
  // Ends the watches of `owner`; nullptr: all watches.
  void EndWatches(const void* owner);
  // The servers' connections (client_connections.cc).
  Connection* Find(endpoint::PeerId peer) {
    if (peer.index >= by_peer_.size()) return nullptr;
    Connection* found = by_peer_[peer.index];
    return found != nullptr && found->peer == peer ? found : nullptr;
  }
  void Dial(Connection* connection);
  // Handles a connection that was lost or never came up: starts the back-off, and ends the calls that cannot continue.
  void Lose(Connection* connection, const absl::Status& why, absl::StatusCode sent_code);
  void LogLoss(Connection* connection, const absl::Status& why);
  // Closes the connection because of an invalid message.
  void Break(Connection* connection, std::string_view what, std::string_view explanation);
  // Returns a random time between 3/4 and 5/4 of `wait_ns`, so that the clients of a server do not come in waves.
  int64_t Jittered(int64_t wait_ns) {
    return wait_ns - wait_ns / 4 +
           static_cast<int64_t>(random_->Below(static_cast<uint64_t>(wait_ns / 2) + 1));
  }
  // client_health.cc
  void WatchHealth(Connection* connection);
  void ForgetHealth(Connection* connection);
  void AskHealth(Connection* connection);
  static void OnHealthTime(base::Timer* timer, void* context);
  static void OnHealth(void* argument, const absl::Status& status);
  void Judge(Connection* connection, Health health, std::string_view why);
  void Reconsider();
  bool IsLeaving(const Connection* connection) const;
  // Handles kDrain: the server accepts no new calls, or asks this side to rest.
  void OnDrain(Connection* connection, const frame::Header& header);
  // client_rest.cc
  void Rest(Connection* connection);
  bool MayRest(const Connection& connection) const;
  void DialResting();
  // Called before a server is selected: lets the next Poll() connect to the servers at rest, and to servers that were given up.
  void DialIdle();
  bool StaysAtRest(size_t index) const;
  void DialGivenUp();
  bool MayDialAgain(Connection* connection);
  // Disconnects removed servers that have no calls.
  void DropLeft();
  // Returns true if a server is up, connecting or idle, so that a waiting call may still be sent.
  bool HasHope() const;
  // Ends the waiting calls without wait_for_ready. Call if no server can take them.
  void EndHopeless();

  void Deliver(Connection* connection, const frame::Header& header,
               std::span<const std::byte> payload);
  void DeliverOther(Call* call, const frame::Header& header, std::span<const std::byte> payload);
  // Returns true if no call waits, and the table has a free place.
  bool MaySendNow() const { return table_.waiting() == 0 && table_.active() < table_.limit(); }
  absl::Status StartOther(const CallSpec& spec, int64_t deadline_ns, uint64_t* call_id);

  void Begin(Call* call, uint64_t* call_id) {
    ++counters_.calls_started;
    const Method& method = *call->spec.method;
    const uint64_t id = CallTable::FirstWireId(*call);
    call->started_ns = now_ns_;
    call->stats = stats_.Of(method.id, method.full_name);
    call->stats->CountStart();
    if (call_id != nullptr) *call_id = id;
    if (call->spec.stream != nullptr || call->spec.control != nullptr) BeginKnown(call, id);
  }
  // Stores the number of the call in its stream and its CallControl.
  void BeginKnown(Call* call, uint64_t id);
  static bool MayGetCalls(const Connection& connection) {
    return connection.state == ConnectionState::kUp && !connection.left_out;
  }
  // Returns the index of the first server to try. `buffer`: nullptr, or a buffer for one server, which is then the first.
  size_t FirstChoice(const Buffer* buffer) {
    return connections_.size() < 2 ? 0 : FirstChoiceOfSome(buffer);
  }
  size_t FirstChoiceOfSome(const Buffer* buffer);
  static size_t PayloadBytes(const CallSpec& spec) {
    const size_t message =
        spec.method->client_streams() ? 0 : spec.method->request_codec->size(*spec.request);
    return message + frame::MetadataBytes(spec.metadata.size()) +
           frame::AttachmentBytes(spec.attachment.size());
  }
  // Selects a server, and reserves memory for the request. UNAVAILABLE: no server is up. RESOURCE_EXHAUSTED: no credit or no memory now.
  // An error with `*connection` set: the request can't be sent there.
  absl::Status ReserveFor(const CallSpec& spec, Connection** connection,
                          endpoint::SendBuffer* buffer, uint32_t* payload_bytes);
  // Send() does the same as SendRequest(), which is always inlined.
  void SendRequest(Call* call, Connection* connection, const endpoint::SendBuffer& buffer,
                   uint32_t payload_bytes);
  void Send(Call* call, Connection* connection, const endpoint::SendBuffer& buffer,
            uint32_t payload_bytes);
  void SendWaiting();
  // Returns true if another attempt follows.
  bool Retry(Call* call, const absl::Status& status, bool not_run);
  void Again(Call* call);
  bool SendControl(Connection* connection, frame::Kind kind, uint64_t call_id, uint32_t window);
  void SendOwed(Connection* connection);
  static void Block(Call* call);
  // Sets `opened`, and calls the observer, which may end the call.
  static void Open(ClientStream* stream);
  void OnStream(Connection* connection, const frame::Header& header,
                std::span<const std::byte> payload);
  void End(Call* call, CallEvent event, const absl::Status& status);
  // As End(), for a reply of success to a call without a stream.
  void EndOk(Call* call);
  bool IsSampled() { return quiet_passes_ >= kQuietPasses || sampler_.Hit(); }
  // Gives the caller the metadata and the attachment of the reply.
  void KeepBeside(Beside* beside, const frame::Parts& parts);
  // Handles a reply with an error: retries or ends the call.
  void Fail(Call* call, Connection* connection, const frame::Header& header,
            std::span<const std::byte> message);
  absl::Status NotParsed(const Call& call, const Connection& connection, size_t bytes) const;
  // As End(), with a trace record; with the latency if `sampled`.
  void EndRecorded(Call* call, CallEvent event, const absl::Status& status, bool sampled);
  void CountOk(Call* call) {
    ++counters_.calls_ok;
    budget_.Succeeded();
    call->stats->CountOk();
  }
  void RecordLatency(const Call& call);
  void Trace(observe::TraceEvent event, uint64_t id, uint64_t detail, int64_t number,
             const absl::Status& status = absl::OkStatus()) {
    trace_.Add({now_ns_, id, detail, static_cast<uint32_t>(number), static_cast<uint16_t>(event),
                static_cast<uint16_t>(status.ok() ? absl::StatusCode::kOk : status.code())});
  }

  // Returns the cause in the status without the rest of its text, for use in another error text.
  static std::string CauseOf(const absl::Status& status);
  // Returns the maximum size of a message, lent or not, header included.
  static uint32_t LimitOf(const endpoint::PeerInfo& info) {
    return frame::kHeaderBytes + session::Sessions::LargestPayload(info);
  }
  // Returns the error of a request for which the system has no memory: waiting would not help.
  absl::Status NoMemory(const CallSpec& spec, const absl::Status& why) const;
  absl::Status TooLarge(const CallSpec& spec, const char* what, uint64_t payload_bytes,
                        uint32_t limit_bytes,
                        absl::StatusCode code = absl::StatusCode::kResourceExhausted) const;
  // Returns the error of an operation for which no server is available.
  absl::Status NotConnected(std::string_view operation) const;
  absl::Status DeadlineExceeded(const CallSpec& spec, CallState state, uint32_t attempt = 1) const;

  const ClientEngineOptions options_;
  std::string server_;  // "host:port" of all servers, separated by commas
  base::Clock* const clock_;
  base::Random* const random_;
  base::EventLog log_;
  observe::Overload overload_{"calls are refused"};
  observe::Overload outage_{"the retry budget is used up"};
  endpoint::Endpoint* endpoint_ = nullptr;
  session::Sessions sessions_{this};

  base::TimerWheel wheel_;
  Exceptions exceptions_;
  CallTable table_;

  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<std::unique_ptr<Connection>> leaving_;  // removed servers with calls in flight
  std::vector<Connection*> by_peer_;                  // by PeerId::index
  size_t next_choice_ = 0;
  RetryBudget budget_;
  uint32_t limit_bytes_;  // maximum size of a message: the largest of all connections
  bool closed_ = false;
  absl::Status last_error_;
  std::vector<StateWatch*> watches_;
  const void* ending_ = nullptr;  // owner in EndCallsOf(), while it runs
  bool dial_wanted_ = false;      // the next Poll() connects to idle servers
  bool some_rest_ = false;        // a connection may rest: DialResting() looks
  bool some_given_up_ = false;    // a server may be given up: DialGivenUp() looks at redial_ns_
  bool servers_changed_ = false;  // since the last Poll(): waiting calls may have to end or be sent
  int64_t redial_ns_ = 0;         // earliest time of the next DialGivenUp()
  std::vector<std::pair<uint64_t, absl::Status>> end_soon_;  // of EndSoon()

  int64_t now_ns_ = 0;
  bool now_is_stale_ = true;
  uint32_t idle_passes_ = 0;
  uint32_t busy_passes_ = 0;
  uint32_t quiet_passes_ = 0;  // in a row
  ClientCounters counters_;
  observe::CallStats stats_;
  base::Sampler sampler_;
  base::TraceRing trace_;
};

}  // namespace sluice::call

#endif  // SLUICE_MIDDLEWARE_CALL_CLIENT_ENGINE_H_
